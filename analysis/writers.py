"""Tables as Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from analysis.records import GridCell, Interval, Report, Row, Table

CSV_HEADER = ("table", "group", "row", "column", "source", "value", "low", "high", "steps", "unit")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
WORDY = {"paper", "runs", "decisions"}
"""Tables with whole sentences: LaTeX breaks their last column."""

NAMED_BY = {"decisions": 2, "curves": 2}
"""How many cells name a row of a table; 1 of all others."""


def write_tables(report: Report, folder: Path) -> list[Path]:
    """tables.md, tables/<key>.tex, numbers.csv in `folder`; returns what was written."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    texts = {folder / "tables.md": markdown(report), folder / "numbers.csv": numbers_csv(report)}
    texts |= {folder / "tables" / f"{t.key}.tex": latex(t) for t in report.tables}
    for path, text in texts.items():
        write(path, text)
    return list(texts)


def write(path: Path, text: str) -> None:
    """As UTF-8; bytes of folder names that are none are shown as escapes."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def markdown(report: Report) -> str:
    """All tables and their notes, with what is wrong on top."""
    parts = [f"# specrl analysis, {report.created}"]
    parts += [f"Runs from: {', '.join(report.sources)}"] if report.sources else []
    parts += [f"> **ERROR** {error}" for error in report.errors]
    parts += [markdown_table(table) for table in report.tables]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A heading, a table with group headings as rows, and the notes as a list."""
    lines = [f"## {_heading(table)}", "", _pipes(table.header), _pipes(["---"] * len(table.header))]
    for group, rows in _groups(table):
        if group:
            lines.append(_pipes([f"**{group}**", *[""] * (len(table.header) - 1)]))
        lines += [_pipes([cell.text for cell in row.cells]) for row in rows]
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def latex(table: Table) -> str:
    """A booktabs tabular without a float, to be \\input; notes as comments."""
    columns = "l" + "r" * (len(table.header) - 1)
    if table.key in WORDY:
        columns = "l" * (len(table.header) - 1) + r"p{0.55\linewidth}"
    lines = [f"% {' '.join(text.split())}" for text in (_heading(table), *table.notes)]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _ampersands(table.header)]
    for group, rows in _groups(table):
        lines.append(r"\midrule")
        if group:
            width = len(table.header)
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_escaped(group)}}}}} \\")
        lines += [_ampersands([cell.text for cell in row.cells]) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def numbers_csv(report: Report) -> str:
    """One line per number: those of the tables, then of arms, views and the deployment grid.

    Values are not rounded; low and high are empty where there is no interval.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    writer.writerows(_numbers(report))
    return text.getvalue()


def _numbers(report: Report) -> Iterator[Sequence[object]]:
    for table in report.tables:
        yield from _table_numbers(table)
    yield from _arm_numbers(report)
    for view in report.views:
        value = Interval(view.value, view.low, view.high)
        place = (f"acceptance by {view.view}", view.title, view.label, view.bucket, "ours")
        yield (*place, *_values(value)[:3], int(view.count), "drafts")
    yield from _grid_numbers(report.grid)


def _table_numbers(table: Table) -> Iterator[Sequence[object]]:
    for row in table.rows:
        words = " ".join(cell.text for cell in row.cells[: NAMED_BY.get(table.key, 1)])
        for name, cell in zip(table.header, row.cells, strict=True):
            if cell.value is not None:
                place = (table.key, row.group, words, name, cell.kind)
                yield (*place, *_values(cell.value), cell.unit)


def _grid_numbers(grid: Sequence[GridCell]) -> Iterator[Sequence[object]]:
    for cell in grid:
        where = (cell.k, cell.acceptance) if cell.figure == "acceptance" else (cell.gpus, cell.lag)
        for name, speedup in (("rollout", cell.rollout), ("end to end", cell.end_to_end)):
            if speedup is not None:
                place = (f"figure {cell.figure}", cell.model, "/".join(map(str, where)), name)
                yield (*place, cell.basis, speedup, "", "", "", "x")


def _arm_numbers(report: Report) -> Iterator[Sequence[object]]:
    for family in report.families:
        for arm in family.arms:
            figures = {f"{part}_s": seconds for part, seconds in arm.stage_s.items()}
            figures |= {"tokens": arm.tokens, "tokens_per_s": arm.tokens_per_s}
            known = {"acceptance": arm.acceptance, "tokens_per_step": arm.tokens_per_step}
            figures |= {name: value for name, value in known.items() if value is not None}
            for name, value in figures.items():
                yield ("arms", family.title, arm.label, name, "ours", *_values(value), "")


def _values(value: Interval) -> tuple[object, ...]:
    bounds = ["" if bound is None else bound for bound in (value.low, value.high)]
    return (value.value, *bounds, value.steps or "")


def _heading(table: Table) -> str:
    number = table.key.removeprefix("table")
    return f"Table {number}: {table.title}" if table.key != number else table.title


def _groups(table: Table) -> Iterator[tuple[str, list[Row]]]:
    for group, rows in groupby(table.rows, key=lambda row: row.group):
        yield group, list(rows)


def _pipes(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", r"\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _ampersands(cells: Iterable[str]) -> str:
    return " & ".join(_escaped(cell) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
