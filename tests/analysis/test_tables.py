"""Tables show ours beside the paper's, in every format."""

import csv
import io
import re
from dataclasses import replace

import pytest
from synthetic import AR, EAGLE, Truth, no_views, run_of, untold

from analysis.compose import compose
from analysis.decisions import BREAK_EVEN, INIT, ONLINE, WHICH_K
from analysis.paper import load_paper
from analysis.records import Interval, Report, Run, Table
from analysis.words import interval_text, number
from analysis.writers import latex, markdown, numbers_csv

SPEC = Truth(alpha=2.6, cost=1.7)
NGRAM = {"drafter.name": "ngram", "drafter.k": "3"}


def report_of(*runs: Run) -> Report:
    return compose(load_paper(), runs, no_views, 1, untold)


REPORT = report_of(
    run_of(AR),
    run_of(NGRAM, Truth(alpha=1.8, cost=2.4)),
    run_of(EAGLE, SPEC),
    run_of({**EAGLE, "drafter.k": "5"}, Truth(alpha=3.0, cost=2.4)),
    run_of({**EAGLE, "init.name": "ultrachat"}, Truth(alpha=2.1, cost=1.7)),
    run_of({**EAGLE, "adaptation.name": "online"}, Truth(alpha=2.7, cost=1.7)),
    run_of({**AR, "execution.max_lag": "1"}),
    run_of({**EAGLE, "execution.max_lag": "1"}, SPEC),
)
PAPER_ONLY = report_of()


def rows_of(report: Report, key: str, group: str = "RL-Zero (rl_zero_cpu)") -> dict[str, list[str]]:
    table = table_of(report, key)
    return {r.cells[0].text: [c.text for c in r.cells[1:]] for r in table.rows if r.group == group}


def table_of(report: Report, key: str) -> Table:
    return next(table for table in report.tables if table.key == key)


def value(text: str) -> float:
    found = re.match(r"-?[\d.]+", text)
    assert found, text
    return float(found[0])


def test_table_1_has_our_seconds_beside_the_papers() -> None:
    rows = rows_of(REPORT, "table1")
    assert value(rows["Generation"][0]) == pytest.approx(10.0, rel=0.03)
    assert value(rows["Generation"][1]) == pytest.approx(10.0 * 1.7 / 2.6, rel=0.03)
    assert rows["Generation"][2:] == ["100.0", "56.6"]
    assert rows["Step speedup"][3] == "1.41x"
    assert value(rows["Step speedup"][1]) == pytest.approx(1.27, abs=0.04)
    assert "[" in rows["Overall"][0]


def test_table_2_lists_every_drafter() -> None:
    rows = rows_of(REPORT, "table2")
    assert list(rows) == ["autoregressive", "ngram k=3", "eagle3 k=3 dapo offline"]
    assert value(rows["ngram k=3"][3]) == pytest.approx(1.8 / 2.4, abs=0.03)
    assert rows["ngram k=3"][4:] == ["2.47", "140.2", "0.7x"]


def test_tables_3_to_5_and_async_find_their_arms() -> None:
    inits = rows_of(REPORT, "table3")
    assert [value(inits[name][0]) for name in ("ultrachat", "dapo")] == pytest.approx(
        [2.1, 2.6], abs=0.06
    )
    lengths = rows_of(REPORT, "table4")
    assert value(lengths["k = 5"][1]) == pytest.approx(3.0 / 2.4, abs=0.04)
    assert lengths["k = 7"][0] == "missing"
    assert lengths["k = 7"][3:] == ["5.06", "1.21x"]
    assert value(rows_of(REPORT, "table5")["dapo, online"][0]) == pytest.approx(2.7, abs=0.06)
    lagging = rows_of(REPORT, "async")
    assert value(lagging["eagle3 k=3 dapo offline lag 1"][2]) == pytest.approx(1.27, abs=0.04)


def test_arms_of_other_lags_are_not_compared_with_synchronous_ones() -> None:
    pairs = [pair for family in REPORT.families for pair in family.matches]
    assert all(pair.baseline.key.max_lag == pair.arm.key.max_lag for pair in pairs)
    assert len(pairs) == 6


