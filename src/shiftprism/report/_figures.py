"""The figures of a folder of results: the name of each, its section of the page and how to read it."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from matplotlib.figure import Figure

from shiftprism import plots
from shiftprism.plots import ModelOutputs
from shiftprism.report._table import Section
from shiftprism.report._tables import APART, OURS, rank_scores, whole_sets
from shiftprism.rows import Effect, Measured, Results, ResultsFolder, Row, file_stem

LADDERS = ("motion_blur", "zoom_blur", "shot_noise", "concept-splits")
"""The paper's own ladders, drawn in full; the others have a small panel in the overview."""

SCALES = {"alpha": "α", "beta": "β", "norm": "|f|"}
"""What medians are drawn of, where there are some."""

_LEADING = 12
"""How many scores the figure of the best ones shows."""


class Drawing(NamedTuple):
    """A figure to draw. `draw` raises FileNotFoundError where the data for it are not stored."""

    stem: str
    section: Section
    title: str
    text: str
    draw: Callable[[], Figure]


def list_drawings(folder: ResultsFolder, results: Results) -> list[Drawing]:
    """The figures of every data set in the results."""
    drawings = []
    for data in dict.fromkeys(row.data for row in results.rows if row.model not in APART):
        own = [row for row in results.rows if row.data == data and row.model not in APART]
        protocols = dict.fromkeys(row.protocol for row in own)
        protocol = "held-out" if "held-out" in protocols else next(iter(protocols))
        rows = [row for row in own if row.protocol == protocol]
        drawings += _drawings_of_ranking(data, results.where(data=data, protocol=protocol))
        drawings += _drawings_of_rows(data, rows) + _drawings_of_outputs(folder, data, rows)
        drawings += _drawings_of_paper(folder, data)
    return drawings


def _drawings_of_ranking(data: str, results: Results) -> list[Drawing]:
    """The best scores with their intervals, where there are several to compare."""
    (measured,) = Measured.split(results)
    sets = whole_sets(measured)
    ranking = rank_scores(measured, sets)
    best = {subject: model for (model, subject), *_ in reversed(ranking)}  # a model that comes first stays
    chosen = [one for one in ranking if one.pair == OURS or best[one.pair[1]] == one.pair[0]][:_LEADING]
    ours = [one for one in ranking if one.pair == OURS]
    if len(chosen) < 2 or len(sets) < 2:
        return []
    if ours and ours[0] not in chosen:
        chosen[-1:] = ours

    def describe(model: str, subject: str) -> str:
        return f"{plots.symbol(subject)}, {plots.symbol(model)}"

    def effects(model: str, subject: str) -> dict[str, Effect]:
        found = {name: measured.effect(model, name, 0, subject, "auroc") for name in sets}
        return {name: effect for name, effect in found.items() if effect is not None}

    lines = {describe(*one.pair): effects(*one.pair) | {f"mean of {len(sets)}": one.effect} for one in chosen}
    text = (
        "AUROC with its 95 % interval over seeds and images, the highest mean at the top. Each score stands here with "
        "the model in which its mean is highest, so small differences between the first lines say little. A hollow dot "
        "has one seed: its interval is over images alone, and it decides nothing."
        + (" The other colour is U of α-β." if ours else "")
    )
    draw = partial(plots.interval_dots, lines, [describe(*OURS)])
    return [Drawing(file_stem(data, "best-scores"), "detect", f"The best scores ({data})", text, draw)]


def _drawings_of_rows(data: str, rows: Sequence[Row]) -> list[Drawing]:
    # a head without class weights has no h and U, and a benchmark may measure other scores alone
    ladders = _ladders([row for row in rows if row.subject in ("g", "h", "u")], "auroc")
    bands = plots.describe_bands(rows)
    drawings = []
    if _ladders([row for row in rows if row.subject == "u"], "auroc"):
        text = f"AUROC of U, the combined score, on every corruption and ladder; up is better, ½ is chance. {bands}"
        draw = partial(plots.severity_overview, rows)
        drawings.append(
            Drawing(file_stem(data, "overview"), "detect", f"Every ladder at a glance ({data})", text, draw)
        )
    for number, shift in enumerate([name for name in LADDERS if name in ladders] or ladders[:4]):
        title = f"AUROC of g, h and U against the severity of {plots.symbol(shift)} ({data})"
        text = (
            "AUROC of the covariate score g and the concept score h of each model; last, of U, which combines both. "
            f"The AUROC of a good score rises with severity. {bands}"
        )
        curves = partial(plots.severity_curves, rows, [shift])
        drawings.append(Drawing(file_stem(data, "severity", shift), "shift", title, bands if number else text, curves))
    drawn = [row for row in rows if row.subject in ("u", "h")]
    if any(len(epochs) > 1 for epochs in plots.list_epochs(drawn).values()):
        text = (
            "AUROC of the combined score U and the concept score h at checkpoints of one training run of each seed. At "
            "early ones the learning rate is still high, so a run of that length is another network. Each panel has "
            "a range of its own."
        )
        draw = partial(plots.epoch_curves, rows)
        drawings.append(Drawing(file_stem(data, "epochs"), "detect", f"AUROC against epochs ({data})", text, draw))
    medians = {row.subject for row in rows if row.metric == "median" and row.model == "alpha-beta"}
    if medians:
        *first, last = (sign for name, sign in SCALES.items() if name in medians)
        title = f"{' and '.join(filter(None, (', '.join(first), last)))} against shift ({data}, α-β model)"
        bands = plots.describe_bands(rows, "median", ["alpha-beta"])
        text = f"The median over the images of each set; marks at the right are data sets without a scale. {bands}"
        few = [name for name in (*LADDERS, "gaussian_noise", "contrast") if name in _ladders(rows, "median")]
        scales = partial(plots.scale_curves, rows, "alpha-beta", few)
        drawings.append(Drawing(file_stem(data, "scales"), "shift", title, text, scales))
    return drawings


