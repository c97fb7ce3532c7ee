"""Frozen records of the analysis: runs, arms, checks, tables, and the report that holds all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from analysis.paper import Paper

Source = Literal["ours", "paper"]
Basis = Literal["measured", "estimated", "paper"]
Verdict = Literal["differ", "indistinguishable", "cannot tell"]
CellKind = Literal["label", "ours", "paper", "missing", "refused", "empty"]


@dataclass(frozen=True)
class Interval:
    """A number and its 95 % confidence interval.

    `low` and `high` are None where there is none: a printed number, or too few steps. `steps` is
    how many RL steps it rests on, 0 for a printed number.
    """

    value: float
    low: float | None = None
    high: float | None = None
    steps: int = 0


@dataclass(frozen=True, eq=False)
class Run:
    """One run as its folder or MLflow tells it.

    `source` is its folder, or tracking URI and MLflow run id. `config` is flat
    ("rollout.max_tokens" -> "160"), as MLflow keeps it. `steps` has one row per finished RL step
    (index `step`, a column per metric of `columns.CORE`, NaN where a step lacks one);
    `evaluations` one per validation (index: policy updates before it, columns eval/*). `status` is
    "finished", "failed: ...", "interrupted" or None (still going, or killed). `created_s` is Unix
    time. `machine` is "" where the run does not say. `notes` say what of it could not be read.
    """

    name: str
    source: str
    key: str
    config: Mapping[str, str]
    steps: pd.DataFrame
    evaluations: pd.DataFrame
    status: str | None
    created_s: float
    git_commit: str | None = None
    machine: str = ""
    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def experiment(self) -> str:
        return self.config.get("name", "")

    @property
    def drafter(self) -> str:
        return self.config.get("drafter.name", "")

    @property
    def seed(self) -> str:
        return self.config.get("seed", "")


@dataclass(frozen=True)
class Problem:
    """Something a reader must know about a run: `left_out` runs enter no number."""

    run: str
    text: str
    left_out: bool


@dataclass(frozen=True, order=True)
class ArmKey:
    """What tells the arms of a family apart. k is None without a drafter, "auto" as a string.

    `variant` names the other draft settings where two arms would else be the same.
    """

    drafter: str
    k: str | None = None
    init: str | None = None
    adaptation: str | None = None
    max_lag: int = 0
    variant: str = ""

    @property
    def label(self) -> str:
        if self.drafter == "none":
            words = ["autoregressive"]
        else:
            words = [self.drafter, f"k={self.k}"]
            words += [word for word in (self.init, self.adaptation) if word]
        words += [f"lag {self.max_lag}"] if self.max_lag else []
        return " ".join([*words, *([self.variant] if self.variant else [])])


@dataclass(frozen=True, eq=False)
class Arm:
    """The runs of one configuration, one per seed, and their means over the counted steps.

    `stage_s` has the five stages of Table 1, "overhead", "draft" (part of training) and "step", in
    seconds per RL step. `tokens` is per step. Acceptance counts the bonus token (1..k+1) and is
    weighted by drafts, `tokens_per_step` by engine steps; None where nothing was drafted.
    `exposed_s` is generation that the learner waited for, None in synchronous runs.
    """

    key: ArmKey
    runs: tuple[Run, ...]
    steps: int
    stage_s: Mapping[str, Interval]
    tokens: Interval
    generation_share: Interval
    tokens_per_s: Interval
    acceptance: Interval | None
    tokens_per_step: Interval | None
    position_rates: tuple[float, ...] = ()
    init_s: float | None = None
    exposed_s: Interval | None = None

    @property
    def label(self) -> str:
        return self.key.label


@dataclass(frozen=True)
class Difference:
    """A config key that should agree between two arms and does not."""

    key: str
    baseline: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}: {self.baseline} against {self.value}"


@dataclass(frozen=True, eq=False)
class Match:
    """An arm beside its autoregressive one, over the steps and seeds that both have.

    `differences` refuse it: then every speedup is None. Generation is compared per token;
    `generation_latency` is the ratio of seconds per step as the paper prints it. `step` is the
    ratio of step seconds.
    """

    baseline: Arm
    arm: Arm
    differences: tuple[Difference, ...] = ()
    cautions: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    steps: int = 0
    generation: Interval | None = None
    generation_latency: Interval | None = None
    step: Interval | None = None

    @property
    def refused(self) -> bool:
        return bool(self.differences) or self.step is None


@dataclass(frozen=True)
class Missing:
    """An arm of a table that no run gives, and the command that would; "" where none does yet."""

    key: ArmKey
    command: str


@dataclass(frozen=True, eq=False)
class Family:
    """Arms of one experiment that agree in everything that must.

    `regime` is "rl_think", "rl_zero" or the experiment's own name; `title` is for readers.
    `settings` says what tells it from other families of the same experiment, "" for the first.
    """

    regime: str
    experiment: str
    title: str
    settings: str
    arms: tuple[Arm, ...]
    matches: tuple[Match, ...]
    missing: tuple[Missing, ...]

    def arm(self, key: ArmKey) -> Arm | None:
        return next((arm for arm in self.arms if arm.key == key), None)

    def match(self, key: ArmKey) -> Match | None:
        return next((match for match in self.matches if match.arm.key == key), None)


@dataclass(frozen=True)
class AmdahlCheck:
    """What bounds a matched pair (arXiv:2604.26779, section 2.2).

    `bound` = 1 / (R / alpha + 1 - R); `engine_bound` the same with tokens per engine step in place
    of alpha (they differ where a drafter often drafts nothing); `limit` the one that holds (see
    `analysis.amdahl`); `predicted` with the measured generation speedup. `cost` is c(k) = alpha /
    S. `saved_s` are seconds per step that each part gave: "generation" at equal tokens, "tokens"
    (fewer tokens generated), and the stages outside generation; they add up to `step_saved_s`.
    `violation` is "" or says which quantity is suspect.
    `baseline_s` are the stage seconds of the autoregressive arm, `arm_s` of the other one.
    """

    title: str
    regime: str
    label: str
    source: Source
    share: Interval
    acceptance: Interval | None
    generation: Interval
    step: Interval
    bound: Interval | None
    engine_bound: Interval | None
    limit: Interval
    predicted: Interval
    cost: Interval | None
    saved_s: Mapping[str, Interval]
    step_saved_s: Interval
    baseline_s: Mapping[str, float]
    arm_s: Mapping[str, float]
    violation: str = ""


@dataclass(frozen=True)
class Statement:
    """One thing that computing from the paper's printed numbers says.

    `value` is what computation gives, `printed` what the paper (or its reading) prints, None where
    it prints nothing.
    """

    key: str
    text: str
    value: float
    printed: float | None = None


@dataclass(frozen=True)
class CurveTest:
    """Whether a curve of two matched arms differs, paired by step.

    `difference` is arm minus baseline, its mean over `points`; `detectable` the smallest mean
    difference that the test would have seen with 80 % power at the 5 % level. `noise` says what
    the standard error is made of. `difference`, `p_value` and `detectable` are None where the
    verdict is "cannot tell"; `text` is the sentence for readers.
    """

    title: str
    label: str
    metric: str
    points: int
    difference: Interval | None
    p_value: float | None
    detectable: float | None
    noise: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Decision:
    """A row of the decision table: a question, what it is asked of, and its answer in plain words.

    `basis` says how the numbers are known: "measured", "estimated" (acceptance from the position
    rates of a longer draft, c(k) interpolated between measured lengths) or "paper". `cost` is c(k),
    which is also the acceptance length at which generation breaks even; `generation` and `step` are
    the speedups to expect; `saved_s` seconds per step; `paid_steps` the steps after which an init
    has paid. None: not asked, or not known.
    """

    title: str
    question: str
    case: str
    basis: Basis
    text: str = ""
    acceptance: Interval | None = None
    cost: Interval | None = None
    generation: Interval | None = None
    step: Interval | None = None
    saved_s: Interval | None = None
    paid_steps: Interval | None = None

    @property
    def source(self) -> Source:
        """Whose numbers they are."""
        return "paper" if self.basis == "paper" else "ours"


@dataclass(frozen=True)
class ViewRow:
    """Acceptance of an arm in one bucket, pooled over its counted steps.

    `view` is "position" (bucket: draft position, `value` the acceptance rate), or "lag", "length",
    "decile", "entropy", "token_entropy" (`value` the acceptance length). `low` and `high` are the
    95 % interval over steps, None with too few. `count` is how many drafts it rests on; `order`
    sorts buckets.
    """

    title: str
    label: str
    view: str
    bucket: str
    order: int
    value: float
    count: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class GridCell:
    """One cell of Figures 3 and 4 (deployment scale).

    `basis` is "printed" (in the paper's text), "reconstructed" (alpha / c(k) with c(k) from printed
    cells), "interpolated" (the same, c(k) between two printed k) or "simulated". None: not known.
    A cell with `feasible` False ("infeasible") has acceptance above k + 1 and no speedup.
    """

    figure: Literal["acceptance", "scale"]
    model: str
    basis: str
    k: int | None = None
    acceptance: float | None = None
    gpus: int | None = None
    lag: int | None = None
    rollout: float | None = None
    end_to_end: float | None = None
    feasible: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell of a table as shown. `value` is the number behind it; `note` explains a gap."""

    text: str
    kind: CellKind = "label"
    value: Interval | None = None
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table; `group` is the heading it stands under (a family's title), "" for none."""

    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table for every output format. `key` ("table1") names files; `notes` stand below it."""

    key: str
    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """Everything the output needs. `errors` are Amdahl violations, one line each.

    `warmup_steps` were left out at the start of every run. With no runs only the paper's part is
    filled (`families` then holds the two regimes with every arm missing).
    """

    created: str
    paper: Paper
    warmup_steps: int
    runs: tuple[Run, ...] = ()
    problems: tuple[Problem, ...] = ()
    families: tuple[Family, ...] = ()
    tables: tuple[Table, ...] = ()
    checks: tuple[AmdahlCheck, ...] = ()
    statements: tuple[Statement, ...] = ()
    curves: tuple[CurveTest, ...] = ()
    decisions: tuple[Decision, ...] = ()
    views: tuple[ViewRow, ...] = ()
    grid: tuple[GridCell, ...] = ()
    sources: tuple[str, ...] = field(default=())

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(check.violation for check in self.checks if check.violation)
