"""What all figures share: colours, the grid of panels, names, and SVG in the page's own text colour."""

import io
import re
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from shiftprism.rows import display_name

# Okabe and Ito's palette: told apart with any kind of colour vision. The fourth is a little darker, to show on white,
# and the seventh a violet: their orange is the fourth again to eyes without red or green cones.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C2A300", "#CC79A7", "#56B4E9", "#A040FF")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
GREY = "#7F7F7F"
WIDTH = 9.6
"""Inches. The page is a little wider, so that letters of ten points become as large as its text."""
INK = "#010203"  # stands for the page's own text colour, which `svg` puts in its place
STYLE: dict[Any, Any] = {  # matplotlib types its 300 keys one by one
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
}
_NAMES = {"alpha-beta": "α-β", "alpha": "α only", "beta": "β only", "u": "U", "corrupted": "all corruptions"}
_ALONE = (
    "<style>svg{color:#1c2126}@media(prefers-color-scheme:dark){svg{color:#e4e8ec}}"
    "@media print{svg{color:#000}}</style>"
)


def svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element whose ink is the page's text colour; `name` keeps the ids of figures apart.

    Text stays text. `alone` makes a file of it, and `inline` an element again.
    """
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", transparent=True, dpi=150, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor").strip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # ids that repeat in every figure and that nothing refers to
    text = re.sub(r'<g id="[a-zA-Z0-9.]+_\d+"(/?)>', r"<g\1>", text)
    # the page scales it: a width in points would not shrink on a phone
    return re.sub(r'<svg ([^>]*?)width="([\d.]+)pt" height="[\d.]+pt"', r'<svg \1style="max-width:\2pt"', text, count=1)


def alone(drawing: str) -> str:
    """An `<svg>` element of `svg` as the text of a file: it brings its ink, light on a dark page and black in print."""
    end = drawing.index(">") + 1
    return drawing[:end] + _ALONE + drawing[end:] + "\n"


def inline(file: str) -> str:
    """The element again that `alone` made a file of: on a page the ink is the page's."""
    return file.replace(_ALONE, "", 1).strip()


def grid(lines: int, columns: int, height: float = 2.3) -> tuple[Figure, list[list[Axes]]]:
    """Panels whose titles do not touch the axis above them. They share the width of the page, however many they are."""
    layout = ConstrainedLayoutEngine(h_pad=0.08)
    figure = Figure(figsize=(WIDTH, height * lines + 0.4), layout=layout)
    return figure, [list(line) for line in figure.subplots(lines, columns, squeeze=False)]


def share_range(axes: Sequence[Sequence[Axes]], side: Literal["x", "y"]) -> None:
    """Give all panels one range, the widest, so that heights and places can be compared between them."""
    panels = [axis for line in axes for axis in line]
    limits = [axis.get_xlim() if side == "x" else axis.get_ylim() for axis in panels]
    low, high = min(pair[0] for pair in limits), max(pair[1] for pair in limits)
    for axis in panels:
        axis.set(**{f"{side}lim": (low, high)})


def label(axis: Axes, x: str, y: str) -> None:
    """Names of both axes, empty where a neighbour says it."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def legend(figure: Figure, *axes: Axes, columns: int = 5, scale: float = 1.0) -> None:
    """One legend above all panels, for all that `axes` draw, each name once."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    handles, texts = list(found.values()), list(found)
    figure.legend(handles, texts, loc="outside upper center", ncols=min(len(found), columns), markerscale=scale)


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and, beyond the palette, the stroke of line `number`: never by colour alone."""
    stroke = LINES[number // len(COLOURS) % len(LINES)]
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "ls": stroke, "ms": 4}


def colour(number: int) -> str:
    """Grey for the clean data, which comes first, then the palette."""
    return GREY if number == 0 else COLOURS[(number - 1) % len(COLOURS)]


def symbol(name: str) -> str:
    """A name as a figure shows it: Greek letters for heads, plain words for the rest.

    >>> symbol("alpha-beta"), symbol("motion_blur"), symbol("u")
    ('α-β', 'motion blur', 'U')
    """
    return _NAMES.get(name, display_name(name))
