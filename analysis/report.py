"""The report as one HTML page that needs nothing else: no network, no files beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.answer import answers
from analysis.figures.picture import Absent, Picture
from analysis.paper import TITLES, Paper
from analysis.plan import LATER
from analysis.records import Cell, Report, Row, Table

TEMPLATES: Final = Path(__file__).parent / "templates"
PACKAGES: Final = ("specrl", "pandas", "scipy", "matplotlib", "numpy")
PLACED: Final = ("amdahl", "saved", "paper", "curves", "decisions", "runs")
"""Keys of tables that stand under a heading of their own; all others are the paper's tables."""

MADE_BY: Final = "missing, made by: "
"""How a table's note begins that holds a command."""


BOUND: Final = (
    "A step cannot gain more than 1 / (R/α + 1 − R), where R is generation's share of the "
    "autoregressive step and α the tokens that one draft-and-verify step yields; where other "
    "engine steps drafted nothing, the tokens of a mean engine step hold in place of α. A measured "
    "speedup above that, beyond its interval, means that a measurement is wrong."
)
LOSSLESS: Final = (
    "“Indistinguishable” says only that no difference of at least the size beside it was there."
)


@dataclass(frozen=True)
class Shown:
    """A picture as the page shows it; `svg` "" without a figure."""

    name: str
    title: str
    caption: str
    alt: str
    svg: Markup | str
    missing: tuple[Absent, ...]


@dataclass(frozen=True)
class Section:
    """A heading of the page and what stands under it; empty parts are left out."""

    key: str
    title: str
    intro: str = ""
    points: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Shown, ...] = ()
    folded: Table | None = None

    @property
    def filled(self) -> bool:
        return bool(self.intro or self.points or self.tables or self.pictures)


def render_html(report: Report, pictures: Sequence[Picture], svgs: Mapping[str, str]) -> str:
    """The page; `svgs` has the `inline_svg` of every picture with a figure, by its name.

    Whatever a run is called stays text: autoescape is on.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        answers=answers(report),
        sections=_sections(report, [_shown(picture, svgs) for picture in pictures]),
        violates=_violating(report),
        made_by=MADE_BY,
        later=LATER,
        heading=_heading,
        summary=_summary(report),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),  # ours
    )


def _shown(picture: Picture, svgs: Mapping[str, str]) -> Shown:
    # The SVG holds shapes only: matplotlib draws letters as paths (see inline_svg).
    svg = Markup(svgs[picture.name]) if picture.figure is not None else ""
    return Shown(picture.name, picture.title, picture.caption, picture.alt, svg, picture.missing)


def _sections(report: Report, shown: Sequence[Shown]) -> list[Section]:
    tables = {table.key: table for table in report.tables}
    sections = [
        Section("answer", "The answer", pictures=_named(shown, "speedup")),
        Section(
            "tables",
            "Tables: ours beside the paper's",
            tables=tuple(table for table in report.tables if table.key not in PLACED),
        ),
        Section(
            "amdahl",
            "The Amdahl check",
            intro=BOUND,
            tables=_keyed(tables, "amdahl", "saved", "paper"),
            pictures=_named(shown, "waterfall"),
        ),
        Section(
            "curves",
            "Is it lossless? Learning curves",
            intro=LOSSLESS,
            points=(
                *(f"{test.title}: {test.text}" for test in report.curves),
                *_printed_curves(report.paper),
            ),
            tables=_keyed(tables, "curves"),
            pictures=_named(shown, "figure2"),
        ),
        Section("acceptance", "Where drafts fit", pictures=_named(shown, "acceptance")),
        Section("decisions", "What to do", tables=_keyed(tables, "decisions")),
        Section(
            "scale",
            "Deployment scale",
            intro="Simulated in the paper, not measured: opportunity envelopes, trends only.",
            pictures=_named(shown, "figure3", "figure4"),
        ),
        _missing(report),
        _provenance(report, tables.get("runs")),
    ]
    return [section for section in sections if section.filled or section.key == "answer"]


def _printed_curves(paper: Paper) -> list[str]:
    return [
        f"The paper's Figure 2, {TITLES[regime]} over {curve.steps} steps: generation "
        f"{curve.mean_speedup:.2f}× as fast on average and {curve.max_speedup:.2f}× at most; "
        f"accuracy from {curve.accuracy_start:.0%} to {curve.accuracy_end:.0%} either way."
        for regime, curve in paper.curves.items()
    ]


def _missing(report: Report) -> Section:
    refused = [
        f"{family.title}, {match.arm.label} is not compared: "
        f"{'; '.join(map(str, match.differences)) or '; '.join(match.cautions)}"
        for family in report.families
        for match in family.matches
        if match.refused
    ]
    cautions = [
        f"{family.title}, {match.arm.label}: {caution}"
        for family in report.families
        for match in family.matches
        for caution in match.cautions
        if not match.refused
    ]
    problems = [
        f"{problem.run}{' (left out)' if problem.left_out else ''}: {problem.text}"
        for problem in report.problems
    ]
    commands = tuple(
        Row((Cell(missing.key.label), Cell(missing.command or LATER, "missing")), family.title)
        for family in report.families
        for missing in family.missing
    )
    table = Table("commands", "Missing arms, and what makes them", ("arm", "command"), commands)
    return Section(
        "missing",
        "What is missing or was refused",
        points=tuple(dict.fromkeys(refused + cautions + problems)),
        tables=(table,) if commands else (),
    )


def _provenance(report: Report, runs: Table | None) -> Section:
    commits = sorted({run.git_commit[:10] for run in report.runs if run.git_commit})
    machines = sorted({run.machine for run in report.runs if run.machine})
    points = [
        f"Written {report.created} with {', '.join(map(_versioned, PACKAGES))}.",
        f"The first {report.warmup_steps} step(s) of every run were left out as warm-up.",
        "The paper: arXiv:2604.26779, numbers as printed.",
    ]
    if report.runs:
        points.insert(1, f"Commits of the runs: {', '.join(commits) or 'not known'}.")
        points.insert(2, f"Machines: {', '.join(machines) or 'not known'}.")
    points += [f"Read: {source}" for source in report.sources]
    return Section("provenance", "Where the numbers are from", points=tuple(points), folded=runs)


def _summary(report: Report) -> str:
    if not report.runs:
        return f"No runs yet: the paper only (arXiv:2604.26779). {report.created}."
    used = len(report.runs) - len({p.run for p in report.problems if p.left_out})
    return f"{len(report.runs)} runs, {used} of them counted. {report.created}."


def _violating(report: Report) -> Callable[[Row], bool]:
    """Whether a row stands for an impossible speedup; the check table has one row a check."""
    rows = next((table.rows for table in report.tables if table.key == "amdahl"), ())
    pairs = zip(rows, report.checks, strict=False)
    marked = {id(row) for row, check in pairs if check.violation}
    return lambda row: id(row) in marked


def _named(shown: Sequence[Shown], *prefixes: str) -> tuple[Shown, ...]:
    return tuple(picture for picture in shown if picture.name.startswith(prefixes))


def _heading(table: Table) -> str:
    number = table.key.removeprefix("table")
    return f"Table {number}. {table.title}" if number.isdigit() else table.title


def _keyed(tables: Mapping[str, Table], *keys: str) -> tuple[Table, ...]:
    return tuple(tables[key] for key in keys if key in tables)


def _versioned(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} (not installed)"