def test_one_table_of_decisions_answers_every_question() -> None:
    assert [table.key for table in REPORT.tables if table.key in ("decisions", "advice")] == [
        "decisions"
    ]
    steps = run_of(EAGLE, SPEC).steps.assign(**{"init/seconds": 100.0})
    online = run_of({**EAGLE, "adaptation.name": "online"}, Truth(alpha=2.7, cost=1.7))
    report = report_of(run_of(AR), replace(run_of(EAGLE, SPEC), steps=steps), online)
    table = table_of(report, "decisions")
    asked = {row.cells[0].text for row in table.rows if row.group == "RL-Zero (rl_zero_cpu)"}
    assert asked == {WHICH_K, BREAK_EVEN, ONLINE, INIT}
    assert table.header[0] == "Question"
    named = [
        (row["group"], row["row"], row["column"])
        for row in csv.DictReader(io.StringIO(numbers_csv(report)))
        if row["table"] == "decisions"
    ]
    assert len(named) == len(set(named))


def test_missing_arms_are_noted_with_their_command() -> None:
    notes = table_of(PAPER_ONLY, "table2").notes
    assert "missing, made by: specrl experiment=rl_zero drafter=ngram drafter.k=3" in notes
    assert all(row[0] == "missing" for row in rows_of(PAPER_ONLY, "table4", "RL-Think").values())


def test_a_doubtful_comparison_is_marked_and_its_doubt_noted() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, SPEC, machine=""))
    cell = rows_of(report, "table3")["dapo"][1]
    assert cell.endswith("*")
    assert any("machine not recorded" in note for note in table_of(report, "table3").notes)


def test_markdown_has_every_table_once() -> None:
    text = markdown(REPORT)
    for table in REPORT.tables:
        assert text.count(f"{table.title}\n") == 1
    widths = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line[:1] == "|"}
    assert widths == {len(table.header) + 1 for table in REPORT.tables}


def test_latex_escapes_what_it_must_and_has_equal_rows() -> None:
    for table in REPORT.tables:
        text = latex(table)
        body = [line for line in text.splitlines() if line.endswith(r"\\")]
        plain = [line for line in body if "multicolumn" not in line]
        assert {line.replace(r"\&", "").count("&") for line in plain} == {len(table.header) - 1}
        assert not re.search(r"(?<!\\)[_#$]", "".join(plain))
    assert r"rl\_zero\_cpu" in latex(table_of(REPORT, "table1"))


def test_csv_has_every_number_of_every_table_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(numbers_csv(REPORT))))
    cells = [c for t in REPORT.tables for r in t.rows for c in r.cells if c.value is not None]
    assert len(rows) > len(cells)
    in_tables = [row for row in rows if row["table"] in {table.key for table in REPORT.tables}]
    assert [float(row["value"]) for row in in_tables] == [cell.value.value for cell in cells]
    ours = [row for row in in_tables if row["source"] == "ours" and row["low"]]
    assert all(float(r["low"]) <= float(r["value"]) <= float(r["high"]) for r in ours)


@pytest.mark.parametrize(
    ("interval", "unit", "text"),
    [
        (Interval(1.3456, 1.31, 1.402), "x", "1.35x [1.31, 1.40]"),
        (Interval(133.64), "s", "134"),
        (Interval(12.345, 11.9, 12.8), "s", "12.3 [11.9, 12.8]"),
        (Interval(0.0042), "", "0.00"),
        (Interval(-0.214, -0.5, 0.1), "s", "-0.21 [-0.50, 0.10]"),
        (Interval(-0.001, -0.004, 0.1), "s", "0.00 [0.00, 0.10]"),
    ],
)
def test_numbers_are_written_with_the_digits_they_deserve(
    interval: Interval, unit: str, text: str
) -> None:
    assert interval_text(interval, unit) == text


def test_a_number_with_given_decimals_keeps_them() -> None:
    assert (number(1234.5, 1), number(0.0, None)) == ("1234.5", "0.00")
