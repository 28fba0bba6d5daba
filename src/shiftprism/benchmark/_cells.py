"""One cell of the grid: train what is missing, forward each image once, fit, measure, and write its rows at the end."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from shiftprism._checks import Floats, wrong
from shiftprism._devices import move
from shiftprism._files import write_text
from shiftprism._tasks import use_threads
from shiftprism.benchmark._attribution import SUBJECTS, Attribution
from shiftprism.benchmark._copies import HeldOut, divide_held_out
from shiftprism.benchmark._grid import Cell
from shiftprism.benchmark._measure import CLEAN, Measurement, RowList
from shiftprism.benchmark._photos import PhotoFolder, Photographs, check_model, predict_photographs
from shiftprism.benchmark._plan import find_model
from shiftprism.benchmark._resampling import set_weights
from shiftprism.benchmark._suites import InDistribution, in_distribution, list_shifts
from shiftprism.calibrators import CALIBRATORS, Calibrator, cross_validate
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset
from shiftprism.edits import average, average_views
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.recommend import Labelled, fit_scores
from shiftprism.rows import Condition, Results, Source, read_rows, set_file, why_left_out
from shiftprism.scores import Score, Spectrum, Style, find_score
from shiftprism.training import Setup, read_result, read_run_settings, run

Images = Dataset | Photographs
Inside = InDistribution | PhotoFolder


class Predictor(NamedTuple):
    """A trained model as a cell needs it."""

    source: Source
    predict: Callable[[str, Images], Outputs]
    """The Outputs of a set, by the name of the file they are kept in."""
    head: Head | None
    held_out: float
    about: Mapping[str, float]
    """Seconds of training and number of parameters, where they are known."""


def run_cell(cell: Cell, threads: int = 1, device: str = "auto") -> Results:
    """The rows of a cell. Complete files in its folder are read, missing ones are computed, the rows are written last.

    Scores and calibrators that were not asked for before are measured from the stored outputs, and added to the rows.
    The model trains and forwards on the `device`. Scores and calibrators work from its Outputs, on the CPU.
    """
    few = 1 if cell.plan.suite == "digits" else threads  # 8 × 8 pixels are too few to share
    # sums of NumPy's products depend on its threads in the last digit: rows must not depend on the number of jobs
    with use_threads(few), threadpool_limits(1, user_api="blas"):
        return _run_cell(cell, device)


def _run_cell(cell: Cell, device: str) -> Results:
    inside = in_distribution(cell.plan, cell.data, cell.results)
    if not cell.folder.find_fault() and not (cell.is_ensemble and _has_other_members(cell, inside)):
        results = Results.read(cell.folder.path)
        scores = _find_missing(cell, results, cell.plan.scores)
        calibrators = _find_missing(cell, results, cell.plan.calibrators)
        if not scores and not calibrators:
            return results
        plan = replace(cell.plan, scores=scores, calibrators=calibrators)
        measured = _measure_model(cell._replace(plan=plan), inside, device)
        known = {row.subject for row in results.rows}
        new = [subject for subject in (*scores, *calibrators, *SUBJECTS) if subject not in known]
        results = Results.concat([results, measured.where(subject=new)])
    else:
        results = _measure_pixels(cell, inside) if cell.model == "pixels" else _measure_model(cell, inside, device)
    results.write(cell.folder.path)
    return results


def _has_other_members(cell: Cell, inside: Inside) -> bool:
    """Whether the rows of an ensemble were measured with other members than it has now."""
    stored = read_rows(cell.folder.rows)[:1]
    return any(row.weights != _combine_members(cell, inside).source.weights for row in stored)


def _find_missing(cell: Cell, results: Results, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The scores or calibrators that are asked for and have no rows, without those that do not fit this model."""
    if cell.model == "pixels":
        return ()
    known = {row.subject for row in results.rows} | cell.folder.read_about()["left_out"].keys()
    return tuple(name for name in asked if name not in known)