def _ladders(rows: Sequence[Row], metric: str) -> list[str]:
    steps: dict[str, set[int]] = {}
    for row in rows:
        if row.metric == metric and row.severity:
            steps.setdefault(row.shift, set()).add(row.severity)
    return [shift for shift, severities in steps.items() if len(severities) > 1]


def _drawings_of_outputs(folder: ResultsFolder, data: str, rows: Sequence[Row]) -> list[Drawing]:
    models = list(dict.fromkeys(row.model for row in rows if row.subject == "g" and row.metric == "auroc"))
    models = [model for model in ("vanilla", "alpha-beta") if model in models] or models[:2]
    if not models:
        return []

    @cache
    def outputs() -> tuple[ModelOutputs, ...]:
        return tuple(plots.read_model_outputs(folder.path, model, data=data) for model in models)

    one = "One model of each kind, the first seed."
    return [
        Drawing(
            file_stem(data, "roc"),
            "detect",
            f"ID images kept against shifted images let through ({data})",
            f"Each point is a threshold; the higher the curve the better. The numbers are AUROCs. {one}",
            lambda: plots.roc_curves(outputs()),
        ),
        Drawing(
            file_stem(data, "plane"),
            "shift",
            f"The shift plane ({data})",
            "Each dot is an image, placed by its rank among the clean images; large marks are medians, with the middle "
            "half of the images along the bars. Style shift should move images left (small g), an unseen concept down "
            f"(small h). {one}",
            lambda: plots.shift_plane(outputs()),
        ),
        Drawing(
            file_stem(data, "scores"),
            "shift",
            f"The distribution of the scores ({data})",
            f"Higher is more in-distribution, for every score. {one}",
            lambda: plots.score_histograms(outputs()),
        ),
        Drawing(
            file_stem(data, "reliability"),
            "trust",
            f"Is a confidence of 80 % right 80 % of the time? ({data})",
            "On the dotted line it is; below it the model is over-confident. Bars are 95 % intervals; the steps at the "
            "foot count the images. The pooled ECE is that of all corrupted images together; the table has another "
            "number, the mean of the ECEs at each corruption and severity. Drawn from the outputs that are stored: "
            f"where these are a part of the images, the ECEs differ a little from the table's. {one}",
            lambda: plots.reliability_diagrams(outputs()),
        ),
    ]


def _drawings_of_paper(folder: ResultsFolder, data: str) -> list[Drawing]:
    """The paper's Fig. 5."""

    return [
        Drawing(
            file_stem(data, "features-3d"),
            "paper",
            f"A feature space of three dimensions ({data}; the paper's Fig. 5)",
            "Each dot is a clean image in a model with three features, each class a colour and a shape; crosses are "
            "images under Gaussian noise. The paper saw them gather around the origin. Two views of the same space.",
            lambda: _draw_features(plots.read_model_outputs(folder.path, "features-3d", data=data)),
        ),
        Drawing(
            file_stem(data, "pixels"),
            "paper",
            f"Pixel values of the data sets ({data}; the paper's Fig. 5)",
            "Sets of the same style have similar histograms: the paper takes this as a sign of pure concept shift.",
            lambda: plots.pixel_histograms(folder.read_pixels(data)),
        ),
    ]


def _draw_features(model: ModelOutputs) -> Figure:
    noised = [(one.severity, outputs) for one, outputs, _ in model.shifted if one.shift == "gaussian_noise"]
    if not noised:
        raise FileNotFoundError("the model of three features was not run on gaussian_noise")
    severity, outputs = max(noised, key=lambda part: part[0])
    few = model.labels < 10  # no eye tells a hundred classes apart
    names = [f"class {number}" for number in range(min(model.clean.K, 10))]
    clean, labels, noise = model.clean.features[few], model.labels[few], f"gaussian noise {severity}"
    return plots.feature_space(clean, labels, outputs.features, names, noise)
