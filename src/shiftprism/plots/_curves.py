"""Curves against severity, from rows alone."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shiftprism._checks import Floats, wrong
from shiftprism.plots._style import INK, STYLE, grid, label, legend, line_style, symbol
from shiftprism.rows import Row

VARIANTS = ("vanilla", "alpha", "beta", "alpha-beta")
"""The paper's own four, which its Figs. 3 and 4 draw."""
_SCALES = {"alpha": "α", "beta": "β", "norm": "|f|"}


def severity_curves(rows: Sequence[Row], shifts: Sequence[str], models: Sequence[str] = ()) -> Figure:
    """Figs. 3 and 4: AUROC against severity, a line of panels a shift: g and h of each model, then U of all of them.

    Bands are ± one standard deviation, and `describe_bands` says of what. `models` are the four variants by default,
    those of them that the rows have, else all.
    """
    found = Series(rows, "auroc")
    models = list(models) or found.models()
    with mpl.rc_context(STYLE):
        figure, axes = grid(len(shifts), len(models) + 1, height=2.2)
        for line, shift in enumerate(shifts):
            for column, model in enumerate(models):
                for number, score in enumerate(("g", "h")):
                    _curve(axes[line][column], found.of(model, shift, score), score, number)
                axes[line][column].set_title(f"{symbol(model)}: {symbol(shift)}", fontsize=9)
            for number, model in enumerate(models):
                _curve(axes[line][-1], found.of(model, shift, "u"), f"U, {symbol(model)}", number + 2)
            axes[line][-1].set_title(f"U: {symbol(shift)}", fontsize=9)
            for column, axis in enumerate(axes[line]):
                label(axis, "severity" if line == len(shifts) - 1 else "", "" if column else "AUROC")
        _same_height([axis for line in axes for axis in line])
        legend(figure, *axes[0], columns=6)
    return figure