class _Stopwatch:
    """Seconds of each part of the work."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = dict(seconds)

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] = round(self.seconds.get(part, 0.0) + time.perf_counter() - began, 2)


def _measure_model(cell: Cell, inside: Inside, device: str) -> Results:
    about = cell.folder.read_about()
    stopwatch = _Stopwatch(about["seconds"])
    with stopwatch.time("training"):
        predictor = _make_predictor(cell, inside, device)
    with stopwatch.time("forward"):
        test = inside.load("test")
        learned, held = inside.divide(predictor.held_out)
        training = Labelled(predictor.predict(set_file("train"), learned), learned.labels)
        clean = Labelled(predictor.predict(set_file("clean", 0), test), test.labels)
        # the paper's protocol holds nothing out: its test set serves for validation too
        validation = clean
        if predictor.held_out:
            validation = Labelled(predictor.predict(set_file("held-out"), held), held.labels)
    asked = (*cell.plan.scores, *cell.plan.calibrators)
    senseless = {name: reason for name in asked if (reason := why_left_out(cell.model, name))}
    names = [name for name in asked if name not in senseless]
    parts = None
    if predictor.held_out and any(_needs_shifted(name) for name in names):
        with stopwatch.time("copies"):
            parts = divide_held_out(training, held, validation.outputs, predictor.predict)
    with stopwatch.time("fit"):
        plain = [name for name in names if name not in CALIBRATORS and not _needs_shifted(name)]
        scores, unfit_scores = fit_scores(plain, training, validation, predictor.head, strict=False)
        others, unfit_others = _fit_contrasts(names, predictor.head, training, validation, parts)
        wanted = [name for name in names if name in CALIBRATORS]
        calibrators, unfit_calibrators = _fit_calibrators(cell, wanted, validation, predictor.source.weights, parts)
        crossed = None
        if not predictor.held_out:
            crossed = {name: cross_validate(CALIBRATORS[name], *clean) for name in calibrators}
        # in the order of the plan, whichever way they were fitted
        fitted = {name: (scores | others)[name] for name in cell.plan.scores if name in scores or name in others}
        measurement = Measurement(predictor.source, clean, fitted, calibrators, predictor.head, crossed)
        attribution = _make_attribution(measurement, parts)
    if attribution is not None:
        attribution.add(CLEAN, clean.outputs)
    for name, value in predictor.about.items():
        measurement.rows.add(CLEAN, ("training", name), value, len(learned.images))
    for shift in list_shifts(cell.plan, cell.data, cell.results):
        with stopwatch.time("shifts"):
            data = shift.make()
            outputs = predictor.predict(set_file(shift.name, shift.severity), data)
        with stopwatch.time("rows"):
            condition = Condition(shift.name, shift.kind, shift.severity)
            measurement.add(condition, Labelled(outputs, data.labels))
            if attribution is not None:
                attribution.add(condition, outputs)
    if attribution is not None:
        attribution.finish()
    left_out = {**about["left_out"], **senseless, **unfit_scores, **unfit_others, **unfit_calibrators}
    cell.folder.write_about(left_out, stopwatch.seconds)
    return measurement.results()


def _needs_shifted(name: str) -> bool:
    """Whether a score or calibrator is fitted to shifted copies of held-out images."""
    return CALIBRATORS[name].needs_shifted if name in CALIBRATORS else "shifted" in find_score(name).needs


def _fit_contrasts(
    names: list[str], head: Head | None, training: Labelled, validation: Labelled, parts: HeldOut | None
) -> tuple[dict[str, Score], dict[str, str]]:
    """The scores among `names` that need shifted copies, and the reason for each that does not fit this model."""
    contrasts = [name for name in names if name not in CALIBRATORS and _needs_shifted(name)]
    known, reference, shifted = training, validation, None
    if parts is not None:
        known, reference, shifted = parts.known, parts.reference, parts.shifted
    return fit_scores(contrasts, known, reference, head, strict=False, shifted=shifted)


def _fit_calibrators(
    cell: Cell, names: list[str], validation: Labelled, weights: str, parts: HeldOut | None
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """The calibrators that fit this model, kept in its folder, and the reason for each that does not."""
    fitted, left_out = {}, {}
    for name in names:
        kind = CALIBRATORS[name]
        shifted = dict(parts.copies) if parts is not None and kind.needs_shifted else None
        try:
            fitted[name] = kind.fit(*validation, shifted=shifted)
        except ValueError as error:  # logits alone have no norm, say
            left_out[name] = str(error)
        else:
            fitted[name].save(cell.folder.calibrator(name), weights)
    return fitted, left_out


def _make_attribution(measurement: Measurement, parts: HeldOut | None) -> Attribution | None:
    """What attributes images to a kind of shift; None where `style` and `spectrum` are not both measured."""
    style, spectrum = (measurement.scores.get(name) for name in ("style", "spectrum"))
    if parts is None or not isinstance(style, Style) or not isinstance(spectrum, Spectrum):
        return None
    return Attribution(measurement.rows, style, spectrum, parts.ranked)


def _make_predictor(cell: Cell, inside: Inside, device: str) -> Predictor:
    if cell.mirrored:
        return _mirror_model(cell, inside, device)
    if cell.run:
        return _load_run(cell, inside, device)
    return _combine_members(cell, inside) if cell.is_ensemble else _train_model(cell, inside, device)


def _train_model(cell: Cell, inside: Inside, device: str) -> Predictor:
    assert isinstance(inside, InDistribution), "photographs are for models that are trained"
    plan, spec = cell.plan, find_model(cell.model)
    training = plan.training(cell.model, cell.seed)
    backbone = plan.backbone + spec.variant
    setup = Setup(inside.source, backbone, spec.head, training, inside.root)
    done = run(cell.folder.run, setup, resume=True, device=device)
    about = {"seconds": float(done.result["training_seconds"])}
    source = _source(cell, inside, backbone, spec.head, training.held_out)
    return _wrap_classifier(cell, source, done.classifier, training.held_out, about)


def _load_run(cell: Cell, inside: Inside, device: str) -> Predictor:
    """A run or a saved classifier as it is; without a config.toml the plan says what was held out."""
    folder = Path(cell.run)
    classifier = move(load_run_model(cell, inside), device)
    own = cell.plan.model if classifier.adapted is not None else cell.plan.backbone
    recipe = classifier.recipe or {"backbone": own, "head": "vanilla"}
    held_out = _held_out_share(cell)
    about = {}
    if (folder / "result.json").exists():
        about["seconds"] = float(read_result(folder)["training_seconds"])
    source = _source(cell, inside, recipe["backbone"], recipe["head"], held_out)
    return _wrap_classifier(cell, source, classifier, held_out, about)


def _mirror_model(cell: Cell, inside: Inside, device: str) -> Predictor:
    """The model of another cell, asked about each image and its mirror image: their features are averaged."""
    plain = cell.unmirrored
    if not plain.run and plain.folder.find_fault() == "absent":
        advice = "it failed, or ran on a machine that does not share this folder"
        raise wrong("mirror", "of a finished model", f"no {plain.key} in {cell.out}", advice)
    run = plain.run or str(plain.folder.run)
    predictor = _load_run(plain._replace(run=run), inside, device)
    classifier = move(load_run_model(plain._replace(run=run), inside), device).eval()

    def predict_set(file: str, data: Images) -> Outputs:
        assert isinstance(data, Dataset), "a plan refuses to mirror photographs"
        outputs = cell.folder.path / "outputs"
        mirrored = predict(classifier, data.images.flip(3), cache=outputs / "mirror" / file)[0]
        mean = average_views([predictor.predict(file, data), mirrored], head=classifier.head)
        mean.save(outputs / file, data.labels, predictor.source.weights)
        return mean

    return predictor._replace(source=predictor.source._replace(model=cell.model), predict=predict_set, about={})


def load_run_model(cell: Cell, inside: Inside) -> Classifier:
    """The model of a given run, if it is one of these data: the same classes, channels and image size."""
    # a classifier that was saved without a recipe is taken to be the plan's backbone with a linear head
    classifier = Classifier.load(cell.run, cell.plan.backbone, model=cell.plan.model or None)
    test = inside.load("test")
    names, numbers = test.names, tuple(str(k) for k in range(len(classifier.names)))
    if len(classifier.names) != len(names) or classifier.names not in (names, numbers):
        got = f"{cell.run} with {', '.join(classifier.names)}"
        raise wrong("runs", f"models of {', '.join(names)}", got, "choose the data it was trained on")
    if isinstance(test, Photographs):
        check_model(classifier, cell.run)
        return classifier
    try:
        classifier.normalise(test.images[:1])
    except ValueError as error:
        got, advice = f"{cell.run} ({error})", "choose the data it was trained on"
        raise wrong("runs", "models of such images", got, advice) from error
    return classifier


def _source(cell: Cell, inside: Inside, backbone: str, head: str, held_out: float) -> Source:
    """The source of a cell's rows; the weights are still to be filled in."""
    return Source(
        model=cell.model,
        data=inside.name,
        backbone=backbone,
        head=head,
        seed=cell.seed,
        protocol="held-out" if held_out else "paper",
        weights="",
    )


