"""drafter.k=auto on a simulated engine: never slower than decoding, gains where it can."""

import pytest
from simulated_engine import Cost, SimulatedEngine

from specrl.algo.draft_length import StepCosts
from specrl.rollout.auto_length import AutoLengthEngine
from specrl.types import Prompt, Sampling

BATCHES = (1, 2, 4, 8, 16, 32)
PROMPTS = [Prompt(f"p{n}", "", (1, 2), {}) for n in range(8)]


def laptop(k: int, batch: int) -> float:
    """Seconds of a step, after figures of two cores: c(3) grows from 1.4 to 2.5 with the batch."""
    plain = 0.036 + 0.0016 * batch
    return plain * (1 + k * (0.13 + 0.012 * batch))


def table(cost: Cost) -> StepCosts:
    lengths = (0, 1, 2, 3, 5, 7)
    return StepCosts(
        BATCHES,
        lengths,
        tuple((1.04 * cost(0, b), *(cost(k, b) for k in lengths[1:])) for b in BATCHES),
        plain=tuple(cost(0, b) for b in BATCHES),
    )


def auto(
    inner: SimulatedEngine, costs: StepCosts | None = None, **arguments: object
) -> tuple[AutoLengthEngine, list[str]]:
    notes: list[str] = []
    clock = lambda: inner.now_s  # noqa: E731  one expression, named for the argument
    costs = costs or table(inner.cost_s)
    engine = AutoLengthEngine(inner, costs, 7, notes.append, clock=clock, **arguments)  # type: ignore[arg-type]  # promised only
    return engine, notes


def speed(
    engine: AutoLengthEngine | SimulatedEngine, samples: int, calls: int, tokens: int
) -> float:
    """Tokens per second of whole calls, whatever they did besides."""
    inner = engine if isinstance(engine, SimulatedEngine) else engine._engine
    assert isinstance(inner, SimulatedEngine)
    began, made = inner.now_s, 0
    for _ in range(calls):
        prompts = PROMPTS[: max(1, samples // 4)]
        rollouts = engine.generate(prompts, samples // len(prompts), Sampling(max_tokens=tokens))
        made += sum(len(r.token_ids) for r in rollouts)
    return made / (inner.now_s - began)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.6, 0.85])
@pytest.mark.parametrize("samples", [1, 4, 8, 16, 32])
def test_it_is_as_fast_as_decoding_and_as_the_best_fixed_length(samples: int, rate: float) -> None:
    def fixed(k: int) -> float:
        engine = SimulatedEngine(laptop, rate=rate, schedule=((1, k),))
        return speed(engine, samples, calls=12, tokens=200)

    engine, _ = auto(SimulatedEngine(laptop, rate=rate))
    speed(engine, samples, calls=4, tokens=200)  # the first probe, and what it finds out
    ours = speed(engine, samples, calls=12, tokens=200)
    assert ours >= 0.98 * fixed(0)
    assert ours >= 0.95 * max(fixed(k) for k in (1, 3, 5, 7))


def test_the_long_tail_is_drafted_where_the_full_batch_is_not() -> None:
    def steep(k: int, batch: int) -> float:
        return laptop(k, batch) + 0.0012 * k * batch

    engine, notes = auto(SimulatedEngine(steep, rate=0.7, tail=6.0))
    decoding = SimulatedEngine(steep, rate=0.7, tail=6.0)
    assert speed(engine, 32, calls=8, tokens=400) > 1.05 * speed(decoding, 32, 8, 400)
    metrics = engine.metrics()
    assert metrics["spec/schedule/0001"] >= 2
    assert metrics["spec/schedule/0032"] == 0
    assert metrics["spec/predicted_speedup/0001"] > 1.2
    assert 0.95 < metrics["spec/predicted_speedup/0032"] < 1.0
    assert metrics["spec/predicted_speedup/call"] > 1.05
    assert "k=0 up to 32 running" in notes[-1]


def test_a_promise_of_the_init_spares_the_first_probe() -> None:
    inner = SimulatedEngine(laptop, rate=0.6)
    engine, _ = auto(inner, promised=(0.6, 0.36, 0.2))
    engine.generate(PROMPTS, 1, Sampling(max_tokens=50))
    assert [count for count, _ in inner.calls] == [8]
    assert inner.schedules[0][0][1] > 0


def test_a_promise_that_was_wrong_is_corrected_by_what_happens() -> None:
    inner = SimulatedEngine(laptop, rate=0.02)
    engine, _ = auto(inner, promised=(0.8, 0.6, 0.5))
    for _ in range(4):
        engine.generate(PROMPTS, 1, Sampling(max_tokens=100))
    assert all(k == 0 for _, k in inner.schedule)


def test_a_draft_that_recovers_is_found_again() -> None:
    inner = SimulatedEngine(laptop, rate=0.02)
    engine, notes = auto(inner)
    speed(engine, 8, calls=3, tokens=200)
    assert all(k == 0 for _, k in inner.schedule)
    inner.rate = 0.8
    speed(engine, 8, calls=120, tokens=200)
    assert inner.schedule[0][1] >= 3
    assert len(notes) <= 12


def test_probes_after_the_first_take_little_of_the_time() -> None:
    inner = SimulatedEngine(laptop, rate=0.02)
    engine, _ = auto(inner)
    speed(engine, 8, calls=1, tokens=200)
    began, probed = inner.now_s, engine.metrics()["spec/probe_s"]
    speed(engine, 8, calls=60, tokens=200)
    spent = engine.metrics()["spec/probe_s"] - probed
    assert 0 < spent <= 0.02 * (inner.now_s - began)


def test_prompt_lookup_that_rarely_finds_something_is_not_overrated() -> None:
    inner = SimulatedEngine(laptop, rate=0.9, proposed=0.05)
    engine, _ = auto(inner)
    speed(engine, 8, calls=6, tokens=200)
    assert all(k == 0 for _, k in inner.schedule)


def test_a_schedule_from_outside_stays() -> None:
    inner = SimulatedEngine(laptop)
    engine, _ = auto(inner)
    engine.generate(PROMPTS, 1, Sampling(max_tokens=50))
    engine.set_draft_lengths(((1, 0),))
    engine.generate(PROMPTS, 1, Sampling(max_tokens=50))
    assert inner.schedule == ((1, 0),)
    assert engine.metrics()["spec/schedule/0001"] == 0.0


def test_beyond_the_measured_batches_nothing_is_drafted() -> None:
    cheap = StepCosts((1, 2), (0, 7), ((1.0, 1.01), (1.0, 1.01)), (1.0, 1.0))
    inner = SimulatedEngine(laptop, rate=0.9)
    engine, _ = auto(inner, costs=cheap)
    engine.generate(PROMPTS, 1, Sampling(max_tokens=50))
    assert len(inner.schedule) == 2
    assert inner.schedule[0][0] == 2
    assert inner.schedule[0][1] > 0
    assert inner.schedule[1] == (3, 0)


def test_an_unchanged_schedule_is_not_repeated_to_the_reader() -> None:
    engine, notes = auto(SimulatedEngine(laptop, rate=0.6))
    speed(engine, 16, calls=10, tokens=200)
    assert len([note for note in notes if " responses: k=" in note]) <= 4
