"""`shiftprism fit`: a detector for a trained model, from held-out images, with a promise that is kept."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftprism._errors import choice, wrong
from shiftprism.cli._cluster_fit import MORE_IMAGES, Levels, check_options, fit_folder
from shiftprism.cli._flags import Compile, Device, check_new
from shiftprism.cli._opening import Model, compile_network

if TYPE_CHECKING:
    from rich.console import Console

    from shiftprism.classifier import Classifier
    from shiftprism.cli._held_out import Images
    from shiftprism.detector import Detector

PRECISIONS = ("bfloat16", "float16", "float32")
Report = Callable[[str, int, int], None]


def fit(
    trained: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder of a run or of a saved model.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The folder to write the detector to.", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(
            help="Held-out images: a folder (class folders give labels), or a data set by name. By default what the "
            "run held out.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Of a data set by name: train, test, all or held-out. (held-out if there is one)")
    ] = "",
    false_alarm: Annotated[float, typer.Option(help="The share of in-distribution images that may be flagged.")] = 0.05,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Promise the level for this very detector with this probability, such as 0.95, not on average."
        ),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Rank an image among those of the same predicted class.")
    ] = False,
    concept: Annotated[
        str | None, typer.Option(help="The concept score. (chosen for this model, without OOD data)")
    ] = None,
    training: Annotated[
        str | None,
        typer.Option(help="Images that the model was trained on, for the scores alone: a folder, or a data set."),
    ] = None,
    resize: Annotated[
        int | None, typer.Option(min=1, help="Scale the shortest side of images to this, and crop to the model's size.")
    ] = None,
    model: Model = None,
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    seed: Annotated[int, typer.Option(help="Divides the images.")] = 0,
    device: Device = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Let the network compute in bfloat16, float16 or float32, here and in the detector: its ranks are "
            "those of this precision. (that of the model)",
            show_default=False,
        ),
    ] = None,
    compiled: Compile = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Forward the images of the folder --data on a Ray cluster: its address, auto, or local for the cores "
            "of this machine. The same command resumes.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in the folder.")] = False,
) -> None:
    """Fit a detector to a trained model and held-out images, and save it to a folder for `shiftprism score`."""
    import torch
    from rich.console import Console

    from shiftprism._devices import move
    from shiftprism.classifier import Classifier
    from shiftprism.detector import Detector, check_count

    check_new("--out", out, force)
    if precision is not None:
        choice("--precision", precision, PRECISIONS)
    if cluster is not None:
        check_options(cluster, data, training, device)
        if compiled:
            raise wrong("--compile", "left out with --cluster", "given", "workers compute a part each")
    classifier = move(Classifier.load(trained, model=model), device)
    if resize is not None:
        set_resize(classifier, resize)
    if precision is not None:
        classifier.to(getattr(torch, precision))
    if compiled:
        compile_network(classifier)
    console = Console()
    levels: Levels = {"false_alarm": false_alarm, "confidence": confidence, "by_class": by_class}
    if cluster is not None:
        assert data is not None, "checked"
        with _show_progress() as report:
            detector, held = fit_folder(classifier, Path(data), out, cluster, model, levels, concept, seed, report)
            detector.save(out)
        _print_summary(console, detector, held, None, out)
        return
    with _show_progress() as report:
        held = _read(classifier, trained, data, split, root, report)
        source = " that the run held out" if data is None else ""
        check_count(len(held.images), false_alarm, confidence, name="--data", source=source, advice=MORE_IMAGES)
        more = None if training is None else _read(classifier, trained, training, "train", root, report)
        detector = Detector.fit(
            classifier,
            held.images,
            held.labels,
            **levels,
            concept=concept,
            training=None if more is None else (more.images, more.labels),
            seed=seed,
            progress=lambda done, total: report("forwarding" if done < total else "fitting", done, total),
        )
        detector.save(out)
    _print_summary(console, detector, held, more, out)


def set_resize(classifier: "Classifier", side: int) -> None:
    """Give the model a rule for images of other sizes than its own."""
    from dataclasses import replace

    rule = classifier.preprocessing
    size = rule.size or (side, side)
    if side < max(size):
        raise wrong("--resize", f"at least {max(size)}, the size of the model's images", side, "give a larger side")
    channels = rule.channels or (len(classifier.mean) if len(classifier.mean) > 1 or classifier.recipe else 3)
    classifier.preprocessing = replace(rule, size=size, resize=side, channels=channels)


def _read(
    classifier: "Classifier", run: Path, name: str | None, split: str, root: Path | None, report: Report
) -> "Images":
    from shiftprism.cli._held_out import read_folder, read_named
    from shiftprism.datasets import DATASETS

    if name is None or name in DATASETS or not Path(name).is_dir():
        return read_named(classifier, run, name, split, root)
    return read_folder(classifier, Path(name), lambda done, total: report("reading", done, total))


def _print_summary(console: "Console", detector: "Detector", held: "Images", more: "Images | None", out: Path) -> None:
    """What was fitted to what, in a few lines."""
    from shiftprism.cli._opening import describe_levels

    lines = []
    parts = [len(held.images) - len(detector.held.style) - len(detector.decision.inside_style.values)]
    parts += [len(detector.decision.inside_style.values), len(detector.held.style)]
    lines.append(
        f"{len(held.images)} images of {held.source}: {parts[0]} to fit, {parts[1]} for ranks inside the combination, "
        f"{parts[2]} for the p-values"
    )
    if more is not None:
        lines.append(f"training images: {len(more.images)} of {more.source}")
    lines.append(f"concept score: {detector.concept} {_describe_choice(detector)}")
    n = len(detector.held.style)
    promise = describe_levels(detector.false_alarm, detector.confidence, detector.by_class)
    lines.append(f"promise: at most {promise}, from {n} images that nothing else has seen")
    lines.append(_describe_calibration(detector))
    for problem in held.problems[:3]:
        lines.append(f"left out: {problem}")
    if held.problems[3:]:
        lines.append(f"left out: {len(held.problems) - 3} more files")
    lines.append(f"Written: {out.resolve()}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _describe_choice(detector: "Detector") -> str:
    found = detector.recommendation
    if found is None:
        return "(given)"
    first = found.ranking[0]
    kinds = {"hidden classes": first.concept, "corrupted copies": first.covariate}
    evidence = ", ".join(f"{100 * value:.1f} on {kind}" for kind, value in kinds.items() if not math.isnan(value))
    second = f"; next {found.ranking[1].score} {100 * found.ranking[1].mean:.1f}" if len(found.ranking) > 1 else ""
    return f"(first of {len(found.ranking)}: AUROC {evidence}{second}; {found.basis})"


def _describe_calibration(detector: "Detector") -> str:
    if detector.calibrator is None:
        return "uncalibrated: the images have no classes, so the confidence is the model's own"
    report = detector.calibrator.report
    before, after = report.held_out_nll_before, report.held_out_nll_after
    words = "by cross validation"
    if math.isnan(after):
        before, after, words = report.nll_before, report.nll_after, "on the images of the fit"
    return f"calibration: NLL {before:.4f} before, {after:.4f} after, {words}"


@contextmanager
def _show_progress() -> Iterator[Report]:
    """A bar with the time left, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("left"))
    bars = Console(stderr=True)
    bars.quiet = not bars.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=bars, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        stage = ["reading"]

        def report(name: str, done: int, total: int) -> None:
            if name != stage[0] and name != "fitting":
                bar.reset(task)  # another speed
            stage[0] = name
            bar.update(task, completed=done, total=total, description=name)

        yield report