def _wrap_classifier(
    cell: Cell, source: Source, classifier: Classifier, held_out: float, about: dict[str, float]
) -> Predictor:
    classifier.eval()

    def predict_set(file: str, data: Images) -> Outputs:
        path = cell.folder.path / "outputs" / file
        if isinstance(data, Photographs):
            return predict_photographs(classifier, data, path)
        return predict(classifier, data, cache=path)[0]

    source = source._replace(weights=classifier.fingerprint()[:12])
    about["parameters"] = float(sum(parameter.numel() for parameter in classifier.parameters()))
    return Predictor(source, predict_set, classifier.head, held_out, about)


def _combine_members(cell: Cell, inside: Inside) -> Predictor:
    """The mean probabilities of all its members in the grid, from the outputs in their folders."""
    members = cell.list_members()
    if missing := [member.key for member in members if member.folder.find_fault() == "absent"]:
        advice = "they failed, or ran on machines that do not share this folder"
        raise wrong(cell.model, "made of finished members", f"no {', '.join(missing)} in {cell.out}", advice)
    first = [read_rows(member.folder.rows)[0] for member in members]
    weights = hashlib.sha256("".join(row.weights for row in first).encode()).hexdigest()[:12]
    source = first[0].source._replace(model=cell.model, seed=cell.seed, weights=weights)

    def predict_set(file: str, data: Images) -> Outputs:
        mean = average([Outputs.load(member.folder.path / "outputs" / file)[0] for member in members])
        mean.save(cell.folder.path / "outputs" / file, data.labels, weights)
        return mean

    return Predictor(source, predict_set, None, _held_out_share(members[0]), {})


