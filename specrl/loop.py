"""The training loop: what one RL step does, and how a run goes from step to step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrl.algo.acceptance import spec_metrics
from specrl.algo.advantages import group_advantages
from specrl.checkpoint import CheckpointStore, RunState
from specrl.errors import ActorDied, EngineError, PublishError, RunError
from specrl.evaluate import EvaluationPlan, evaluate
from specrl.interruption import Interruption, interruption
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
    return {
        "version": float(state.step),
        **reward_metrics(rewards, plan.group_size),
        **rollout_metrics(rollouts),
        **spec_metrics(rollout.spec for rollout in rollouts),
        **{f"policy/{name}": value for name, value in policy.items()},
    }


def train(parts: Parts, plan: Plan, start: RunState) -> RunState:
    """Runs from `start` to the last step, an interruption or an error; saves in each case.

    A failure outside the learner saves the steps already done before it is raised.
    """
    state = start

    def announce(signal_name: str) -> None:
        parts.telemetry.note(f"{signal_name}: finishing the step in hand, then saving")

    with interruption(announce) as stop:
        try:
            for state in steps_from(start, parts, plan, stop):  # noqa: B007  # kept for saving
                pass
            if parts.checkpoints.saved_step != state.step:
                save(parts, state)
            log_final_evaluation(parts, plan, state)
        except (EngineError, PublishError, ActorDied) as failure:
            save_after_failure(parts, state, failure)
            raise
    return state


def steps_from(state: RunState, parts: Parts, plan: Plan, stop: Interruption) -> Iterator[RunState]:
    """Takes steps until the last one or until asked to stop; yields the state after each.

    Saves every n steps; what follows the last of these is left to the caller.
    """
    while state.step < plan.steps and not stop.requested:
        evaluation = evaluate_if_due(parts, plan, state)
        metrics = train_step(parts, plan, state)
        parts.telemetry.log(state.step, {**metrics, **evaluation})
        state = replace(state, step=state.step + 1, cursor=state.cursor + plan.prompts_per_step)
        if plan.checkpoint_due(state.step):
            save(parts, state)
        yield state


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
    folder = parts.checkpoints.save(state, parts.learner.save)
    parts.telemetry.note(f"step {state.step}: checkpoint saved in {folder}")


def save_after_failure(parts: Parts, state: RunState, failure: RunError) -> None:
    """Keeps the steps already done, when the learner is still there to save them."""
    try:
        save(parts, state)
    except RunError as error:
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
    """`rollout/*`: response lengths in tokens and the share cut off at the limit."""
    lengths = np.asarray([len(rollout.token_ids) for rollout in rollouts])
    return {
        "rollout/tokens": float(lengths.sum()),
        "rollout/length_mean": float(lengths.mean()),
        "rollout/length_max": float(lengths.max()),
        "rollout/truncated_share": float(np.mean([r.finish_reason == "length" for r in rollouts])),
    }
