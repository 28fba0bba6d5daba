"""How scores and confidences are distributed over images, from the Outputs of each model on every set."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_curve
from torch import Tensor

from shiftprism import metrics
from shiftprism._checks import Floats
from shiftprism.outputs import Outputs
from shiftprism.plots._outputs import ModelOutputs
from shiftprism.plots._style import (
    COLOURS,
    INK,
    LINES,
    MARKERS,
    STYLE,
    colour,
    grid,
    label,
    legend,
    share_range,
    symbol,
)
from shiftprism.scores import SCORES

DOTS = 0.7
"""The opacity of a dot: it shows on the dark page too, and many dots still show how dense they lie."""
_PREFERRED = ("motion_blur", "gaussian_noise", "contrast", "shot_noise", "zoom_blur")


def groups(one: ModelOutputs, most: int = 5) -> dict[str, Outputs]:
    """The sets a figure has room for: clean, unseen concepts, far data, and the severest of a few corruptions."""
    fixed = [
        (condition, outputs)
        for condition, outputs, _ in one.shifted
        if not condition.severity and condition.kind != "covariate"
    ]
    found = {"clean": one.clean} | {symbol(condition.shift): outputs for condition, outputs in fixed}
    found = dict(list(found.items())[: most - 1])
    severest = {
        condition.shift: (condition.severity, outputs)
        for condition, outputs, _ in sorted(one.shifted, key=lambda part: part[0].severity)
        if condition.kind == "covariate"
    }
    for name in sorted(severest, key=lambda name: (*_PREFERRED, name).index(name))[: most - len(found)]:
        severity, outputs = severest[name]
        found[f"{symbol(name)} {severity or ''}".strip()] = outputs
    return found


def reliability_diagrams(
    models: Sequence[ModelOutputs], calibrators: Sequence[str] = ("temperature", "alpha-beta"), bins: int = 15
) -> Figure:
    """Accuracy against confidence on clean data and on all covariate shifts together, before and after calibration."""
    with mpl.rc_context(STYLE):
        figure, axes = grid(len(models), 2, height=4.0)
        for line, one in enumerate(models):
            kept = [(outputs, labels) for condition, outputs, labels in one.shifted if condition.kind == "covariate"]
            sets = {"clean": [(one.clean, one.labels)], "corrupted": kept}
            for column, (name, parts) in enumerate(sets.items()):
                axis = axes[line][column]
                if not parts:
                    axis.set_axis_off()
                    continue
                labels = torch.cat([labels for _, labels in parts])
                logits = {"uncalibrated": torch.cat([outputs.logits for outputs, _ in parts])}
                for method in calibrators:
                    if fitted := one.calibrators.get(method):
                        logits[symbol(method)] = torch.cat([fitted(outputs) for outputs, _ in parts])
                axis.plot([0, 1], [0, 1], color=INK, lw=0.8, ls=":")
                for number, (method, values) in enumerate(logits.items()):
                    word = "ECE" if name == "clean" else "pooled ECE"  # the table has the mean over conditions
                    _reliability(axis, torch.softmax(values.double(), 1), labels, (method, word), number, bins)
                axis.set(title=f"{symbol(one.model)}: {name}", xlim=(0, 1), ylim=(0, 1))
                axis.legend(fontsize=8, loc="upper left")
                label(axis, "confidence" if line == len(models) - 1 else "", "accuracy" if column == 0 else "")
    return figure


def roc_curves(models: Sequence[ModelOutputs], scores: Sequence[str] = ("g", "h", "u", "msp", "energy")) -> Figure:
    """ID images kept against OOD images let through, a panel for each model and set, with each score's AUROC."""
    with mpl.rc_context(STYLE):
        columns = [name for name in groups(models[0]) if name != "clean"]
        figure, axes = grid(len(models), len(columns), height=2.5)
        for line, one in enumerate(models):
            sets = groups(one)
            for column, name in enumerate(columns):
                axis = axes[line][column]
                axis.plot([0, 1], [0, 1], color=INK, lw=0.6, ls=":")
                for number, score in enumerate(scores):
                    _roc(axis, SCORES[score](one.clean), SCORES[score](sets[name]), score, number)
                axis.legend(fontsize=7, loc="best", handlelength=1.2, labelspacing=0.2)
                axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
                axis.set_title(f"{symbol(one.model)}: {name}", fontsize=9)
                label(
                    axis, "shifted images let through" if line == len(models) - 1 else "", "" if column else "ID kept"
                )
    return figure


