"""Every figure from synthetic records: what it shows, in which units, readable at column width."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from report_records import EAGLE, NGRAM, arm, check, family, full_report, run, views

from analysis import plan
from analysis.figures.acceptance import acceptance_view
from analysis.figures.bound import measured_against_bound
from analysis.figures.collection import all_pictures
from analysis.figures.curves import training_curves
from analysis.figures.export import inline_svg, png, save_pictures
from analysis.figures.picture import Absent, Picture
from analysis.figures.style import COLUMN_IN, MARKERS, SERIES, house_style, start, style_of
from analysis.figures.training import acceptance_over_training
from analysis.figures.waterfall import step_waterfall
from analysis.records import ViewRow

SMALLEST_PT = 7.0
REPORT = full_report()
PICTURES = {picture.name: picture for picture in all_pictures(REPORT)}
DRAWN = {name: picture for name, picture in PICTURES.items() if picture.figure is not None}

DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
"""Machado, Oliveira, Fernandes 2009, severity 1.0; rows give R, G, B as such an eye sees them."""


def drawn(picture: Picture) -> Figure:
    assert picture.figure is not None, picture.name
    with house_style():
        FigureCanvasAgg(picture.figure).draw()
    return picture.figure


def texts(figure: Figure) -> Iterator[Text]:
    """All that is drawn: labels of ticks outside the axis are not."""
    outside = set()
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        outside |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in outside:
            yield text


@pytest.mark.parametrize("name", DRAWN)
def test_its_text_is_readable_inside_the_figure_and_overlaps_no_other(name: str) -> None:
    figure = drawn(DRAWN[name])
    assert figure.get_figwidth() <= COLUMN_IN + 1e-9
    renderer = FigureCanvasAgg(figure).get_renderer()
    page = figure.bbox
    boxes = []
    for text in texts(figure):
        assert text.get_fontsize() >= SMALLEST_PT, text.get_text()
        box = text.get_window_extent(renderer)
        assert page.padded(1).contains(box.x0, box.y0), text.get_text()
        assert page.padded(1).contains(box.x1, box.y1), text.get_text()
        boxes.append((text.get_text(), box.shrunk(0.95, 0.8)))
    hits = [(a[0], b[0]) for a, b in combinations(boxes, 2) if a[1].overlaps(b[1])]
    assert not hits


@pytest.mark.parametrize("name", DRAWN)
def test_its_axes_name_what_they_show_and_in_which_unit(name: str) -> None:
    units = ("(s", "(%)", "(×)", "(tokens)", "(nats)", "(steps)", "seconds", "RL step", "position")
    units += ("GPUs", "tenth", "versions")
    labels = [axes.get_xlabel() for axes in drawn(DRAWN[name]).axes if axes.get_xlabel()]
    labels += [axes.get_ylabel() for axes in drawn(DRAWN[name]).axes if axes.get_ylabel()]
    assert labels
    assert [label for label in labels if not any(unit in label for unit in units)] == []


@pytest.mark.parametrize("name", DRAWN)
def test_it_tells_in_words_what_the_eye_sees(name: str) -> None:
    picture = DRAWN[name]
    assert picture.title
    assert picture.caption.endswith(".")
    assert any(character.isdigit() for character in picture.alt)


def test_files_are_vector_and_raster_and_the_same_every_time(tmp_path: Path) -> None:
    picture = PICTURES["speedup_against_bound"]
    svgs = save_pictures([picture], tmp_path)
    vector, raster = (tmp_path / f"{picture.name}.{kind}" for kind in ("pdf", "png"))
    assert vector.read_bytes().startswith(b"%PDF")
    assert b"/Subtype /Type3" not in vector.read_bytes(), "journals refuse Type 3 fonts"
    assert picture.figure is not None
    assert raster.read_bytes() == png(picture.figure)
    assert svgs == {picture.name: inline_svg(picture)}


def test_bold_and_regular_letters_are_not_taken_for_each_other() -> None:
    with house_style():
        figure = start(1.0)
        axes = figure.subplots()
        axes.text(0, 0, "k")
        axes.text(1, 0, "k", fontweight="bold")
        axes.set_axis_off()
    svg = inline_svg(Picture("letters", "", "", "", figure))
    drawn = re.findall(r'<path id="([^"]+)"', svg)
    used = re.findall(r'<use xlink:href="#([^"]+)"', svg)
    assert sorted(set(used)) == sorted(drawn)
    assert len(drawn) == 2


def test_inline_svg_takes_the_pages_text_colour_and_shares_no_id_with_another() -> None:
    first, second = list(DRAWN.values())[:2]
    svg, other = inline_svg(first), inline_svg(second)
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "<?xml" not in svg
    assert ids(svg)
    assert ids(svg) & ids(other) == set()


def ids(svg: str) -> set[str]:
    return {part.partition('"')[0] for part in svg.split(' id="')[1:]}


def test_a_series_that_no_run_has_gives_words_and_a_command_and_no_plot() -> None:
    for picture in (
        acceptance_view([], "position"),
        measured_against_bound([]),
        acceptance_over_training([], "RL-Zero"),
        training_curves(family(), [], [Absent("autoregressive", "specrl drafter=none")]),
    ):
        assert picture.figure is None
        assert str(picture.missing[0]).startswith("no run with ")
        assert "; specrl " in str(picture.missing[0])


def test_without_any_run_every_gap_of_the_report_names_its_command() -> None:
    empty = replace(family(), arms=(), matches=(), missing=())
    pictures = all_pictures(replace(REPORT, families=(empty,), checks=(), views=()))
    gaps = [picture for picture in pictures if picture.figure is None]
    assert {"speedup_against_bound", "acceptance"} <= {picture.name for picture in gaps}
    assert all(absent.command for picture in gaps for absent in picture.missing)


def test_without_a_lagging_run_there_is_no_plot_of_one_point() -> None:
    rows = tuple(row for row in REPORT.views if row.view != "lag" or row.bucket == "0")
    pictures = all_pictures(replace(REPORT, views=rows))
    lag = next(picture for picture in pictures if picture.name.startswith("acceptance_lag"))
    assert lag.figure is None
    assert ("max_lag=1" in lag.missing[0].command) == plan.available(plan.ASYNC)


def test_an_arm_looks_the_same_in_every_figure() -> None:
    colours = set()
    for name in ("figure2_rl-zero", "acceptance_position_rl-zero", "acceptance_training_rl-zero"):
        lines = drawn(DRAWN[name]).axes[0].get_lines()
        colours |= {line.get_color() for line in lines if line.get_label() == EAGLE.label}
    assert len(colours) == 1


def test_arms_with_different_buckets_share_one_axis_in_the_order_of_lengths() -> None:
    rows = [
        ViewRow("f", "a", "length", "0064-0127", 0, 2.0, 90.0),
        ViewRow("f", "b", "length", "0004-0007", 0, 1.5, 90.0),
        ViewRow("f", "b", "length", "0064-0127", 1, 1.6, 90.0),
    ]
    axes = drawn(acceptance_view(rows, "length")).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4–\n7", "64–\n127"]
    by_label = {line.get_label(): list(line.get_xdata()) for line in axes.get_lines()}
    assert by_label["a"] == [1]
    assert by_label["b"] == [0, 1]


@pytest.mark.parametrize("view", ["length", "decile", "position"])
def test_buckets_with_other_names_are_shown_as_they_are(view: str) -> None:
    axes = drawn(acceptance_view([ViewRow("f", "a", view, "long", 0, 0.5, 90.0)], view)).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["long"]


def test_points_on_few_drafts_are_hollow() -> None:
    rows = [row for row in views() if row.view == "length"]
    axes = drawn(acceptance_view(rows, "length")).axes[0]
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "#ffffff"]
    assert [list(line.get_xdata()) for line in hollow] == [[0]]


def test_the_changes_of_the_waterfall_lead_from_one_step_to_the_other() -> None:
    pair = check()
    figure = drawn(step_waterfall(pair))
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels[0] == "autoregressive"
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    changes = [bar for bar in bars if bar.get_height() == pytest.approx(0.5)]
    lost = [bar for bar in changes if bar.get_hatch()]
    total = sum(bar.get_width() * (-1 if bar in lost else 1) for bar in changes)
    # What is shown as 0.0 s is left out.
    assert total == pytest.approx(pair.baseline_s["step"] - pair.arm_s["step"], abs=0.05)
    assert [bar.get_width() for bar in lost] == [pytest.approx(0.3)]


def test_a_speedup_above_its_bound_is_a_cross_and_said_so() -> None:
    picture = measured_against_bound([check(), check(violation="too fast")])
    markers = [line.get_marker() for line in drawn(picture).axes[0].get_lines()]
    assert markers.count("X") == 1
    assert markers.count("o") == 1
    assert picture.alt.count("above its bound") == 1


def test_latency_lines_are_means_over_seeds_at_the_steps_that_all_have() -> None:
    both = arm(EAGLE, (run("a", steps=20, latency_s=4.0), run("b", steps=12, latency_s=8.0)))
    line = drawn(training_curves(family(), [both], ())).axes[0].get_lines()[0]
    frames = [seed.steps["time/generation_s"] for seed in both.runs]
    expected = (frames[0][:12] + frames[1]) / 2
    assert list(line.get_xdata()) == list(range(12))
    assert line.get_ydata() == pytest.approx(expected.to_numpy())


def test_acceptance_over_training_weighs_seeds_by_their_drafts() -> None:
    first, second = run("a", steps=3, seed=1), run("b", steps=3, seed=2)
    first.steps["spec/num_drafts"] = 300.0
    second.steps["spec/num_drafts"] = 100.0
    axes = drawn(acceptance_over_training([arm(NGRAM, (first, second))], "f")).axes[0]
    line = next(line for line in axes.get_lines() if line.get_label() == NGRAM.label)
    lengths = [seed.steps["spec/acceptance_length"].to_numpy() for seed in (first, second)]
    assert line.get_ydata() == pytest.approx((3 * lengths[0] + lengths[1]) / 4)


def test_names_of_any_kind_can_be_drawn() -> None:
    hostile = "<script>$x^{2}$ \\frac & 'a' \"b\" ünïcode \u202e \n next " + "y" * 200
    rows = [replace(row, label=hostile, title=hostile) for row in views()]
    for picture in (
        acceptance_view(rows, "decile", hostile),
        measured_against_bound([check(title=hostile)]),
        step_waterfall(check(title=hostile)),
    ):
        assert png(drawn(picture)).startswith(b"\x89PNG")
        assert "<script" not in inline_svg(picture)
        assert picture.name == picture.name.encode("ascii", "ignore").decode()
        assert "/" not in picture.name


def test_colours_stay_apart_without_green_vision() -> None:
    seen = [np.clip(DEUTERANOPIA @ np.array(to_rgb(colour)), 0, 1) for colour in SERIES]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 0.2


def test_the_first_36_series_differ_in_colour_or_mark() -> None:
    looks = {(style_of(i)["color"], style_of(i)["marker"]) for i in range(36)}
    assert len(looks) == len(SERIES) * len(MARKERS)
