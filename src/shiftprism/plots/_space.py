"""The paper's Fig. 5: a feature space one can look at, and the pixels of the data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import ArrayLike, NDArray

from shiftprism._checks import Floats, array_of, classes, matrix, wrong
from shiftprism.plots._style import COLOURS, INK, LINES, MARKERS, STYLE, WIDTH, grid, label, legend, share_range

_VIEWS = ((22, -60), (22, 30))
_CHANNELS = {1: ("grey",), 3: ("red", "green", "blue")}


def feature_space(
    clean_features: ArrayLike,
    labels: ArrayLike,
    noised_features: ArrayLike,
    names: Sequence[str],
    noise: str = "noised",
    most: int = 60,
) -> Figure:
    """Three features of clean images, a colour and marker a class, and of noised ones as crosses, from two sides.

    Shapes: (N, 3), (N,), (M, 3). At most `most` images of a class are drawn. Small norms lie close to the origin,
    which is marked.
    """
    clean, noised = _three("clean_features", clean_features), _three("noised_features", noised_features)
    numbers = classes("labels", labels, len(clean), len(names))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.8), layout=ConstrainedLayoutEngine())
        for place, (up, around) in enumerate(_VIEWS):
            axis: Any = figure.add_subplot(1, 2, place + 1, projection="3d")  # its methods carry no types
            for number, name in enumerate(names):
                x, y, z = clean[numbers == number][:most].T
                style = {"c": COLOURS[number % len(COLOURS)], "marker": MARKERS[(number + number // 7) % len(MARKERS)]}
                axis.scatter(x, y, z, s=9, alpha=0.75, lw=0, label=name, depthshade=False, **style)
            x, y, z = noised[: 5 * most].T
            axis.scatter(x, y, z, s=12, c=INK, marker="x", lw=0.7, alpha=0.8, label=noise, depthshade=False)
            axis.plot([0], [0], [0], marker="+", ms=10, mew=1.5, color=INK, ls="", label="origin")
            axis.set_aspect("equal")  # else what is close to the origin depends on the axis
            axis.view_init(elev=up, azim=around)
            axis.tick_params(labelsize=7, pad=-2)
            for side in (axis.xaxis, axis.yaxis, axis.zaxis):
                side.set_pane_color((0, 0, 0, 0))
                side._axinfo["grid"].update(color="#8888", linewidth=0.5)  # the only door matplotlib has to it
            if place == 0:
                legend(figure, axis, columns=6, scale=1.6)
    return figure


def pixel_histograms(images: Mapping[str, ArrayLike], bins: int = 64) -> Figure:
    """How often each brightness occurs in each data set, a panel a channel.

    A set is its images, uint8 of shape (N, C, H, W), or `pixel_counts` of them, (C, 256).
    """
    counts = {name: _counts(name, each) for name, each in images.items()}
    if len({len(each) for each in counts.values()}) != 1:
        got = ", ".join(f"{len(each)} in {name}" for name, each in counts.items()) or "no images"
        raise wrong("images", "sets with the same channels", got, "draw grey and colour images apart")
    channels = _CHANNELS.get(len(next(iter(counts.values()))), tuple(f"channel {i}" for i in range(9)))
    with mpl.rc_context(STYLE):
        figure, axes = grid(1, len(next(iter(counts.values()))), height=2.4)
        edges = np.linspace(0, 256, bins + 1)
        for column, axis in enumerate(axes[0]):
            for number, (name, each) in enumerate(counts.items()):
                share = each[column].reshape(bins, -1).sum(1) / each[column].sum()
                style: dict[str, Any] = {"color": COLOURS[number % 7], "ls": LINES[number % 4], "lw": 1.4}
                axis.stairs(share, edges, baseline=None, label=name, **style)
            axis.set(title=channels[column], yticks=[], xticks=(0, 64, 128, 192, 255))
            label(axis, "pixel value", "" if column else "share of pixels")
        share_range(axes, "y")
        legend(figure, axes[0][0])
    return figure


def pixel_counts(images: ArrayLike) -> NDArray[np.int64]:
    """(C, 256): how often each value occurs in each channel of uint8 images (N, C, H, W).

    >>> pixel_counts(np.full((2, 1, 4, 4), 7, dtype=np.uint8))[0, 7]
    np.int64(32)
    """
    array = array_of("images", images)
    if array.ndim != 4 or array.dtype != np.uint8:
        raise wrong(
            "images", "uint8 of shape (N, C, H, W)", f"{array.dtype} of shape {array.shape}", "scale to 0 … 255"
        )
    return np.stack([np.bincount(array[:, c].ravel(), minlength=256) for c in range(array.shape[1])])


def _counts(name: str, given: ArrayLike) -> NDArray[np.int64]:
    array = array_of(name, given)
    if array.ndim == 2 and array.shape[1] == 256:
        return array.astype(np.int64)
    return pixel_counts(array)


def _three(argument: str, values: ArrayLike) -> Floats:
    found = matrix(argument, values)
    if found.shape[1] != 3:
        advice = "train a model with a -3d backbone"
        raise wrong(argument, "of shape (N, 3)", f"shape {found.shape}", advice)
    return found
