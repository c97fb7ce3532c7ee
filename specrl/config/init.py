"""Where a learned draft's first weights come from."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, expandable, not_empty, one_of, seed, within
from specrl.errors import UserError

MOST_PROMPTS = 10**6  # they are all in memory at once
NAMES = ("auto", "none", "random", "ultrachat", "dapo", "checkpoint")


@dataclass(kw_only=True)
class InitConfig:
    """A draft's first weights, an artifact: built once per (policy, init, draft), then reused."""

    name: str = MISSING
    """auto: dapo for a drafter that learns, none for another; see the other choices."""

    path: str | None = None
    """checkpoint: draft folder or hub id; ultrachat: prompts file (jsonl, parquet) or hub id."""

    revision: str | None = None
    """Hub commit, tag or branch of path; null is the default branch."""

    num_prompts: int = 240
    """Prompts whose responses the draft is fitted to (data efficiency: acceptance against this)."""

    samples_per_prompt: int = 3
    """Responses of the policy per prompt, at the rollout's temperature and length."""

    heldout_prompts: int = 32
    """Validation prompts of the task that the acceptance estimate is made on."""

    passes: int = 4
    """Passes over the responses."""

    learning_rate: float = 1.5e-3
    """Peak learning rate; linear warm-up, then cosine to a tenth."""

    warmup_share: float = 0.05
    """Share of the updates that warm up."""

    tv_share: float = 0.34
    """Share of the fit, at its end, that lowers the rejection rate itself (drafter loss tv)."""

    tokens_in_memory: int = 400000
    """Response tokens whose hidden states are kept at once, per data-parallel rank."""

    seed: int = 0
    """Seed of the first weights and of the responses."""

    def __post_init__(self) -> None:
        one_of("init.name", self.name, NAMES)
        within("init.num_prompts", self.num_prompts, 1, MOST_PROMPTS)
        at_least("init.samples_per_prompt", self.samples_per_prompt, 1)
        at_least("init.heldout_prompts", self.heldout_prompts, 1)
        at_least("init.passes", self.passes, 1)
        above("init.learning_rate", self.learning_rate, 0.0)
        within("init.warmup_share", self.warmup_share, 0.0, 1.0)
        within("init.tv_share", self.tv_share, 0.0, 1.0)
        at_least("init.tokens_in_memory", self.tokens_in_memory, 1)
        seed("init.seed", self.seed)
        expandable("init.path", self.path)
        if self.path is not None:
            not_empty("init.path", self.path)
        if self.path is not None and self.name not in ("ultrachat", "checkpoint"):
            raise UserError(
                f"init.path={self.path} means nothing with init={self.name}; "
                "use init=checkpoint or init=ultrachat, or leave it out"
            )
        if self.path is None and self.name == "checkpoint":
            raise UserError(
                "init=checkpoint needs init.path=<draft folder or hub id>; give it, or use "
                "another init"
            )
        if self.revision is not None and self.path is None:
            raise UserError(
                f"init.revision={self.revision} is that of a hub id in init.path, and there is "
                "none; give both or neither"
            )
