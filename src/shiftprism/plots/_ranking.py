"""Numbers with their intervals, one under the other: which score leads, and by how much."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shiftprism._errors import wrong
from shiftprism.plots._style import COLOURS, STYLE, grid, label, symbol
from shiftprism.rows import Effect

_LINE = 0.26
"""Inches of height for a line of the figure."""


def interval_dots(lines: Mapping[str, Mapping[str, Effect]], marked: Sequence[str] = ()) -> Figure:
    """AUROCs with their 95 % intervals: a line each, a panel for each set, in the order given.

    `lines` has for each name its effects by set: AUROCs, shown in %. A set that a line lacks stays empty there. Dots
    of a single seed are hollow: their interval is over images alone. `marked` lines have another colour.
    """
    sets = list(dict.fromkeys(name for effects in lines.values() for name in effects))
    if not sets:
        raise wrong("lines", "one or more names with effects", dict(lines), "measure something first")
    with mpl.rc_context(STYLE):
        figure, axes = grid(1, len(sets), height=0.5 + _LINE * len(lines))
        for place, (axis, name) in enumerate(zip(axes[0], sets, strict=True)):
            for height, (line, effects) in enumerate(lines.items()):
                if name in effects:
                    _draw_interval(axis, effects[name], -height, COLOURS[1] if line in marked else COLOURS[0])
            axis.set_ylim(0.6 - len(lines), 0.6)
            axis.set_yticks([-height for height in range(len(lines))], list(lines) if place == 0 else [])
            axis.grid(axis="x", alpha=0.3)
            axis.set_title(symbol(name), fontsize=9)
            label(axis, "AUROC in %", "")
    return figure


def _draw_interval(axis: Axes, effect: Effect, height: float, colour: str) -> None:
    low, high = max(effect.low, 0.0), min(effect.high, 1.0)  # Student's interval of two seeds may pass the bounds
    axis.hlines(height, 100 * low, 100 * high, colors=colour, lw=1.5)
    face = colour if effect.seeds > 1 else "white"
    axis.plot(100 * effect.value, height, "o", ms=5, color=colour, markerfacecolor=face)