def score_histograms(models: Sequence[ModelOutputs], scores: Sequence[str] = ("g", "h", "u")) -> Figure:
    """How each score is spread over clean data, unseen concepts, far data and severe corruptions."""
    with mpl.rc_context(STYLE):
        figure, axes = grid(len(models), len(scores), height=2.4)
        for line, one in enumerate(models):
            for column, score in enumerate(scores):
                axis = axes[line][column]
                values = {name: SCORES[score](outputs).numpy() for name, outputs in groups(one).items()}
                edges = np.histogram_bin_edges(np.concatenate(list(values.values())), 40)
                for number, (name, each) in enumerate(values.items()):
                    style: dict[str, Any] = {"color": colour(number), "label": name, "fill": number == 0}
                    if number:
                        style |= {"ls": LINES[(number - 1) % len(LINES)], "lw": 1.3}
                    share = np.histogram(each, edges)[0] / len(each)
                    axis.stairs(share, edges, alpha=1 if number else 0.35, **style)
                axis.set(title=f"{symbol(one.model)}: {symbol(score)}", yticks=[])
                label(axis, symbol(score) if line == len(models) - 1 else "", "" if column else "share of images")
        for panels in zip(*axes, strict=True):  # g, h and U have a unit each
            share_range([panels], "x")
        share_range(axes, "y")
        legend(figure, axes[0][0])
    return figure


def shift_plane(models: Sequence[ModelOutputs], most: int = 150) -> Figure:
    """g against h as percentiles of the clean data: covariate shift moves left, concept shift moves down."""
    with mpl.rc_context(STYLE):
        figure, axes = grid(1, len(models), height=4.4)
        for column, one in enumerate(models):
            axis = axes[0][column]
            reference = {score: SCORES[score](one.clean).numpy() for score in ("g", "h")}
            for number, (name, outputs) in enumerate(groups(one).items()):
                x, y = (_percentile(reference[score], SCORES[score](outputs)) for score in ("g", "h"))
                few = np.linspace(0, outputs.N - 1, min(most, outputs.N)).astype(int)
                style: dict[str, Any] = {"color": colour(number), "marker": MARKERS[number % len(MARKERS)]}
                axis.scatter(x[few], y[few], s=8, alpha=DOTS, lw=0, **style)
                middle, spread = [np.median(v) for v in (x, y)], [_middle_half(v) for v in (x, y)]
                style |= {"ms": 9, "mec": INK, "ls": "", "elinewidth": 1.2, "zorder": 4, "label": name}
                axis.errorbar(middle[0], middle[1], xerr=spread[0], yerr=spread[1], **style)
            axis.set(title=symbol(one.model), xlim=(-2, 102), ylim=(-2, 102))
            label(axis, "g: percentile among clean images", "" if column else "h: percentile among clean images")
        legend(figure, axes[0][0])
    return figure


def _roc(axis: Axes, inside: Tensor, outside: Tensor, score: str, number: int) -> None:
    truth = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    false, true, _ = roc_curve(truth, torch.cat([inside, outside]).numpy())
    # at most 200 points, dense where curves are steep; linear between steps, as ties are counted
    x: Floats = np.union1d(np.linspace(0, 1, 150) ** 2, 1 - np.linspace(0, 1, 50) ** 2)
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "ls": LINES[number % len(LINES)]}
    text = f"{symbol(score)} {metrics.auroc(inside, outside):.3f}"
    axis.plot(np.r_[0.0, x], np.r_[0.0, np.interp(x, false, true)], lw=1.2, label=text, **style)


def _reliability(
    axis: Axes, probabilities: Tensor, labels: Tensor, names: tuple[str, str], number: int, bins: int
) -> None:
    """Accuracy against confidence with Wilson's intervals, and along the foot how many images each bin holds."""
    found = metrics.reliability(probabilities, labels, bins)
    filled = found.count >= 5  # fewer say nothing about an accuracy
    x, y = found.confidence[filled], found.accuracy[filled]
    low, high = (bound[filled] for bound in found.intervals())
    style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "ms": 4, "elinewidth": 0.8}
    spread = np.abs(np.stack([y - low, high - y]))
    axis.errorbar(x, y, yerr=spread, lw=1, alpha=0.85, label=f"{names[0]}, {names[1]} {found.ece:.1%}", **style)
    axis.stairs(0.2 * found.count / found.count.sum(), found.edges, color=COLOURS[number], lw=0.8, alpha=0.7)


def _percentile(reference: NDArray[np.float32], values: Tensor) -> Floats:
    return 100 * np.searchsorted(np.sort(reference), values.numpy(), side="right") / len(reference)


def _middle_half(values: Floats) -> Floats:
    """How far the quartiles lie from the median, (2, 1) as error bars want them."""
    distance: Floats = np.abs(np.percentile(values, (25, 75)) - np.median(values))
    return distance[:, None]
