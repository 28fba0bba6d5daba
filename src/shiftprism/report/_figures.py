"""Which figures a folder of results gets: what each is called, where it stands and how to read it."""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from shiftprism import benchmark, plots
from shiftprism.benchmark import Evidence, Results, Row

LADDERS = ("motion_blur", "zoom_blur", "shot_noise", "concept-splits")
"""The paper's own, drawn in full; the others have their small panel in the overview."""


class Drawing(NamedTuple):
    """A figure to be: `draw` raises FileNotFoundError where what it needs is not stored."""

    stem: str
    section: str
    title: str
    text: str
    draw: Callable[[], Figure]


def drawings(folder: Path, results: Results) -> list[Drawing]:
    """The figures of every data set in the results."""
    found = []
    for data in dict.fromkeys(row.data for row in results.rows if row.model not in _APART):
        own = [row for row in results.rows if row.data == data and row.model not in _APART]
        protocols = dict.fromkeys(row.protocol for row in own)
        protocol = "held-out" if "held-out" in protocols else next(iter(protocols))
        rows = [row for row in own if row.protocol == protocol]
        found += _from_rows(data, rows) + _from_outputs(folder, data, rows) + _of_the_paper(folder, data)
    return found


_APART = ("pixels", "features-3d")  # no models to compare
_BANDS = "Bands: one standard deviation over seeds, over resampled images where there is one seed."


def _from_rows(data: str, rows: Sequence[Row]) -> list[Drawing]:
    ladders = _ladders(rows, "auroc")
    found = []
    if ladders:
        text = f"U, the combined score, on every corruption and ladder; up is better, ½ is chance. {_BANDS}"
        draw = partial(plots.severity_overview, rows)
        found.append(Drawing(_stem(data, "overview"), "detect", f"Every ladder at a glance ({data})", text, draw))
    for number, shift in enumerate([name for name in LADDERS if name in ladders] or ladders[:4]):
        title = f"g, h and U against the severity of {plots.words(shift)} ({data})"
        text = f"Left: the covariate score g and the concept score h of each model. Right: U, both combined. {_BANDS}"
        curves = partial(plots.severity_curves, rows, [shift])
        found.append(Drawing(_stem(data, "severity", shift), "shift", title, "" if number else text, curves))
    if any(row.metric == "median" and row.model == "alpha-beta" for row in rows):
        title = f"α, β and |f| against shift ({data}, α-β model)"
        text = f"The median over the images of each set; marks at the right are data sets without a scale. {_BANDS}"
        few = [name for name in (*LADDERS, "gaussian_noise", "contrast") if name in _ladders(rows, "median")]
        scales = partial(plots.scale_curves, rows, "alpha-beta", few)
        found.append(Drawing(_stem(data, "scales"), "shift", title, text, scales))
    return found


def _stem(*names: str) -> str:
    """A name fit for a file, whatever a data set is called."""
    return re.sub(r"[^\w.-]+", "-", "-".join(names))


def _ladders(rows: Sequence[Row], metric: str) -> list[str]:
    steps: dict[str, set[int]] = {}
    for row in rows:
        if row.metric == metric and row.severity:
            steps.setdefault(row.shift, set()).add(row.severity)
    return [shift for shift, severities in steps.items() if len(severities) > 1]


def _from_outputs(folder: Path, data: str, rows: Sequence[Row]) -> list[Drawing]:
    models = list(dict.fromkeys(row.model for row in rows if row.subject == "g" and row.metric == "auroc"))
    models = [model for model in ("vanilla", "alpha-beta") if model in models] or models[:2]
    if not models:
        return []

    @cache
    def evidence() -> tuple[Evidence, ...]:
        return tuple(benchmark.evidence(folder, model, data=data) for model in models)

    one = "One model of each kind, the first seed."
    return [
        Drawing(
            _stem(data, "roc"),
            "detect",
            f"What is kept against what is let through ({data})",
            f"Each point is a threshold; the higher the curve the better. The numbers are AUROCs. {one}",
            lambda: plots.roc_curves(evidence()),
        ),
        Drawing(
            _stem(data, "plane"),
            "shift",
            f"The shift plane ({data})",
            "Each dot is an image, placed by its rank among the clean images; large marks are medians, with the middle "
            "half of the images along the bars. Style shift should move images left (small g), an unseen concept down "
            f"(small h). {one}",
            lambda: plots.shift_plane(evidence()),
        ),
        Drawing(
            _stem(data, "scores"),
            "shift",
            f"How the scores are spread ({data})",
            f"Higher is more in-distribution, for every score. {one}",
            lambda: plots.score_histograms(evidence()),
        ),
        Drawing(
            _stem(data, "reliability"),
            "trust",
            f"Is a confidence of 80 % right 80 % of the time? ({data})",
            "On the dotted line it is; below it the model is over-confident. Bars are 95 % intervals; the steps at the "
            f"foot count the images. {one}",
            lambda: plots.reliability_diagrams(evidence()),
        ),
    ]


def _of_the_paper(folder: Path, data: str) -> list[Drawing]:
    def pixels() -> Figure:
        return plots.pixel_histograms(json.loads((folder / "pixels.json").read_text(encoding="utf-8"))[data])

    return [
        Drawing(
            _stem(data, "features-3d"),
            "paper",
            f"A feature space of three dimensions ({data}; the paper's Fig. 5)",
            "Each dot is a clean image in a model with three features, each class a colour and a shape; crosses are "
            "images under Gaussian noise. The paper saw them gather around the origin. Two views of the same space.",
            lambda: _features(benchmark.evidence(folder, "features-3d", data=data)),
        ),
        Drawing(
            _stem(data, "pixels"),
            "paper",
            f"Pixel values of the data sets ({data}; the paper's Fig. 5)",
            "Sets of the same style have like histograms: the paper takes this for a sign of pure concept shift.",
            pixels,
        ),
    ]


def _features(found: Evidence) -> Figure:
    noised = [(shift.severity, outputs) for shift, outputs, _ in found.shifted if shift.name == "gaussian_noise"]
    if not noised:
        raise FileNotFoundError("the model of three features was not run on gaussian_noise")
    severity, outputs = max(noised, key=lambda part: part[0])
    few = found.labels < 10  # no eye tells a hundred classes apart
    names = [f"class {number}" for number in range(min(found.clean.K, 10))]
    return plots.feature_space(
        found.clean.features[few], found.labels[few], outputs.features, names, f"gaussian noise {severity}"
    )
