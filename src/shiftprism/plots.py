"""Rows and Outputs in, figures out. `svg` makes one that reads on paper, on a light page and on a dark one."""

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from torch import Tensor

from shiftprism import metrics
from shiftprism._checks import Floats
from shiftprism.benchmark import Evidence, Row, summarise
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES

# Okabe and Ito's palette: told apart with any kind of colour vision; the fourth is a little darker, to show on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C2A300", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_INK = "#010203"  # stands for the page's own text colour, which `svg` puts in its place
_STYLE: dict[Any, Any] = {  # matplotlib types its 300 keys one by one
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
}


def severity_curves(rows: Sequence[Row], scores: Sequence[str] = ("g", "h", "u", "msp")) -> Figure:
    """AUROC against severity, a panel for each model and corruption, a line a score; bands are ± one deviation."""
    found = summarise(rows)
    models = list(dict.fromkeys(row.model for row in rows))
    names = list(dict.fromkeys(row.shift for row in rows if row.kind == "covariate"))
    severities = sorted({row.severity for row in rows if row.kind == "covariate" and row.severity})
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(len(models), len(names))
        for line, model in enumerate(models):
            for column, name in enumerate(names):
                axis = axes[line][column]
                for number, score in enumerate(scores):
                    points = [found[model, name, severity, score, "auroc"] for severity in severities]
                    mean, std = np.array([p.mean for p in points]), np.array([p.std for p in points])
                    colour = COLOURS[number]
                    axis.plot(severities, mean, color=colour, marker=MARKERS[number], ms=4, label=score)
                    axis.fill_between(severities, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
                axis.axhline(0.5, color=_INK, lw=0.6, ls=":")
                axis.set(title=f"{model}: {_words(name)}", ylim=(-0.02, 1.02), xticks=severities)
                _label(axis, "severity" if line == len(models) - 1 else "", "AUROC" if column == 0 else "")
        _legend(figure, axes[0][0])
    return figure


def reliability_diagrams(evidence: Sequence[Evidence], bins: int = 15) -> Figure:
    """Accuracy against confidence on clean data and on all covariate shifts together, before and after calibration."""
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(len(evidence), 2, height=3.0)
        for line, one in enumerate(evidence):
            kept = [(outputs, labels) for shift, outputs, labels in one.shifted if shift.kind == "covariate"]
            sets = {"clean": [(one.clean, one.labels)], "corrupted": kept}
            for column, (name, parts) in enumerate(sets.items()):
                axis = axes[line][column]
                labels = torch.cat([labels for _, labels in parts])
                logits = {"uncalibrated": torch.cat([outputs.logits for outputs, _ in parts])}
                for method, fitted in one.calibrators.items():
                    logits[method] = torch.cat([fitted(outputs) for outputs, _ in parts])
                axis.plot([0, 1], [0, 1], color=_INK, lw=0.8, ls=":")
                for number, (method, values) in enumerate(logits.items()):
                    _reliability(axis, torch.softmax(values.double(), 1), labels, method, number, bins)
                axis.set(title=f"{one.model}: {name}", xlim=(0, 1), ylim=(0, 1))
                axis.legend(fontsize=8, loc="upper left")
                _label(axis, "confidence" if line == len(evidence) - 1 else "", "accuracy" if column == 0 else "")
    return figure


def score_histograms(evidence: Sequence[Evidence], scores: Sequence[str] = ("g", "h", "u")) -> Figure:
    """How each score is spread over clean data, unseen concepts and the severest corruptions."""
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(len(evidence), len(scores), height=2.4)
        for line, one in enumerate(evidence):
            for column, score in enumerate(scores):
                axis = axes[line][column]
                groups = {name: SCORES[score](outputs).numpy() for name, outputs in _groups(one).items()}
                edges = np.histogram_bin_edges(np.concatenate(list(groups.values())), 40)
                for number, (name, values) in enumerate(groups.items()):
                    share = np.histogram(values, edges)[0] / len(values)
                    axis.stairs(
                        share,
                        edges,
                        color=_colour(number),
                        label=name,
                        fill=number == 0,
                        alpha=0.35 if number == 0 else 1,
                    )
                axis.set(title=f"{one.model}: {score}", yticks=[])
                _label(axis, score if line == len(evidence) - 1 else "", "share of images" if column == 0 else "")
        _legend(figure, axes[0][0])
    return figure


def shift_plane(evidence: Sequence[Evidence], most: int = 250) -> Figure:
    """g against h as percentiles of the clean data: covariate shift moves left, concept shift moves down."""
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(1, len(evidence), height=4.0, width=4.2)
        for column, one in enumerate(evidence):
            axis = axes[0][column]
            reference = {score: SCORES[score](one.clean).numpy() for score in ("g", "h")}
            for number, (name, outputs) in enumerate(_groups(one).items()):
                x, y = (_percentile(reference[score], SCORES[score](outputs)) for score in ("g", "h"))
                few = np.linspace(0, outputs.N - 1, min(most, outputs.N)).astype(int)
                look: dict[str, Any] = {"color": _colour(number), "marker": MARKERS[number]}
                axis.scatter(x[few], y[few], s=5, alpha=0.35, lw=0, rasterized=True, **look)
                middle, spread = [np.median(v) for v in (x, y)], [_middle_half(v) for v in (x, y)]
                look |= {"ms": 9, "mec": _INK, "ls": "", "elinewidth": 1.2, "zorder": 4, "label": name}
                axis.errorbar(middle[0], middle[1], xerr=spread[0], yerr=spread[1], **look)
            axis.set(title=one.model, xlim=(-2, 102), ylim=(-2, 102))
            _label(axis, "g: percentile among clean images", "h: percentile among clean images" if column == 0 else "")
        _legend(figure, axes[0][0])
    return figure


def svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element whose ink is the page's text colour; `name` keeps the ids of figures apart."""
    buffer = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", transparent=True, dpi=150, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(
        r'<g id="[a-zA-Z0-9.]+_\d+">', "<g>", text
    )  # ids that repeat in every figure and that nothing refers to
    # the page scales it: a width in points would not shrink on a phone
    return re.sub(r'<svg ([^>]*?)width="([\d.]+)pt" height="[\d.]+pt"', r'<svg \1style="max-width:\2pt"', text, count=1)


