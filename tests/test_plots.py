"""Figures show the numbers they are given, and read as text on paper, on a light page and on a dark one."""

import contextlib
import re
import xml.etree.ElementTree as tree
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from outputs_examples import made_outputs
from rows_examples import made_results, row
from shiftprism import metrics, plots
from shiftprism.plots import ModelOutputs
from shiftprism.report._figures import list_drawings
from shiftprism.rows import Effect, Results, ResultsFolder, Row
from shiftprism.scores import SCORES


@pytest.fixture(scope="module")
def results() -> Results:
    return made_results()


@pytest.fixture(scope="module")
def models() -> list[ModelOutputs]:
    return [made_outputs("vanilla"), made_outputs("alpha-beta")]


def line(axis: Axes, name: str) -> tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", ...]:
    (found,) = [each for each in axis.get_lines() if str(each.get_label()).startswith(name)]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def titles(figure: Figure) -> list[str]:
    return [axis.get_title() for axis in figure.axes]


def check_svg(figure: Figure) -> None:
    """Whole XML, words as text, the page's ink, nothing from outside."""
    text = plots.svg(figure, "name")
    found = tree.fromstring(text)
    assert len(found.findall(".//{http://www.w3.org/2000/svg}text")) > 5
    assert "currentColor" in text
    assert "#010203" not in text
    assert not re.search(r'(href|src)="(?!#|data:image/png)', text)
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    assert not ids & set(re.findall(r'\bid="([^"]+)"', plots.svg(figure, "another")))


def test_severity_curves_show_means_and_deviations_of_the_rows(results: Results) -> None:
    figure = plots.severity_curves(results.rows, ["motion_blur"])
    assert titles(figure)[0] == "vanilla: motion blur"
    assert titles(figure)[-2:] == ["α-β: motion blur", "U: motion blur"]
    assert len(figure.axes) == 5
    wanted = [
        [
            r.value
            for r in results.where(model="vanilla", shift="motion_blur", severity=s, subject="h", metric="auroc").rows
        ]
        for s in range(1, 6)
    ]
    x, y = line(figure.axes[0], "h")
    assert x.tolist() == [1, 2, 3, 4, 5]
    assert y == pytest.approx([fmean(values) for values in wanted])
    top = figure.axes[0].collections[1].get_paths()[0].vertices  # the band of h
    assert np.max(np.asarray(top)[:, 1]) == pytest.approx(max(fmean(v) + stdev(v) for v in wanted))
    assert line(figure.axes[4], "U, α-β")[1] == pytest.approx(
        [
            fmean(r.value for r in results.where(model="alpha-beta", shift="motion_blur", severity=s, subject="u").rows)
            for s in range(1, 6)
        ]
    )
    check_svg(figure)


def test_a_single_seed_has_the_band_of_its_images() -> None:
    rows = [row("vanilla", "fog", s, score, "auroc", 0.6, error=0.03) for s in (1, 2) for score in "ghu"]
    vertices = np.asarray(plots.severity_curves(rows, ["fog"]).axes[0].collections[0].get_paths()[0].vertices)
    assert (vertices[:, 1].min(), vertices[:, 1].max()) == pytest.approx((0.57, 0.63))


def test_the_caption_says_what_the_bands_are() -> None:
    """Over seeds or over images: that which is drawn, and not both."""
    images = "over resampled images, because there is one seed"
    assert plots.describe_bands(made_results(3).rows) == "Bands: ± one standard deviation over 3 seeds."
    assert plots.describe_bands(made_results(1).rows).startswith(f"Bands: ± one standard deviation {images}")
    mixed = made_results(3).where(model="vanilla").rows + made_results(1).where(model=("alpha", "alpha-beta")).rows
    words = plots.describe_bands(mixed)
    assert words.startswith(f"Bands: ± one standard deviation over 3 seeds; of α only, α-β {images}")
    assert plots.describe_bands(mixed, models=["vanilla"]) == "Bands: ± one standard deviation over 3 seeds."


