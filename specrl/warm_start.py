"""A supervised pass on worked solutions, and what the model is worth before and after it."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np

from specrl.checkpoint import CheckpointStore, RunState
from specrl.protocols import Learner, OnProgress, RolloutEngine, Task
from specrl.types import Sampling, TrainSample

RECORD_FILE = "warm_start.json"
SAVE_EVERY_S = 90.0
TELL_EVERY_S = 15.0


@dataclass(frozen=True)
class Example:
    """A prompt and the response that is taught, its end token included."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    def sample(self) -> TrainSample:
        """For `Learner.step`, whose gradient it makes that of the negative log-likelihood.

        With advantage 1 and the ratio to the policy itself the policy gradient is just that; no
        clip can bind at ratio 1. With 0 as the engine's log-probs the update's
        `logprob_diff_mean` is the negative log-likelihood, and `truncated_is` must be off.
        """
        return TrainSample(
            prompt_ids=self.prompt_ids,
            response_ids=self.response_ids,
            advantage=1.0,
            rollout_logprobs=np.zeros(len(self.response_ids), np.float32),
            policy_logprobs=None,
        )


@dataclass(frozen=True)
class Worth:
    """What a model does with held-out questions, sampled.

    `accuracy` is pass@1 with `stderr` between questions; `entropy` in nats per token, estimated
    from the log-probs of what was sampled; `length` in tokens; `cut` the share at the limit.
    """

    accuracy: float
    stderr: float
    entropy: float
    length: float
    cut: float


@dataclass(frozen=True)
class WarmStartRecord:
    """What a warm start cost and gave; `nll` is the mean over the last tenth of the steps."""

    examples: int
    steps: int
    tokens: int
    training_s: float
    nll: float
    before: Worth
    after: Worth


@dataclass(frozen=True)
class Fitted:
    """The end of `fit`: seconds over all its attempts, and the last losses."""

    steps: int
    tokens: int
    seconds: float
    nll: float


def batches(
    examples: Sequence[Example], passes: int, batch_examples: int, seed: int
) -> list[list[Example]]:
    """The optimizer steps of all passes, each pass in an order of its own."""
    steps = []
    for number in range(passes):
        order = list(range(len(examples)))
        Random(f"{seed}/warm start/{number}").shuffle(order)
        for start in range(0, len(order), batch_examples):
            steps.append([examples[i] for i in order[start : start + batch_examples]])
    return steps


class Fit:
    """The optimizer steps in `steps`, kept in `work` now and then so that a killed build goes on.

    `stop` asks it to save and raise KeyboardInterrupt.
    """

    def __init__(
        self,
        learner: Learner,
        steps: Sequence[Sequence[Example]],
        work: Path,
        note: Callable[[str], None],
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._learner = learner
        self._steps = steps
        self._store = CheckpointStore(work / "checkpoints", keep=1, warn=note)
        self._note = note
        self._stop = stop
        self._clock = clock

    def run(self) -> Fitted:
        """Trains from the newest checkpoint, or from the first step, to the last."""
        done, history = self._resumed()
        saved = told = self._clock()
        while done < len(self._steps):
            if self._stop():
                self._save(done, history)
                raise KeyboardInterrupt
            history.append(self._step(self._steps[done]))
            done += 1
            now = self._clock()
            if now - told >= TELL_EVERY_S or done == len(self._steps):
                self._tell(done, history)
                told = now
            if now - saved >= SAVE_EVERY_S or done == len(self._steps):
                self._save(done, history)
                saved = self._clock()
        tail = history[-max(1, len(history) // 10) :]
        return Fitted(
            steps=done,
            tokens=sum(len(e.prompt_ids) + len(e.response_ids) for s in self._steps for e in s),
            seconds=sum(seconds for seconds, _ in history),
            nll=float(np.mean([nll for _, nll in tail])),
        )

    def _step(self, examples: Sequence[Example]) -> tuple[float, float]:
        started = self._clock()
        metrics = self._learner.step([example.sample() for example in examples])
        return self._clock() - started, float(metrics.get("logprob_diff_mean", math.nan))

    def _resumed(self) -> tuple[int, list[tuple[float, float]]]:
        found = self._store.newest_or_afresh()
        if found is None:
            return 0, []
        state, folder = found
        self._learner.load(folder)
        self._note(f"warm start: going on at step {state.step} of {len(self._steps)}")
        history = [tuple(pair) for pair in json.loads((folder / "history.json").read_text())]
        return state.step, history

    def _save(self, done: int, history: Sequence[tuple[float, float]]) -> None:
        def write(folder: Path) -> None:
            self._learner.save(folder)
            (folder / "history.json").write_text(json.dumps(history))

        self._store.save(RunState(step=done), write)

    def _tell(self, done: int, history: Sequence[tuple[float, float]]) -> None:
        recent = history[-20:]
        left_s = (len(self._steps) - done) * float(np.mean([seconds for seconds, _ in recent]))
        self._note(
            f"warm start: step {done} of {len(self._steps)}, {recent[-1][1]:.3f} nats/token, "
            f"about {left_s:.0f} s left"
        )


def measure(
    task: Task,
    engine: RolloutEngine,
    num_prompts: int,
    samples: int,
    sampling: Sampling,
    on_progress: OnProgress,
) -> Worth:
    """The live weights on held-out questions."""
    prompts = task.validation(num_prompts)
    rollouts = engine.generate(prompts, samples, sampling, on_progress)
    scores = np.asarray(task.rewards(rollouts)).reshape(len(prompts), samples).mean(axis=1)
    spread = scores.std(ddof=1) if len(prompts) > 1 else math.nan
    logprobs = np.concatenate([rollout.rollout_logprobs for rollout in rollouts])
    return Worth(
        accuracy=float(scores.mean()),
        stderr=float(spread / math.sqrt(len(prompts))),
        entropy=float(-logprobs.mean()),
        length=float(np.mean([len(rollout.token_ids) for rollout in rollouts])),
        cut=float(np.mean([rollout.finish_reason == "length" for rollout in rollouts])),
    )


def write_record(folder: Path, record: WarmStartRecord) -> None:
    """Into the model's folder."""
    (folder / RECORD_FILE).write_text(json.dumps(asdict(record), indent=1))


def read_record(folder: Path) -> WarmStartRecord | None:
    """Of a model folder; None for a model without a warm start."""
    path = folder / RECORD_FILE
    if not path.is_file():
        return None
    values = json.loads(path.read_text())
    before, after = (Worth(**values.pop(key)) for key in ("before", "after"))
    return WarmStartRecord(**values, before=before, after=after)


def told(folder: Path, record: WarmStartRecord) -> str:
    """What the model is and does, in one line."""
    before, after = record.before, record.after
    return (
        f"warm-started model {folder}: {record.examples} solutions in {record.training_s:.0f} s; "
        f"accuracy {before.accuracy:.2f} -> {after.accuracy:.2f} (+- {after.stderr:.2f}), entropy "
        f"{before.entropy:.2f} -> {after.entropy:.2f} nats/token, "
        f"{after.length:.0f} tokens a response"
    )
