"""AUROC against epochs, from rows of checkpoints."""

import re
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from shiftprism._errors import wrong
from shiftprism.plots._curves import Series, draw_band
from shiftprism.plots._style import STYLE, grid, label, legend, symbol
from shiftprism.rows import Row

_CHECKPOINT = re.compile(r"(.+)@(\d+)")


def list_epochs(rows: Sequence[Row]) -> dict[str, list[int]]:
    """The epochs of each model that has rows of checkpoints, which are named MODEL@EPOCH.

    >>> row = Row("vanilla@5", "d", "b", "h", 0, "", "svhn", "both", 0, "u", "auroc", 0.9, 0.01, 100, "", "", "")
    >>> list_epochs([row])
    {'vanilla': [5]}
    """
    found: dict[str, set[int]] = {}
    for name in dict.fromkeys(row.model for row in rows):
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault(match[1], set()).add(int(match[2]))
    return {model: sorted(epochs) for model, epochs in found.items()}


def epoch_curves(rows: Sequence[Row], scores: Sequence[str] = ("u", "h"), shifts: Sequence[str] = ()) -> Figure:
    """AUROC of some scores against the epoch of a checkpoint: a panel a set, a line a model and score.

    Rows of checkpoints have a model named MODEL@EPOCH, as `shiftprism benchmark --runs MODEL=RUN/checkpoints` writes
    them. `shifts` are by default the sets without severities. Bands are those of `severity_curves`. Each panel has a
    range of its own, because a network gains less over epochs than one set differs from another.
    """
    series, epochs = Series(rows, "auroc"), list_epochs(rows)
    ladders = series.shifts()
    sets = dict.fromkeys(row.shift for row in series.rows if row.kind != "none" and not row.severity)
    names = list(shifts) or [name for name in sets if name not in ladders]
    curves = {}
    for shift in names:
        for model in epochs:
            for score in scores:
                found = {float(epoch): series.at(f"{model}@{epoch}", shift, 0, score) for epoch in epochs[model]}
                curves[shift, model, score] = {epoch: point for epoch, point in found.items() if point is not None}
    if not any(len(points) > 1 for points in curves.values()):
        expected = f"AUROC of {' or '.join(scores)} at two epochs or more, of models named MODEL@EPOCH"
        got = ", ".join(dict.fromkeys(row.model for row in rows)) or "none"
        raise wrong("rows", expected, got, "measure a run's checkpoints: benchmark --runs MODEL=RUN/checkpoints")
    # sets in which nothing was measured at any epoch have no panel
    names = [shift for shift in names if any(points for (own, _, _), points in curves.items() if own == shift)]
    columns = min(4, len(names))
    with mpl.rc_context(STYLE):
        figure, axes = grid(-(-len(names) // columns), columns, height=2.4)
        flat = [axis for line in axes for axis in line]
        for place, (axis, shift) in enumerate(zip(flat, names, strict=False)):
            for number, (model, score) in enumerate((model, score) for model in epochs for score in scores):
                if points := curves[shift, model, score]:
                    draw_band(axis, points, f"{symbol(score)}, {symbol(model)}", number)
            axis.set_title(symbol(shift), fontsize=9)
            label(axis, "epoch" if place >= len(names) - columns else "", "" if place % columns else "AUROC")
        for axis in flat[len(names) :]:
            axis.remove()
        legend(figure, *flat[: len(names)])
    return figure