def test_a_grid_of_panels_has_one_range(results: Results, models: list[ModelOutputs]) -> None:
    curves = plots.severity_curves(results.rows, ["motion_blur", "concept-splits"])
    assert len({axis.get_ylim() for axis in curves.axes}) == 1
    histograms = plots.score_histograms(models).axes
    assert len({axis.get_ylim() for axis in histograms}) == 1
    assert all(histograms[i].get_xlim() == histograms[i + 3].get_xlim() for i in range(3))  # a score in both models
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    images[:, 1] = torch.arange(16).reshape(4, 4)
    assert len({axis.get_ylim() for axis in plots.pixel_histograms({"one": images}).axes}) == 1


def test_figures_have_the_width_of_the_page(results: Results, models: list[ModelOutputs]) -> None:
    figures = [plots.severity_overview(results.rows), plots.severity_curves(results.rows, ["fog"], ["vanilla"])]
    figures += [plots.reliability_diagrams(models), plots.shift_plane(models[:1]), plots.score_histograms(models)]
    assert len({figure.get_figwidth() for figure in figures}) == 1


def test_dots_show_on_both_papers(models: list[ModelOutputs]) -> None:
    for dots in plots.shift_plane(models).axes[0].collections:
        colours = np.asarray(dots.get_facecolor())
        if len(colours) == 1 and len(np.asarray(dots.get_offsets())) > 1:  # the dots, not the bars
            red, green, blue, opacity = colours[0]
            for paper in ("#ffffff", "#14181c"):
                seen = [
                    opacity * ink + (1 - opacity) * p for ink, p in zip((red, green, blue), to_rgb(paper), strict=True)
                ]
                light, dark = sorted((luminance(to_hex((seen[0], seen[1], seen[2]))), luminance(paper)), reverse=True)
                assert (light + 0.05) / (dark + 0.05) > 1.6


def test_what_was_not_measured_is_not_drawn() -> None:
    rows = [row("vanilla", "fog", s, "g", "auroc", 0.6) for s in (1, 2, 3)]
    figure = plots.severity_curves(rows, ["fog"])
    assert len(line(figure.axes[0], "h")[0]) == 0
    check_svg(figure)
    with pytest.raises(ValueError, match="AUROC of u at several severities"):
        plots.severity_overview(rows)
    with pytest.raises(ValueError, match=r"medians of α, β or \|f\| of alpha-beta"):
        plots.scale_curves(rows)


def test_the_overview_has_a_panel_for_every_ladder_and_one_scale(results: Results) -> None:
    figure = plots.severity_overview(results.rows)
    assert titles(figure) == ["shot noise", "motion blur", "zoom blur", "fog", "concept-splits"]
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    assert len(line(figure.axes[-1], "vanilla")[0]) == 10
    markers = {drawn.get_marker() for drawn in figure.axes[0].get_lines()} - {None, "None"}
    assert len(markers) == 4  # told apart without colour
    check_svg(figure)


def test_scales_begin_at_the_clean_median() -> None:
    def median(shift: str, severity: int, value: float, kind: str, scale: str = "alpha") -> object:
        return row("alpha-beta", shift, severity, scale, "median", value, kind=kind)

    rows: list[object] = [median("clean", 0, 0.2, "none"), median("svhn", 0, 0.9, "both")]
    rows += [median("fog", severity, 0.2 + 0.1 * severity, "covariate") for severity in (1, 2, 3, 4, 5)]
    figure = plots.scale_curves(rows)  # type: ignore[arg-type]
    x, y = line(figure.axes[0], "fog")
    assert x == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert y == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["clean", "½", "1", "svhn"]
    assert titles(figure) == ["median of α"]
    check_svg(figure)


def test_the_area_under_a_drawn_roc_is_its_auroc(models: list[ModelOutputs]) -> None:
    figure = plots.roc_curves(models, ("g", "h", "msp"))
    assert titles(figure)[0] == "vanilla: unseen digits"
    (unseen,) = [outputs for condition, outputs, _ in models[1].shifted if condition.shift == "unseen digits"]
    for score in ("g", "h", "msp"):
        x, y = line(figure.axes[4], score)
        exact = metrics.auroc(SCORES[score](models[1].clean), SCORES[score](unseen))
        assert float(np.trapezoid(y, x)) == pytest.approx(exact, abs=0.003)
    check_svg(figure)


