"""Figures as files, and as SVG that lives inside a page."""

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.figure import Figure

from analysis.figures.picture import Picture
from analysis.figures.style import INK, house_style
from analysis.parallel import in_processes

UNDATED: Final = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}
"""The same records give the same bytes."""

IDENTIFIED = re.compile(r'(\bid="|\bxlink:href="#|\bhref="#|url\(#)([^")]+)')
WORDS = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
SVG_FROM = re.compile(r"<svg.*", re.DOTALL)
SIZE = re.compile(r' (?:width|height)="[\d.]+pt"')


def save_pictures(pictures: Iterable[Picture], folder: Path) -> dict[str, str]:
    """`<name>.pdf` and `<name>.png` of every picture that has a figure, in `folder`.

    Returns the `inline_svg` of each by its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawable = [picture for picture in pictures if picture.figure is not None]
    svgs = in_processes(lambda picture: _saved(picture, folder), drawable)
    return {picture.name: svg for picture, svg in zip(drawable, svgs, strict=True)}


def png(figure: Figure) -> bytes:
    return _drawn(figure, "png")


def inline_svg(picture: Picture) -> str:
    """`<svg>` without declarations: transparent, ink in the page's text colour, ids of its own.

    Holds no text of the records: letters are shapes, and metadata is left out.
    """
    assert picture.figure is not None, "a picture without a figure has nothing to show"
    found = SVG_FROM.search(_drawn(picture.figure, "svg", salt=picture.name).decode())
    assert found is not None, "matplotlib wrote no svg element"
    svg = SIZE.sub("", found[0], count=2)
    svg = WORDS.sub("", svg)
    svg = IDENTIFIED.sub(rf"\g<1>{picture.name}-\g<2>", svg)
    return svg.replace(INK, "currentColor").strip()


def _saved(picture: Picture, folder: Path) -> str:
    assert picture.figure is not None, "a picture without a figure has nothing to save"
    for kind in ("pdf", "png"):
        (folder / f"{picture.name}.{kind}").write_bytes(_drawn(picture.figure, kind))
    return inline_svg(picture)


def _drawn(figure: Figure, kind: str, salt: str = "specrl") -> bytes:
    buffer = io.BytesIO()
    with house_style(), matplotlib.rc_context({"svg.hashsalt": salt}):
        if figure.get_layout_engine() is not None:
            figure.draw_without_rendering()
            # Laid out once: with "none" matplotlib would keep an engine and draw twice a file.
            figure.set_layout_engine(None)
        figure.savefig(buffer, format=kind, metadata=UNDATED[kind], transparent=kind == "svg")
    return buffer.getvalue()