def severity_overview(rows: Sequence[Row], score: str = "u", models: Sequence[str] = ()) -> Figure:
    """AUROC of one score against severity: a small panel for every corruption and ladder, a line a model."""
    found = Series(rows, "auroc")
    models = list(models) or found.models()
    names = [shift for shift in found.shifts() if any(found.of(model, shift, score) for model in models)]
    if not names:
        raise wrong(
            "rows", f"AUROC of {score} at several severities", "none", "measure a corruption or a concept ladder"
        )
    columns = min(4 if len(names) % 4 == 0 else 5, len(names))
    with mpl.rc_context(STYLE):
        figure, axes = grid(-(-len(names) // columns), columns, height=1.7)
        flat = [axis for line in axes for axis in line]
        for place, (axis, shift) in enumerate(zip(flat, names, strict=False)):
            for number, model in enumerate(models):
                _curve(axis, found.of(model, shift, score), symbol(model), number + 2)
            axis.set_title(symbol(shift), fontsize=9)
            label(axis, "severity" if place >= len(names) - columns else "", "" if place % columns else "AUROC")
        _same_height(flat[: len(names)])
        for axis in flat[len(names) :]:
            axis.remove()
        legend(figure, flat[0])
    return figure


def scale_curves(rows: Sequence[Row], model: str = "alpha-beta", shifts: Sequence[str] = ()) -> Figure:
    """Medians of α, β and |f| over the images of a set against its severity; sets without a scale stand at the right.

    Severity is a share of the largest of its ladder, for concept splits have ten steps and corruptions five; 0 is the
    clean data.
    """
    found = Series([row for row in rows if row.model == model], "median")
    ladders = [shift for shift in (shifts or found.shifts()) if shift in found.shifts()][:7]
    sets = list(dict.fromkeys(row.shift for row in found.rows if row.kind in ("concept", "both") and not row.severity))
    sets = [name for name in sets if name not in found.shifts()]
    scales = [scale for scale in _SCALES if any(row.subject == scale for row in found.rows)]
    if not scales:
        raise wrong("rows", f"medians of α, β or |f| of {model}", "none", "benchmark a model with such a head")
    with mpl.rc_context(STYLE):
        figure, axes = grid(1, len(scales), height=2.8)
        for axis, scale in zip(axes[0], scales, strict=True):
            clean = found.at(model, "clean", 0, scale)
            for number, shift in enumerate(ladders):
                points = found.of(model, shift, scale)
                steps = {0.0: clean} | {severity / max(points): point for severity, point in points.items()}
                draw_band(axis, {x: point for x, point in steps.items() if point is not None}, symbol(shift), number)
            for place, name in enumerate(sets):
                if point := found.at(model, name, 0, scale):
                    axis.errorbar(1.2 + 0.2 * place, point[0], yerr=point[1], color=INK, marker="_", ms=9)
            places = [0, 0.5, 1, *(1.2 + 0.2 * place for place in range(len(sets)))]
            axis.set_xticks(places, ["clean", "½", "1", *map(symbol, sets)])
            for tick in axis.get_xticklabels()[3:]:
                tick.set(rotation=35, ha="right", rotation_mode="anchor")
            axis.set_title(f"median of {_SCALES[scale]}", fontsize=10)
            label(axis, "severity, as a share of the largest", "")
        legend(figure, axes[0][0], columns=4)
    return figure


def describe_bands(rows: Sequence[Row], metric: str = "auroc", models: Sequence[str] = ()) -> str:
    """What the bands of these curves show, as a sentence: deviations over seeds, or over images if there is one seed.

    `models` are those of `severity_curves` by default.
    """
    series = Series(rows, metric)
    seeds: dict[str, set[int]] = {model: set() for model in models or series.models()}
    for (model, _, severity, _), points in series.points.items():
        if severity and model in seeds:
            seeds[model].add(len(points))
    single = [symbol(model) for model, counts in seeds.items() if counts == {1}]
    several = sorted({count for counts in seeds.values() for count in counts if count > 1})
    over_seeds = (
        f"over {several[0]} to {several[-1]} seeds" if len(several) > 1 else f"over {(several or [0])[0]} seeds"
    )
    over_images = "over resampled images, because there is one seed: another training run may lie outside"
    if not several:
        return f"Bands: ± one standard deviation {over_images}."
    if not single:
        return f"Bands: ± one standard deviation {over_seeds}."
    return f"Bands: ± one standard deviation {over_seeds}; of {', '.join(single)} {over_images}."


class Series:
    """Rows of one metric by what a curve asks for: value and spread over seeds at each severity."""

    def __init__(self, rows: Sequence[Row], metric: str) -> None:
        self.rows = [row for row in rows if row.metric == metric]
        self.points: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            self.points[row.model, row.shift, row.severity, row.subject].append(row)

    def models(self) -> list[str]:
        """The paper's variants that have rows, or all models where none is there."""
        there = dict.fromkeys(row.model for row in self.rows)
        return [model for model in VARIANTS if model in there] or list(there)

    def shifts(self) -> list[str]:
        """What has more than one severity, in the order of the rows."""
        steps = defaultdict(set)
        for row in self.rows:
            steps[row.shift].add(row.severity)
        return [shift for shift, found in steps.items() if len(found - {0}) > 1]

    def at(self, model: str, shift: str, severity: int, subject: str) -> tuple[float, float] | None:
        """Mean and spread: over seeds, or the image bootstrap's where there is one seed; None where nothing is."""
        rows = self.points.get((model, shift, severity, subject), [])
        if not rows:
            return None
        values = [row.value for row in rows]
        return fmean(values), stdev(values) if len(rows) > 1 else rows[0].error

    def of(self, model: str, shift: str, subject: str) -> dict[int, tuple[float, float]]:
        """All severities of a ladder, without the pooled one."""
        steps = sorted({row.severity for row in self.rows if row.shift == shift and row.severity})
        found = {severity: self.at(model, shift, severity, subject) for severity in steps}
        return {severity: point for severity, point in found.items() if point is not None}


def _curve(axis: Axes, points: dict[int, tuple[float, float]], name: str, number: int) -> None:
    draw_band(axis, {float(severity): point for severity, point in points.items()}, name, number)
    if points:
        axis.set_xticks([severity for severity in points if len(points) <= 5 or severity % 3 == 1])


def draw_band(axis: Axes, points: dict[float, tuple[float, float]], name: str, number: int) -> None:
    """A line through the means, with a band of ± one deviation."""
    style = line_style(number)
    x: Floats = np.array(list(points), dtype=np.float64)
    mean, spread = (np.array([point[i] for point in points.values()], dtype=np.float64) for i in (0, 1))
    axis.plot(x, mean, label=name, lw=1.3, **style)
    axis.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.2, lw=0)


def _same_height(axes: Sequence[Axes]) -> None:
    """The same AUROCs on all panels, up to 1 so that figures compare too, and a line where a score tells nothing."""
    low = min(0.49, *(axis.get_ylim()[0] for axis in axes))
    for axis in axes:
        axis.axhline(0.5, color=INK, lw=0.6, ls=":")
        axis.set_ylim(max(low, -0.02), 1.02)