def test_a_figure_takes_few_sets_and_the_severest(models: list[ModelOutputs]) -> None:
    assert list(plots.groups(models[0])) == [
        "clean",
        "unseen digits",
        "photographs",
        "motion blur 5",
        "gaussian noise 5",
    ]
    assert list(plots.groups(models[0], most=3)) == ["clean", "unseen digits", "motion blur 5"]
    assert plots.groups(models[0])["clean"] is models[0].clean


def test_reliability_tells_the_ece_before_and_after(models: list[ModelOutputs]) -> None:
    figure = plots.reliability_diagrams(models)
    assert titles(figure) == ["vanilla: clean", "vanilla: corrupted", "α-β: clean", "α-β: corrupted"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    p = torch.softmax(models[0].clean.logits.double(), 1)
    assert shown[0] == f"uncalibrated, ECE {metrics.ece(p, models[0].labels):.1%}"
    after = models[0].calibrators["temperature"].probabilities(models[0].clean)
    assert shown[1] == f"temperature, ECE {metrics.ece(after, models[0].labels):.1%}"
    other = figure.axes[1].get_legend()
    assert other is not None
    assert "uncalibrated, pooled ECE " in other.get_texts()[0].get_text()  # the table has the mean over conditions
    check_svg(figure)
    bare = models[0]._replace(shifted=[], calibrators={})
    assert titles(plots.reliability_diagrams([bare]))[0] == "vanilla: clean"


def test_histograms_and_plane_are_drawn_for_every_model(models: list[ModelOutputs]) -> None:
    assert titles(plots.score_histograms(models)) == [
        "vanilla: g",
        "vanilla: h",
        "vanilla: U",
        "α-β: g",
        "α-β: h",
        "α-β: U",
    ]
    check_svg(plots.score_histograms(models))
    assert titles(plots.shift_plane(models)) == ["vanilla", "α-β"]
    check_svg(plots.shift_plane(models))


def test_the_feature_space_has_every_class_the_noise_and_the_origin() -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noised = torch.randn(90, 3, generator=generator), torch.randn(20, 3, generator=generator)
    figure = plots.feature_space(clean, torch.arange(90) % 9, noised, [f"class {i}" for i in range(9)], "fog 5")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [*(f"class {i}" for i in range(9)), "fog 5", "origin"]
    check_svg(figure)
    with pytest.raises(ValueError, match=r"clean_features.*shape \(N, 3\).*-3d backbone"):
        plots.feature_space(torch.zeros(4, 2), [0] * 4, noised, ["a"])
    with pytest.raises(ValueError, match=r"labels.*between 0 and 0"):
        plots.feature_space(clean, torch.arange(90), noised, ["a"])


def test_pixels_are_counted_as_numpy_counts_them() -> None:
    images = torch.randint(0, 256, (7, 3, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    counts = plots.pixel_counts(images)
    for channel in range(3):
        wanted = np.histogram(images[:, channel].numpy(), bins=np.arange(257))[0]
        assert (counts[channel] == wanted).all()
    figure = plots.pixel_histograms({"one": images, "two": counts})
    assert titles(figure) == ["red", "green", "blue"]
    one, two = (patch.get_data().values for patch in figure.axes[1].patches)  # type: ignore[attr-defined]
    assert one == pytest.approx(two)
    assert one.sum() == pytest.approx(1)
    assert titles(plots.pixel_histograms({"digits": images[:, :1]})) == ["grey"]
    check_svg(figure)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({}, "same channels.*no images"),
        ({"a": np.zeros((2, 3, 4, 4), np.uint8), "b": np.zeros((2, 1, 4, 4), np.uint8)}, "3 in a, 1 in b"),
        ({"a": np.zeros((2, 3, 4, 4))}, "uint8 of shape"),
    ],
)
def test_pixels_that_cannot_be_compared_are_refused(
    images: dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plots.pixel_histograms(images)


def test_a_file_brings_its_ink_and_a_page_gives_its_own(results: Results) -> None:
    drawing = plots.svg(plots.severity_overview(results.rows), "name")
    assert drawing == plots.svg(plots.severity_overview(results.rows), "name")  # the same bytes, whenever it is drawn
    file = plots.alone(drawing)
    assert "prefers-color-scheme:dark" in file
    tree.fromstring(file)
    assert plots.inline(file) == drawing
    assert "prefers-color-scheme" not in plots.inline(file)


def luminance(colour: str) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def dichromat(colour: str, weights: Sequence[float]) -> tuple[float, float]:
    """What is left of a colour without red or green cones: one mixed channel and blue (Viénot 1999, simplified)."""
    red, green, blue = to_rgb(colour)
    return weights[0] * red + weights[1] * green, blue


def test_the_palette_shows_on_both_papers_and_to_all_eyes() -> None:
    for colour in plots.COLOURS:
        assert (luminance("#ffffff") + 0.05) / (luminance(colour) + 0.05) > 2
        assert (luminance(colour) + 0.05) / (luminance("#14181c") + 0.05) > 3
    for weights in ((0.11, 0.89), (0.29, 0.71)):
        seen = [dichromat(colour, weights) for colour in plots.COLOURS]
        gaps = [np.hypot(a[0] - b[0], a[1] - b[1]) for i, a in enumerate(seen) for b in seen[:i]]
        assert min(gaps) > 0.1


def checkpoint_rows() -> list[Row]:
    """Two models at four epochs: U rises with them on both sets, h falls on SVHN; the second has two seeds."""
    rows = []
    for model, seeds in (("vanilla", 1), ("alpha-beta", 2)):
        for place, epoch in enumerate((5, 10, 20, 60)):
            for seed in range(seeds):
                for shift, kind in (("cifar100", "concept"), ("svhn", "both")):
                    for score, step in (("u", 0.03), ("h", -0.01 if shift == "svhn" else 0.02), ("g", 0.0)):
                        value = 0.8 + step * place + 0.02 * seed
                        rows.append(row(f"{model}@{epoch}", shift, 0, score, "auroc", value, seed, kind, error=0.004))
                rows.append(row(f"{model}@{epoch}", "fog", 1, "u", "auroc", 0.6, seed))
                rows.append(row(f"{model}@{epoch}", "fog", 2, "u", "auroc", 0.7, seed))
                rows.append(row(f"{model}@{epoch}", "fog", 0, "u", "auroc", 0.65, seed))
    return rows


def effect(seeds: int, value: float, spread: float) -> Effect:
    values = {seed: value + spread * (seed - (seeds - 1) / 2) for seed in range(seeds)}
    noise = np.random.default_rng(0).standard_normal(200) / 1000
    return Effect.of(values, dict.fromkeys(values, value + noise), "m", 100)


def dots(axis: Axes) -> list[list[float]]:
    """The place of each dot."""
    return [np.asarray(dot.get_xydata()).ravel().tolist() for dot in axis.get_lines()]


def intervals(axis: Axes) -> list[list[float]]:
    """Both ends of each horizontal bar."""
    return [bar.get_segments()[0][:, 0].tolist() for bar in axis.collections if isinstance(bar, LineCollection)]


def test_interval_dots_show_values_and_intervals_line_by_line() -> None:
    one, three, wide = effect(1, 0.7, 0.0), effect(3, 0.8, 0.01), effect(2, 0.95, 0.1)
    figure = plots.interval_dots({"a": {"svhn": three, "corrupted": wide}, "b": {"svhn": one}}, marked=["b"])
    assert titles(figure) == ["svhn", "all corruptions"]
    svhn, corrupted = figure.axes
    assert [text.get_text() for text in svhn.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in corrupted.get_yticklabels()] == ["", ""]
    assert dots(svhn) == [pytest.approx([80, 0]), pytest.approx([70, -1])]
    filled, hollow = svhn.get_lines()
    assert to_hex(filled.get_markerfacecolor()) == to_hex(filled.get_color()) != to_hex(hollow.get_color())
    assert to_hex(hollow.get_markerfacecolor()) == "#ffffff"
    assert intervals(svhn) == [pytest.approx([100 * each.low, 100 * each.high]) for each in (three, one)]
    assert wide.high > 1
    assert intervals(corrupted)[0][1] == 100  # no AUROC is above it
    check_svg(figure)
    with pytest.raises(ValueError, match="Expected `lines` to be one or more names"):
        plots.interval_dots({})


def test_the_best_scores_are_drawn_once_each_and_u_of_alpha_beta_always(results: Results, tmp_path: Path) -> None:
    (drawing,) = [one for one in list_drawings(ResultsFolder(tmp_path), results) if one.stem.endswith("best-scores")]
    first, *_, mean = drawing.draw().axes
    assert mean.get_title().startswith("mean of ")
    names = [text.get_text() for text in first.get_yticklabels()]
    assert "U, α-β" in names
    scores = [name.partition(",")[0] for name in names if name != "U, α-β"]
    assert len(set(scores)) == len(scores)
    means = [place for place, _ in dots(mean)]
    assert means == sorted(means, reverse=True)


def test_epoch_curves_show_the_rows_of_checkpoints() -> None:
    rows = checkpoint_rows()
    assert plots.list_epochs([*rows, row("vanilla")]) == {name: [5, 10, 20, 60] for name in ("vanilla", "alpha-beta")}
    figure = plots.epoch_curves([*rows, row("vanilla", "svhn", value=0.1, kind="both")])  # a finished run: no epoch
    assert titles(figure) == ["cifar100", "svhn"]  # a ladder is no set
    x, y = line(figure.axes[1], "U, α-β")
    assert x.tolist() == [5, 10, 20, 60]
    assert y == pytest.approx([0.81, 0.84, 0.87, 0.90])
    assert line(figure.axes[1], "h, vanilla")[1] == pytest.approx([0.80, 0.79, 0.78, 0.77])
    assert len(figure.axes[0].get_lines()) == 4
    spread = stdev([0.8, 0.82])
    band = np.asarray(figure.axes[1].collections[2].get_paths()[0].vertices, np.float64)
    assert float(band[:, 1].min()) == pytest.approx(0.81 - spread, abs=1e-9)
    check_svg(figure)
    (alone,) = plots.epoch_curves(rows, scores=("g",), shifts=("svhn",)).axes
    assert [str(each.get_label()) for each in alone.get_lines()] == ["g, vanilla", "g, α-β"]


def test_epoch_curves_need_two_epochs() -> None:
    for rows in ([row("vanilla", "svhn", kind="both")], [one for one in checkpoint_rows() if one.model.endswith("@5")]):
        with pytest.raises(ValueError, match=r"Expected `rows` to be AUROC of u or h at two epochs or more"):
            plots.epoch_curves(rows)


def test_a_page_of_checkpoints_has_the_figure(tmp_path: Path) -> None:
    for rows, drawn in ((checkpoint_rows(), True), ([one for one in checkpoint_rows() if "@5" in one.model], False)):
        stems = [one.stem for one in list_drawings(ResultsFolder(tmp_path), Results.without_resamples(rows))]
        assert ("cifar10-epochs" in stems) == drawn


# tuples: the order of a set differs between the processes that share the tests, and so would the name of a test
@pytest.mark.parametrize("measured", [("energy",), ("g",), ("u",), ("h",), ("g", "h")], ids="-".join)
def test_every_figure_of_a_page_can_be_drawn_whatever_scores_were_measured(
    tmp_path: Path, measured: tuple[str, ...]
) -> None:
    """A head without class weights, such as SNGP's, has neither h nor U."""
    scores = set(measured)
    every = [*made_results().rows, *checkpoint_rows()]
    found = [one for one in every if one.metric != "auroc" or one.subject in scores]
    drawings = list_drawings(ResultsFolder(tmp_path), Results.without_resamples(found))
    stems = [one.stem for one in drawings]
    assert any("overview" in stem for stem in stems) == ("u" in scores)
    assert any("severity" in stem for stem in stems) == bool(scores & {"g", "h", "u"})
    assert any("epochs" in stem for stem in stems) == bool(scores & {"h", "u"})
    for one in drawings:
        with contextlib.suppress(FileNotFoundError):  # outputs that are not stored
            plots.svg(one.draw(), one.stem)
