"""The training loop: what one RL step does, and how a run goes from step to step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrl.algo.acceptance import spec_metrics
from specrl.algo.acceptance_views import acceptance_views
from specrl.algo.advantages import group_advantages
from specrl.algo.rollout_latency import latency_metrics
from specrl.checkpoint import CheckpointStore, RunState
from specrl.errors import NonFiniteError, RunError
from specrl.evaluate import EvaluationPlan, evaluate
from specrl.interruption import interruption
from specrl.protocols import Learner, RolloutEngine, Task, Telemetry, WeightSync
from specrl.types import Metrics, Rollout, Sampling, TokenLogprobs, TrainSample


@dataclass(frozen=True)
class Plan:
    """The numbers the loop needs."""

    steps: int
    prompts_per_step: int
    group_size: int
    sampling: Sampling
    advantage: str
    evaluation: EvaluationPlan
    checkpoint_every: int

    def checkpoint_due(self, step: int) -> bool:
        """True every n steps; the end of a run saves besides."""
        return self.checkpoint_every > 0 and step % self.checkpoint_every == 0


@dataclass(frozen=True)
class Parts:
    """The nouns the loop drives."""

    task: Task
    engine: RolloutEngine
    learner: Learner
    weight_sync: WeightSync
    telemetry: Telemetry
    checkpoints: CheckpointStore


def train_step(parts: Parts, plan: Plan, state: RunState) -> Metrics:
    """One RL step; every `span` is a row of Table 1."""
    span = parts.telemetry.span
    with span("data"):
        prompts = parts.task.train(state.cursor, plan.prompts_per_step)
    with span("prepare"):
        parts.weight_sync.publish(version=state.step)
    with span("generation"):
        progress = parts.telemetry.progress("rollout")
        sampling = seeded(plan.sampling, state.step)
        rollouts = parts.engine.generate(prompts, plan.group_size, sampling, progress)
    with span("data"), span("reward"):
        rewards = parts.task.rewards(rollouts)
        groups = [rollout.group for rollout in rollouts]
        advantages = group_advantages(rewards, groups, plan.advantage)
    with span("logprob"):
        logprobs = parts.learner.logprobs(rollouts)
    with span("training"):
        policy = parts.learner.step(train_samples(rollouts, advantages, logprobs))
        with span("draft"):
            draft = parts.learner.step_draft()
    return {
        "version": float(state.step),
        **reward_metrics(rewards, plan.group_size),
        **rollout_metrics(rollouts),
        **spec_metrics(rollout.spec for rollout in rollouts),
        **acceptance_views(rollouts, [verified.entropy for verified in logprobs]),
        **parts.engine.metrics(),
        **{f"policy/{name}": value for name, value in policy.items()},
        **{f"draft/{name}": value for name, value in draft.items()},
    }


@dataclass
class Position:
    """Where a run stands; it moves as soon as the weights do."""

    state: RunState


def train(parts: Parts, plan: Plan, start: RunState) -> RunState:
    """Runs from `start` to the last step, an interruption or an error; saves in each case.

    Whatever fails, the steps already done are saved before it is raised, as far as the learner is
    still there; after NaN or inf the last checkpoint stays the newest.
    """
    position = Position(start)
    with interruption() as stop:
        try:
            while position.state.step < plan.steps and not stop.requested:
                advance(position, parts, plan)
            save_unless_saved(parts, position.state)
            log_final_evaluation(parts, plan, position.state)
        except NonFiniteError:
            raise
        except Exception as failure:
            save_after_failure(parts, position.state, failure)
            raise
    return position.state


def advance(position: Position, parts: Parts, plan: Plan) -> None:
    """One more step, evaluated before and saved after it where that is due."""
    before = position.state
    evaluation = evaluate_if_due(parts, plan, before)
    metrics = train_step(parts, plan, before)
    position.state = replace(
        before, step=before.step + 1, cursor=before.cursor + plan.prompts_per_step
    )
    parts.telemetry.log(before.step, {**metrics, **evaluation})
    if plan.checkpoint_due(position.state.step):
        save(parts, position.state)


def evaluate_if_due(parts: Parts, plan: Plan, state: RunState) -> Metrics:
    """`eval/*` of the policy after `state.step` updates; empty when no evaluation is due."""
    if not plan.evaluation.due(state.step, plan.steps):
        return {}
    with parts.telemetry.span("evaluation"):
        parts.weight_sync.publish(version=state.step)
        sampling = seeded(plan.sampling, state.step)
        return evaluate(parts.task, parts.engine, parts.telemetry, sampling, plan.evaluation)


def log_final_evaluation(parts: Parts, plan: Plan, state: RunState) -> None:
    """The evaluation after the last update, which no training step follows."""
    if state.step < plan.steps:
        return
    if metrics := evaluate_if_due(parts, plan, state):
        parts.telemetry.log(state.step, {"version": float(state.step), **metrics})


def save(parts: Parts, state: RunState) -> None:
    """Writes a checkpoint of `state`."""
    state = replace(state, run_id=parts.telemetry.run_id or state.run_id)
    with parts.telemetry.span("checkpoint"):
        folder = parts.checkpoints.save(state, parts.learner.save)
    parts.telemetry.note(f"step {state.step}: checkpoint saved in {folder}")


def save_unless_saved(parts: Parts, state: RunState) -> None:
    """Writes a checkpoint of `state` unless the newest is one."""
    if parts.checkpoints.saved_step != state.step:
        save(parts, state)


def save_after_failure(parts: Parts, state: RunState, failure: Exception) -> None:
    """Keeps the steps already done, when the learner is still there to save them."""
    try:
        save_unless_saved(parts, state)
    except (RunError, OSError) as error:
        parts.telemetry.note(f"after «{failure}» the learner could not be saved either: {error}")


def seeded(sampling: Sampling, step: int) -> Sampling:
    """The step's own sampler seed, so that a resumed step draws what it would have drawn."""
    if sampling.seed is None:
        return sampling
    return replace(
        sampling, seed=int(np.random.SeedSequence([sampling.seed, step]).generate_state(1)[0])
    )


def train_samples(
    rollouts: Sequence[Rollout], advantages: Sequence[float], logprobs: Sequence[TokenLogprobs]
) -> list[TrainSample]:
    """The learner's view of scored rollouts."""
    return [
        TrainSample(
            prompt_ids=rollout.prompt.token_ids,
            response_ids=rollout.token_ids,
            advantage=advantage,
            rollout_logprobs=rollout.rollout_logprobs,
            policy_logprobs=verified.policy,
            reference_logprobs=verified.reference,
        )
        for rollout, advantage, verified in zip(rollouts, advantages, logprobs, strict=True)
    ]


def reward_metrics(rewards: Sequence[float], group_size: int) -> Metrics:
    """`reward/*`; `reward/flat_groups` is the share of groups without a gradient."""
    groups = np.asarray(rewards).reshape(-1, group_size)
    return {
        "reward/mean": float(groups.mean()),
        "reward/std": float(groups.std()),
        "reward/flat_groups": float((groups.std(axis=1) == 0).mean()),
    }


def rollout_metrics(rollouts: Sequence[Rollout]) -> Metrics:
    """`rollout/*`: response lengths in tokens, the share cut off at the limit, response times."""
    lengths = np.asarray([len(rollout.token_ids) for rollout in rollouts])
    return {
        "rollout/tokens": float(lengths.sum()),
        "rollout/length_mean": float(lengths.mean()),
        "rollout/length_max": float(lengths.max()),
        "rollout/truncated_share": float(np.mean([r.finish_reason == "length" for r in rollouts])),
        **latency_metrics(rollouts),
    }
