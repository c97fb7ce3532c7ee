"""What `specrl --help` prints: a page for a person, read from the YAML tree and the schemas."""

import textwrap
from collections.abc import Sequence

from specrl.config import mistakes, tree
from specrl.config.knobs import Knob, all_knobs, choice_knobs, run_knobs
from specrl.config.overrides import bare
from specrl.errors import UserError

WIDTH = 100
INDENT = " " * 6

INTRO = """\
specrl trains a language model with RL (GRPO; vLLM rollouts, a Megatron learner) and measures what
speculative decoding does to it: stage times, acceptance, speedup and what bounds it.

  specrl [GROUP=CHOICE | KNOB=VALUE]...        one run
  specrl -m GROUP=A,B KNOB=1,2                 a sweep: every combination, one run each
  specrl sweep=table4                          a table or figure of the paper, at CPU size
  specrl GROUP=CHOICE --help                   every knob of a choice: type, default, meaning
  specrl KNOB --help                           one knob
  specrl [...] --cfg job                       the composed config, nothing runs
  specrl [...] --dry-run                       points, layout, what is done already; nothing runs

Start here:
  specrl experiment=demo                       three matched arms on a laptop, in minutes
  specrl drafter=ngram debug=tiny              a whole run in seconds, to see that it works"""

MEANINGS = {
    "model": "Which policy is trained.",
    "drafter": "What the rollout engine drafts with.",
    "init": "Where a learned draft's first weights come from.",
    "adaptation": "Whether a learned draft follows the policy during RL.",
    "execution": "How generation and training follow one another.",
    "task": "Prompts and rewards.",
    "algorithm": "The policy-gradient objective.",
    "rollout": "What is sampled each step, and the engine that samples it.",
    "learner": "What computes log-probs and updates the policy.",
    "cluster": "Where the processes run.",
    "tracking": "Where metrics go, beside the JSONL in the run folder.",
    "experiment": "A whole result in one word: choices, sizes and lengths.",
    "sweep": "The runs of a table or figure of the paper; a finished run is used by all of them.",
    "debug": "Laid over everything else.",
}

EXAMPLES = {
    "model": "specrl model=qwen3_0_6b model.path=/models/Qwen3-0.6B",
    "drafter": "specrl -m drafter=none,ngram,eagle3 drafter.k=3",
    "init": "specrl -m drafter.k=3,5,7 init=ultrachat,dapo",
    "adaptation": "specrl -m init=ultrachat,dapo adaptation=offline,online",
    "execution": "specrl execution=sync",
    "task": "specrl task=arithmetic task.difficulty=2 task.prompt_style=raw",
    "algorithm": "specrl algorithm.advantage=mean algorithm.kl_coef=0.01",
    "rollout": "specrl rollout.group_size=16 +rollout.engine_args.max_num_seqs=32",
    "learner": "specrl learner.precision=fp32 learner.learning_rate=2e-6",
    "cluster": "specrl cluster=local_gpu rollout.replicas=2",
    "tracking": "specrl tracking.uri=http://localhost:5000",
    "experiment": "specrl -m experiment=rl_think_cpu drafter=none,ngram seed=0,1",
    "sweep": "specrl sweep=table4 experiment=rl_zero_cpu",
    "debug": "specrl experiment=rl_think_cpu debug=tiny",
}

OUTRO = """\
Also:
  specrl-status [output_dir]                   where every point of its sweeps stands (--json)
  specrl -m [...] hydra.launcher.jobs=2        points at once (1: they disturb each other's times)
  specrl -m [...] hydra/launcher=specrl_slurm cluster=h100    each point a Slurm job
  specrl-init-draft [...]                      builds only the draft that such a run starts from
  specrl --version
  eval "$(specrl -sc install=bash)"            tab completion for this shell (zsh, fish likewise)
  specrl --info defaults-tree                  where a composed value comes from
  SPECRL_CACHE=folder                          where converted models are kept (~/.cache/specrl)

A run lives in <output_dir>/<task>-<model>-<drafter>[-k<k>][-<init>[-online]]-<hash of the config>;
the same command goes on from its last checkpoint. The same sweep goes on too: finished points are
skipped, failed, killed and interrupted ones tried again, whatever else went wrong; rerun=true
starts all of them again. A knob that some of a sweep's choices have is set in those.
Exit code: 0 done, 1 the run failed, 2 a mistake in the command, 130 interrupted."""


def page() -> str:
    """The whole page."""
    head = "Groups (* marks the default)"
    parts = [INTRO, head, *(_group(group) for group in tree.groups())]
    return "\n\n".join([*parts, _run_section(), OUTRO])


def choices_page(words: Sequence[str]) -> str:
    """The knobs of what is named: "drafter=ngram", "drafter" (its default), "drafter.k"."""
    plain = [bare(word) for word in words]
    return "\n\n".join(_entry(word, plain) for word in plain)


def _group(group: str) -> str:
    default, choices = tree.defaults()[group], tree.groups()[group]
    width = max(16, *(len(choice.name) for choice in choices))
    lines = [f"{group}: {MEANINGS[group]}"]
    for choice in choices:
        mark = "*" if choice.name == default else " "
        lines.append(f"  {mark} {choice.name:<{width}} {choice.about}")
    return "\n".join([*lines, f"    e.g. {EXAMPLES[group]}"])


def _run_section() -> str:
    return "\n".join(["Knobs of the run itself", *(_knob(knob) for knob in run_knobs())])


def _entry(word: str, words: Sequence[str]) -> str:
    """A knob of several choices is shown as the one among the words, or the default, has it."""
    key, _, name = word.partition("=")
    if key in tree.groups():
        return _choice(key, name)
    knobs = [knob for knob in all_knobs() if f"{knob.key}.".startswith(f"{key}.")]
    if not key or not knobs:
        raise UserError(mistakes.unknown_key(*word.split("=", 1)))
    usual = [f"{group}={choice}" for group, choice in tree.defaults().items()]
    having = {knob.choice for knob in knobs}
    choice = next((c for c in (*words, *usual) if c in having), knobs[0].choice)
    return "\n".join([f"{choice or 'run'}:", *(_knob(k) for k in knobs if k.choice == choice)])


def _choice(group: str, name: str) -> str:
    if not name:
        name = tree.defaults()[group] or ""
    if not name:
        return _group(group)
    if name not in tree.options(group):
        raise UserError(mistakes.unknown_choice(group, name, tree.options(group)))
    choice = next(choice for choice in tree.groups()[group] if choice.name == name)
    if group in tree.OVERLAYS:
        return f"{group}={name}: {choice.about}\n\n{textwrap.indent(choice.text.strip(), '  ')}"
    knobs = [knob for knob in choice_knobs(group, name) if knob.key != f"{group}.name"]
    head = f"{group}={name}: {choice.about}"
    return "\n".join([head, *(_knob(knob) for knob in knobs)] if knobs else [head, "  no knobs"])


def _knob(knob: Knob) -> str:
    default = "(required)" if knob.default == "required" else f"= {knob.default}"
    head = f"  {knob.key} {default}  [{knob.type}]"
    text = textwrap.fill(knob.help, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return f"{head}\n{text}"
