"""What a figure function hands back: the drawing, its words, and what was not there to draw."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from analysis.plan import LATER


@dataclass(frozen=True)
class Absent:
    """A series that no run gives. `command` would produce it; "" where nothing does yet."""

    what: str
    command: str

    def __str__(self) -> str:
        return f"no run with {self.what}; {self.command or LATER}"


@dataclass(frozen=True)
class Picture:
    """One figure.

    `name` is its file name without ending; `alt` says in words what the eye would see. `figure` is
    None where every series is missing, so that nobody gets an empty plot.
    """

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure | None
    missing: tuple[Absent, ...] = ()