def _held_out_share(cell: Cell) -> float:
    """The share of each class that the network of a cell was not trained on."""
    if cell.run:
        return float(read_run_settings(Path(cell.run)).get("held_out", cell.plan.held_out))
    return cell.plan.training(cell.model, cell.seed).held_out


def _measure_pixels(cell: Cell, inside: Inside) -> Results:
    """The distance of each other data set's pixel values from the ID test set's.

    It is the mean over channels of the total variation distance between their 256-bin histograms.
    """
    assert isinstance(inside, InDistribution), "photographs of many sizes are not compared pixel by pixel"
    rows = RowList(Source("pixels", inside.name, "", "", 0, "", ""))
    test = inside.load("test")
    histograms = _histograms(test, "clean")
    counts = {inside.name: _count_pixels(histograms, test)}
    for shift in list_shifts(cell.plan, cell.data, cell.results):
        if shift.kind == "covariate" or shift.severity:
            continue
        data = shift.make()
        assert isinstance(data, Dataset), "as the ID data"
        others = _histograms(data, shift.name)
        counts[shift.name] = _count_pixels(others, data)
        distances = np.abs(histograms - others).sum(2).mean(0) / 2
        condition = Condition(shift.name, shift.kind, shift.severity)
        name = ("histogram", "distance")
        rows.add(condition, name, float(distances[0]), len(data.images), distances[1:])
    write_text(cell.folder.pixels, json.dumps(counts))
    return rows.results()


def _count_pixels(histograms: Floats, data: Dataset) -> list[list[int]]:
    """(C, 256): how often each value occurs, for figures."""
    counts: list[list[int]] = (histograms[:, 0] * data.images[:, 0].numel()).round().astype(int).tolist()
    return counts


def _histograms(data: Dataset, name: str) -> Floats:
    """(C, 1 + B, 256): the share of pixels with each value, of all images and of each resample."""
    images = data.images.flatten(2).numpy()
    n, channels, pixels = images.shape
    weights = np.concatenate([np.ones((n, 1), np.float32), set_weights(name, 0, n)], 1)
    totals = np.zeros((channels, weights.shape[1], 256))
    for channel in range(channels):
        for first in range(0, n, 1000):
            part = images[first : first + 1000, channel]
            # a bin for each image and value: one bincount counts a thousand images at once
            numbers = part + 256 * np.arange(len(part))[:, None]
            each = np.bincount(numbers.ravel(), minlength=256 * len(part)).reshape(len(part), 256)
            totals[channel] += weights[first : first + 1000].T @ each.astype(np.float32)
    return np.asarray(totals / (n * pixels), np.float64)
