"""The font of the figures: DejaVu Sans as matplotlib ships it, cut to the letters that we need.

A PDF embeds the letters it uses; finding them in the whole font takes a third of a second per
figure, in the cut one a few hundredths.
"""

import tempfile
from functools import cache
from pathlib import Path

import matplotlib
from fontTools import subset
from fontTools.ttLib import TTFont
from matplotlib import font_manager

WHOLE = "DejaVu Sans"
CUT = "Specrl Sans"
"""DejaVu's licence asks for another name of what was changed."""

STYLES = ("", "-Bold")
LETTERS = (*range(0x20, 0x180), *range(0x370, 0x400), *range(0x2010, 0x2040), 0x2212)
FAMILY_NAMES, OWN_NAMES = {1, 16}, {3, 4, 6}
"""Ids of names in a font: of its family; unique, full and PostScript name. An SVG tells letters of
two styles apart by the latter alone."""


@cache
def families() -> tuple[str, str]:
    """The cut font and, for letters outside it, the whole one; the first call makes the former."""
    for style in STYLES:
        path = Path(_folder().name) / f"cut{style}.ttf"
        _cut(style).save(path)
        font_manager.fontManager.addfont(path)
    return CUT, WHOLE


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Lives as long as the process: PDFs read the font again."""
    return tempfile.TemporaryDirectory(prefix="specrl-font-")


def _cut(style: str) -> TTFont:
    options = subset.Options()
    options.layout_features = []
    options.hinting = False
    options.name_IDs = ["*"]
    options.glyph_names = True
    options.drop_tables = [*options.drop_tables, "GSUB", "GPOS", "GDEF", "MATH", "kern", "FFTM"]
    source = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{style}.ttf"
    font = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=LETTERS)
    cutter.subset(font)
    for record in font["name"].names:
        if record.nameID in FAMILY_NAMES:
            record.string = CUT
        elif record.nameID in OWN_NAMES:
            record.string = CUT.replace(" ", "") + style
    return font