def _groups(one: Evidence) -> dict[str, Outputs]:
    severest = max((shift.severity for shift, _, _ in one.shifted), default=0)
    groups = {"clean": one.clean}
    for shift, outputs, _ in one.shifted:
        if shift.severity in (0, severest):
            groups[_words(shift.name) + (f" {shift.severity}" if shift.severity else "")] = outputs
    return groups


def _reliability(axis: Axes, probabilities: Tensor, labels: Tensor, method: str, number: int, bins: int) -> None:
    """Accuracy against confidence with Wilson's intervals, and along the foot how many images each bin holds."""
    found = metrics.reliability(probabilities, labels, bins)
    filled = found.count >= 5  # fewer say nothing about an accuracy
    x, y = found.confidence[filled], found.accuracy[filled]
    low, high = (bound[filled] for bound in found.intervals())
    look: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "ms": 4, "elinewidth": 0.8}
    spread = np.abs(np.stack([y - low, high - y]))
    axis.errorbar(x, y, yerr=spread, lw=1, alpha=0.85, label=f"{method}, ECE {found.ece:.1%}", **look)
    axis.stairs(0.2 * found.count / found.count.sum(), found.edges, color=COLOURS[number], lw=0.8, alpha=0.7)


def _percentile(reference: NDArray[np.float32], values: Tensor) -> Floats:
    return 100 * np.searchsorted(np.sort(reference), values.numpy(), side="right") / len(reference)


def _middle_half(values: Floats) -> Floats:
    """How far the quartiles lie from the median, (2, 1) as error bars want them."""
    distance: Floats = np.abs(np.percentile(values, (25, 75)) - np.median(values))
    return distance[:, None]


def _grid(lines: int, columns: int, height: float = 2.3, width: float = 3.0) -> tuple[Figure, list[list[Axes]]]:
    layout = ConstrainedLayoutEngine(h_pad=0.08)  # a title must not touch the axis above it
    figure = Figure(figsize=(width * columns, height * lines + 0.4), layout=layout)
    return figure, [list(line) for line in figure.subplots(lines, columns, squeeze=False)]


def _label(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5))


def _colour(number: int) -> str:
    """Grey for the clean data, which comes first, then the palette."""
    return "#7F7F7F" if number == 0 else COLOURS[number - 1]


def _words(name: str) -> str:
    return name.replace("_", " ")
