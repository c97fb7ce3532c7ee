"""The HTML page in a real browser: opened from disk, offline, light, dark and on a phone."""

from dataclasses import replace
from pathlib import Path

import pytest
from browser import PHONE, opened
from report_records import full_report

from analysis.__main__ import main
from analysis.figures.collection import all_pictures
from analysis.figures.export import save_pictures
from analysis.report import render_html
from analysis.tables import all_tables

pytestmark = pytest.mark.slow

PICTURES = """() => [...document.querySelectorAll('figure .picture svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  return [box.width, box.height, svg.querySelectorAll('path, use').length];
})"""
BROKEN_USES = """() => [...document.querySelectorAll('svg use')].filter(
  use => !document.getElementById(use.getAttribute('xlink:href').slice(1))).length"""
INK = """() => {
  const text = document.querySelector('figure svg use[style*="currentColor"]');
  return [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor,
          getComputedStyle(text).stroke, getComputedStyle(text).fill];
}"""
WIDTHS = "() => [document.documentElement.scrollWidth, window.innerWidth]"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The page of a report that has everything, and how many pictures it holds."""
    report = full_report()
    report = replace(report, tables=all_tables(report))
    pictures = all_pictures(report)
    path = tmp_path_factory.mktemp("report") / "report.html"
    svgs = save_pictures(pictures, path.parent / "figures")
    path.write_text(render_html(report, pictures, svgs), encoding="utf-8")
    return path, sum(picture.figure is not None for picture in pictures)


@pytest.fixture(scope="module")
def written_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The page that the command writes without runs, and how many pictures lie beside it."""
    out = tmp_path_factory.mktemp("written")
    assert main(["--paper-only", "--out", str(out)]) == 0
    return out / "report.html", len(list((out / "figures").glob("*.png")))


def test_it_opens_without_an_error_and_every_picture_is_there(page_file: tuple[Path, int]) -> None:
    path, count = page_file
    assert pictures_of(path) == count > 8


def test_what_the_command_writes_opens_too(written_file: tuple[Path, int]) -> None:
    path, count = written_file
    assert pictures_of(path) == count > 3
    with opened(path) as shown:
        assert shown.page.locator("#data-decisions tbody th", has_text="Which k?").count() > 5


def pictures_of(path: Path) -> int:
    """How many the page shows, each as large as it should be, without an error or a request."""
    with opened(path) as shown:
        pictures = shown.page.evaluate(PICTURES)
        assert shown.page.evaluate(BROKEN_USES) == 0
        assert shown.page.title().startswith("specrl")
    assert shown.console == []
    assert shown.requests == [path.as_uri()]
    assert all(width > 200 and height > 60 and shapes > 10 for width, height, shapes in pictures)
    return len(pictures)


def test_dark_pages_have_dark_paper_and_light_ink_in_figures_too(
    page_file: tuple[Path, int],
) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        with opened(page_file[0], scheme) as shown:  # type: ignore[arg-type]  # one of two words
            seen[scheme] = shown.page.evaluate(INK)
        assert shown.console == []
    assert seen["light"][:2] == ["rgb(28, 33, 38)", "rgb(255, 255, 255)"]
    assert seen["dark"][:2] == ["rgb(231, 234, 237)", "rgb(20, 23, 26)"]
    for ink, _, *strokes in seen.values():
        assert ink in strokes


def test_on_a_phone_nothing_is_wider_than_the_screen(page_file: tuple[Path, int]) -> None:
    with opened(page_file[0], viewport=PHONE) as shown:
        width, screen = shown.page.evaluate(WIDTHS)
    assert width <= screen


def test_the_contents_lead_to_their_sections(page_file: tuple[Path, int]) -> None:
    with opened(page_file[0]) as shown:
        shown.page.click("nav a[href='#scale']")
        top = shown.page.evaluate("document.getElementById('scale').getBoundingClientRect().top")
        height = shown.page.evaluate("window.innerHeight")
    assert 0 <= top < height
