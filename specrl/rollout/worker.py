"""The engine in its actor process: an in-process vLLM, stepped by hand."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specrl.algo.draft_length import Schedule
from specrl.errors import EngineError, PublishError, RunError
from specrl.rollout.aux_layers_check import check_aux_layers
from specrl.rollout.draft_lengths import check_schedule, lookup
from specrl.rollout.exactness import BLOCK, check_exact
from specrl.rollout.in_flight import InFlight
from specrl.rollout.limits import room_tokens
from specrl.rollout.records import Advance, FinishedSample, SampleRequest
from specrl.rollout.settings import EngineSettings
from specrl.rollout.snapshot_file import expected_tensors
from specrl.rollout.staged_file import StagedFile
from specrl.rollout.start import start_vllm
from specrl.rollout.step_costs import PROMPT_TOKENS, StepTiming, time_steps
from specrl.types import Sampling, WeightSnapshot

LEARNED_METHODS = ("eagle3",)
"""Drafts that a snapshot brings along."""

WARM_UP_TOKENS = 8

NO_VERSION = -1
"""Of requests whose responses nobody sees."""


@dataclass
class _Tally:
    tokens: int = 0
    num_drafts: int = 0
    num_accepted_tokens: int = 0


class EngineWorker:
    """One engine replica. The weights of `settings.model` are no version: publish first."""

    def __init__(self, settings: EngineSettings) -> None:
        """Starts vLLM. Raises `UserError` for a mode not known to be exact, else `EngineError`."""
        check_exact(settings.speculative_config)
        self._settings = settings
        self._speculation = dict(settings.speculative_config or {})
        self._expected = expected_tensors(Path(settings.model), settings.dtype)
        self._expected_draft = None
        if self._speculation.get("method") in LEARNED_METHODS:
            draft_folder = Path(self._speculation["model"])
            self._expected_draft = expected_tensors(draft_folder, settings.dtype)
        self._llm = start_vllm(settings)
        self._engine = self._llm.llm_engine
        self._tokenizer = None
        if not settings.engine_args.get("skip_tokenizer_init"):
            self._tokenizer = self._llm.get_tokenizer()
        self._running: dict[str, InFlight] = {}
        self._num_requests = 0
        self._num_calls = 0
        self._tally = _Tally()
        self._live: WeightSnapshot | None = None
        self._staged: WeightSnapshot | None = None
        self._broken: str | None = None
        self._resting = False
        self._refuse_wrong_sampling()
        self._check_draft()
        self._warm_up()

    def version(self) -> int | None:
        """Version of the live weights; None where the engine refuses to generate."""
        return None if self._live is None or self._broken is not None else self._live.version

    def add(self, requests: Sequence[SampleRequest], sampling: Sampling) -> None:
        """Queues one response per request.

        Raises `EngineError` when no version is live or a prompt is too long, with nothing queued,
        and when vLLM fails: `abort` then drops what it took.
        """
        if self._broken is not None:
            raise EngineError(self._broken)
        if self._live is None:
            raise EngineError("no weights are live; publish a version before generating")
        self._refuse_changed_draft(self._live.version)
        if sampling.seed is not None:
            restart_sampler(sampling.seed + self._settings.seed)
        self._enqueue(requests, sampling, self._live.version)

    def advance(self, budget_s: float = 0.5) -> Advance:
        """Steps the engine for about `budget_s` seconds, or until nothing is left to do.

        Raises `EngineError` when vLLM fails.
        """
        deadline = time.monotonic() + budget_s
        self._tally = _Tally()
        finished: list[FinishedSample] = []
        while self._running:
            with _vllm_failures("a step"):
                outputs = self._engine.step()
            for output in outputs:
                finished += self._receive(output)
            if time.monotonic() >= deadline:
                break
        return Advance(
            finished=tuple(finished),
            unfinished=len(self._running),
            tokens=self._tally.tokens,
            num_drafts=self._tally.num_drafts,
            num_accepted_tokens=self._tally.num_accepted_tokens,
        )

    def abort(self) -> None:
        """Drops every queued and running request; the engine stays usable."""
        ids = [flight.engine_id for flight in self._running.values()]
        self._running.clear()
        with _vllm_failures("an abort"):
            self._engine.abort_request(ids, internal=True)

    def stage_weights(self, snapshot: WeightSnapshot) -> None:
        """Verifies the snapshot's files without touching what is live. Raises `PublishError`."""
        self._staged = None
        policy = StagedFile(str(snapshot.path), dict(snapshot.checksums), self._expected)
        arguments = (policy, self._draft_file(snapshot))
        _raise_first(self._llm.collective_rpc("specrl_stage", args=arguments))
        self._staged = snapshot

    def load_weights(self, snapshot: WeightSnapshot) -> int:
        """Makes the snapshot live and returns its version.

        Raises `PublishError` with the old version live; where that could not be put back, the
        engine refuses to generate. The old snapshot's file must stay until the next publish
        succeeded: it restores the engine when a load breaks off.
        """
        if self._running:
            raise PublishError(f"{len(self._running)} requests are running; finish or abort them")
        if self._staged != snapshot:
            self.stage_weights(snapshot)
        try:
            self._load_staged(snapshot)
        except Exception as error:  # whatever broke it off, the model is half new
            self._restore()
            raise PublishError(f"version {snapshot.version} broke off: {_named(error)}") from error
        return snapshot.version

    def set_draft_lengths(self, schedule: Schedule) -> None:
        """Draft length by running requests, for what is drafted from now on; 0 drafts nothing.

        See `specrl.protocols.RolloutEngine`. Raises `EngineError` for a schedule out of order or a
        k above the engine's own. With 0 throughout, set while nothing runs, the drafter does not
        even follow the policy, and it is woken only while nothing runs.
        """
        check_schedule(schedule, int(self._speculation.get("num_speculative_tokens", 0)))
        if not self._speculation:
            return
        resting = all(k == 0 for _, k in schedule)
        if self._resting and not resting and self._running:
            raise EngineError(f"{len(self._running)} requests run undrafted; finish or abort them")
        if resting != self._resting and not self._running:
            self._llm.collective_rpc("specrl_rest_draft", args=(resting,))
            self._resting = resting
            # Blocks filled while the drafter rested lack its own keys and values.
            self._reset_prefix_cache()
        scheduler = self._scheduler()
        scheduler.dynamic_sd_lookup = lookup(schedule, scheduler.max_num_running_reqs)

    def step_seconds(self, batch: int, schedule: Schedule, top_p: float) -> StepTiming:
        """What a step costs under `schedule`; see `step_costs`. No version need be live."""
        batch = min(batch, self._scheduler().max_num_running_reqs)
        prompt_tokens = min(PROMPT_TOKENS, self._settings.max_model_len // 2)
        enqueue = partial(self._enqueue, version=NO_VERSION)
        try:
            return time_steps(self, enqueue, batch, schedule, prompt_tokens, top_p)
        finally:
            self.abort()

    def forget_version(self) -> None:
        """Refuses to generate until the next `load_weights`."""
        self._live = None

    def close(self) -> None:
        """Ends the engine; the worker cannot be used again. Safe to call twice."""
        self._running.clear()
        self._broken = "the engine is closed"
        with _vllm_failures("closing"):
            self._engine.engine_core.shutdown()

    def _refuse_wrong_sampling(self) -> None:
        if self._settings.speculative_config is None:
            return
        for problem in self._llm.collective_rpc("specrl_sampling_problem"):
            if problem is not None:
                raise EngineError(f"speculation would not be exact: {problem}; use drafter=none")

    def _check_draft(self) -> None:
        """Also sets what vLLM cannot be told at its start."""
        if self._speculation.get("rejection_sample_method") == BLOCK:
            for problem in self._llm.collective_rpc("specrl_verify_by_block"):
                if problem is not None:
                    raise EngineError(f"{problem}; use drafter.verification=standard")
        if self._expected_draft is not None:
            for layers in self._llm.collective_rpc("specrl_aux_layers"):
                check_aux_layers(Path(self._speculation["model"]), layers)

    def _draft_file(self, snapshot: WeightSnapshot) -> StagedFile | None:
        if (snapshot.draft is None) != (self._expected_draft is None):
            brings, drafts = (
                ("no draft", "with") if snapshot.draft is None else ("a draft", "without")
            )
            raise PublishError(
                f"version {snapshot.version} brings {brings}, but the engine was started {drafts} "
                "a learned one; policy and draft are published together"
            )
        if snapshot.draft is None or self._expected_draft is None:
            return None
        draft = snapshot.draft
        return StagedFile(str(draft.path), dict(draft.checksums), self._expected_draft)

    def _refuse_changed_draft(self, version: int) -> None:
        if self._expected_draft is None:
            return
        for changed in self._llm.collective_rpc("specrl_draft_intact"):
            if changed is not None:
                raise EngineError(
                    f"the live draft's {changed} is no longer that of version {version}; "
                    "publish again"
                )

    def _warm_up(self) -> None:
        """Runs every path once: vLLM compiles the n-gram proposer at its first real call (3 s)."""
        length = min(WARM_UP_TOKENS, self._settings.max_model_len - 1)
        request = SampleRequest(key=0, prompt_id="warm-up", prompt_token_ids=(0,) * length)
        sampling = Sampling(max_tokens=WARM_UP_TOKENS, ignore_eos=True)
        self._enqueue([request] * 2, sampling, NO_VERSION)
        self.advance(float("inf"))
        self._reset_prefix_cache()

    def _enqueue(self, requests: Sequence[SampleRequest], sampling: Sampling, version: int) -> None:
        self._num_calls += 1
        # What a call generates must not depend on what others, probes among them, left cached.
        salt = str(self._num_calls)
        limit = self._settings.max_model_len
        rooms = [room_tokens(r.prompt_id, len(r.prompt_token_ids), limit) for r in requests]
        for request, room in zip(requests, rooms, strict=True):
            name = str(self._num_requests)
            self._num_requests += 1
            prompt = {"prompt_token_ids": list(request.prompt_token_ids), "cache_salt": salt}
            params = sampling_params(sampling, min(sampling.max_tokens, room))
            with _vllm_failures("a request"):
                engine_id = self._engine.add_request(name, prompt, params)
                metrics = self._scheduled(engine_id).spec_decode_metrics
            self._running[name] = InFlight(
                request, engine_id, version, metrics, decoded=params.detokenize
            )

    def _scheduler(self) -> Any:
        return self._engine.engine_core.engine_core.scheduler

    def _scheduled(self, engine_id: str) -> Any:
        return self._scheduler().requests[engine_id]

    def _receive(self, output: Any) -> Iterable[FinishedSample]:
        flight = self._running.get(output.request_id)
        if flight is None:
            return
        completion = output.outputs[0]
        tokens, drafts, accepted = flight.receive(completion)
        self._tally.tokens += tokens
        self._tally.num_drafts += drafts
        self._tally.num_accepted_tokens += accepted
        if not output.finished:
            return
        del self._running[output.request_id]
        if completion.finish_reason not in {"stop", "length"}:
            raise EngineError(f"a request ended with {completion.finish_reason!r}")
        yield flight.finish(completion.finish_reason, self._tokenizer)

    def _load_staged(self, snapshot: WeightSnapshot) -> None:
        """Until it is through, nothing is generated."""
        self._broken = f"version {snapshot.version} broke off while it was loaded; publish again"
        self._staged = None
        _raise_first(self._llm.collective_rpc("specrl_load_staged"))
        self._reset_prefix_cache()
        self._live = snapshot
        self._broken = None

    def _restore(self) -> None:
        """Puts the live version back after a load broke off, or refuses to generate from now on."""
        if self._live is None:
            return
        try:
            self.stage_weights(self._live)
            self._load_staged(self._live)
        except Exception as error:  # then nothing may be generated, whatever the reason
            self._broken = (
                f"a publish broke off and version {self._live.version} could not be put back "
                f"({_named(error)}); publish again"
            )

    def _reset_prefix_cache(self) -> None:
        """Cached keys and values are those of the weights that computed them."""
        if not self._engine.reset_prefix_cache():
            raise PublishError("vLLM did not reset its prefix cache; requests are still running")


def restart_sampler(seed: int) -> None:
    """The same requests after it draw the same responses.

    vLLM's own per-request seeds do not hold with probabilistic drafting and cost a generator each.
    """
    import torch

    torch.manual_seed(seed % 2**63)


def sampling_params(sampling: Sampling, max_tokens: int) -> Any:
    """vLLM's parameters of one response, its output handed out step by step."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=max_tokens,
        stop_token_ids=list(sampling.stop_token_ids) or None,
        stop=list(sampling.stop) or None,
        ignore_eos=sampling.ignore_eos,
        logprobs=0,
        # Only stop strings need text during generation; the rest is decoded once, at the end.
        detokenize=bool(sampling.stop),
        output_kind=RequestOutputKind.DELTA,
    )


@contextmanager
def _vllm_failures(doing: str) -> Iterator[None]:
    """vLLM's own exceptions become `EngineError`, which the loop survives by saving its steps."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise EngineError(f"vLLM failed in {doing}: {_named(error)}") from error


def _named(error: Exception) -> str:
    return str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def _raise_first(problems: Iterable[str | None]) -> None:
    for problem in problems:
        if problem is not None:
            raise PublishError(problem)
