"""One cell of the grid: train what is missing, forward each image once, fit, measure, and write its rows at the end."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism._files import write_text
from shiftprism.backbones import BACKBONES
from shiftprism.benchmark._evidence import Source
from shiftprism.benchmark._measure import CLEAN, Ledger, Measurement
from shiftprism.benchmark._plan import MODELS, Cell, file_name
from shiftprism.benchmark._recommend import fitted_scores
from shiftprism.benchmark._resampling import draws
from shiftprism.benchmark._results import Results, stored_resamples
from shiftprism.benchmark._rows import read_rows
from shiftprism.benchmark._suites import Home, home, shifts
from shiftprism.calibrators import CALIBRATORS, Calibrator, cross_validate
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset
from shiftprism.edits import average
from shiftprism.heads import Head, Linear
from shiftprism.outputs import Outputs
from shiftprism.training import Training, run
from shiftprism.training.runs import split
from shiftprism.training.settings import read_settings

Say = Callable[[str, Dataset], Outputs]
"""What a model says about a set, by the name of its file."""


class Speaker(NamedTuple):
    """A trained model as a cell needs it: where its numbers come from, and what it says."""

    source: Source
    say: Say
    head: Head | None
    held_out: float
    about: Mapping[str, float]
    """Seconds of training and number of parameters, where they are known."""


def state(folder: Path) -> str:
    """ "" for a cell whose rows are whole, "absent", or what is wrong with them."""
    file = folder / "rows.jsonl"
    if not file.exists():
        return "absent"
    try:
        read_rows(file)
    except ValueError as error:
        return str(error)
    return "" if stored_resamples(file) is not None else f"{folder / 'resamples.safetensors'} is not that of its rows"


def run_cell(cell: Cell, threads: int = 1) -> Results:
    """The rows of a cell; what is whole in its folder is taken, what is missing is made, the rows are written last.

    Scores that were not asked for before are measured from the stored outputs, and join the rows.
    """
    torch.set_num_threads(1 if cell.plan.suite == "digits" else threads)  # 8 × 8 pixels are too few to share
    own = home(cell.plan, cell.data, Path(cell.out))
    if not state(cell.folder) and not (cell.model == "ensemble" and _stale(cell, own)):
        results = Results.read(cell.folder)
        if not (new := _unmeasured(cell, results)):
            return results
        found = _measured(cell._replace(plan=replace(cell.plan, scores=new, calibrators=())), own)
        results = Results.concat([results, found.where(subject=new)])
    else:
        results = _pixels(cell, own) if cell.model == "pixels" else _measured(cell, own)
    results.write(cell.folder)
    return results


def _stale(cell: Cell, own: Home) -> bool:
    return any(row.weights != _ensemble(cell, own).source.weights for row in read_rows(cell.folder / "rows.jsonl")[:1])


def _unmeasured(cell: Cell, results: Results) -> tuple[str, ...]:
    """The scores asked for that have no rows, beside those that do not fit this model."""
    if cell.model == "pixels":
        return ()
    known = {row.subject for row in results.rows} | _told(cell)["left_out"].keys()
    return tuple(name for name in cell.plan.scores if name not in known)


def _told(cell: Cell) -> dict[str, dict[str, Any]]:
    """What its folder tells: scores and calibrators that do not fit this model, and why; where the seconds went."""
    file = cell.folder / "cell.json"
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {"left_out": {}, "seconds": {}} | found


def _measured(cell: Cell, own: Home) -> Results:
    began = time.perf_counter()
    speaker = (
        _given(cell, own) if cell.run else _ensemble(cell, own) if cell.model == "ensemble" else _trained(cell, own)
    )
    spent = {"training": time.perf_counter() - began}
    test = own.load("test")
    learned, held = split(own.source, Training(held_out=speaker.held_out), own.root)
    known, clean = speaker.say("train.safetensors", learned), speaker.say(file_name("clean", 0), test)
    # the paper's protocol keeps nothing back: its test set serves for validation too
    reference = speaker.say("held-out.safetensors", held) if speaker.held_out else clean
    validation = (reference, held.labels if speaker.held_out else test.labels)
    spent["forward"] = time.perf_counter() - began - sum(spent.values())
    scores, without = fitted_scores(cell.plan.scores, (known, learned.labels), validation, speaker.head, strict=False)
    calibrators, left = _calibrators(cell, validation, speaker.source.weights)
    crossed = None
    if not speaker.held_out:
        crossed = {name: cross_validate(CALIBRATORS[name], clean, test.labels) for name in calibrators}
    spent["fit"] = time.perf_counter() - began - sum(spent.values())
    found = Measurement(speaker.source, clean, test.labels, scores, calibrators, speaker.head, crossed)
    for name, value in speaker.about.items():
        found.ledger.add(CLEAN, "training", name, value, len(learned.images))
    spent["shifts"] = spent["rows"] = 0.0
    for shift in shifts(cell.plan, cell.data, Path(cell.out)):
        before = time.perf_counter()
        data = shift.make()
        outputs = speaker.say(file_name(shift.name, shift.severity), data)
        spent["shifts"] += time.perf_counter() - before
        before = time.perf_counter()
        found.add(shift, outputs, data.labels)
        spent["rows"] += time.perf_counter() - before
    told = _told(cell)
    seconds = {name: round(value + told["seconds"].get(name, 0.0), 2) for name, value in spent.items()}
    about = {"left_out": {**told["left_out"], **without, **left}, "seconds": seconds}
    write_text(cell.folder / "cell.json", json.dumps(about, indent=2) + "\n")
    return found.results()


def _calibrators(
    cell: Cell, validation: tuple[Outputs, Tensor], weights: str
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Those that fit this model, kept in its folder, and what was wrong with the others."""
    fitted, left_out = {}, {}
    for name in cell.plan.calibrators:
        try:
            fitted[name] = CALIBRATORS[name].fit(*validation)
        except ValueError as error:  # logits alone have no norm, say
            left_out[name] = str(error)
        else:
            fitted[name].save(cell.folder / "calibrators" / name, weights)
    return fitted, left_out


def _speaks(classifier: Classifier, folder: Path) -> Say:
    return lambda name, data: predict(classifier, data, cache=folder / "outputs" / name)[0]


def _trained(cell: Cell, own: Home) -> Speaker:
    plan, wanted = cell.plan, MODELS[cell.model]
    training = plan.training(cell.model, cell.seed)
    backbone = plan.backbone + wanted.variant
    done = run(cell.folder / "run", own.source, backbone, wanted.head, training, own.root, resume=True)
    about = {"seconds": float(done.result["training_seconds"])}
    return _speaker(cell, own, done.classifier, (backbone, wanted.head), training.held_out, about)


def _given(cell: Cell, own: Home) -> Speaker:
    """A run or a saved classifier as it is; without a config.toml the plan says what was held out."""
    folder = Path(cell.run)
    config = read_settings(folder / "config.toml") if (folder / "config.toml").exists() else {}
    classifier = _loaded(folder, cell.plan.backbone)
    names, numbers = own.load("test").names, tuple(str(k) for k in range(len(classifier.names)))
    if len(classifier.names) != len(names) or classifier.names not in (names, numbers):
        got = f"{folder} with {', '.join(classifier.names)}"
        raise wrong("runs", f"models of {', '.join(names)}", got, "choose the data it was trained on")
    recipe = classifier.recipe or {"backbone": cell.plan.backbone, "head": "vanilla"}
    held_out = float(config.get("held_out", cell.plan.held_out))
    result = folder / "result.json"
    about = {"seconds": float(json.loads(result.read_text())["training_seconds"])} if result.exists() else {}
    return _speaker(cell, own, classifier, (recipe["backbone"], recipe["head"]), held_out, about)


def _loaded(folder: Path, backbone: str) -> Classifier:
    """A saved classifier; one without a recipe is taken to be the plan's backbone with a linear head."""
    about: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if about.get("recipe") is not None:
        return Classifier.load(folder)
    with safe_open(folder / "weights.safetensors", framework="pt") as file:
        bias = "head.bias" in file.keys()  # noqa: SIM118 (not a dict)
        channels = len(file.get_tensor("mean"))
    body = BACKBONES[backbone](channels=channels)
    width = int(getattr(body, "out_features"))  # noqa: B009 (nn.Module types attributes as tensors)
    return Classifier.load(folder, body, Linear(width, len(about["names"]), bias=bias))


def _speaker(
    cell: Cell, own: Home, classifier: Classifier, parts: tuple[str, str], held_out: float, about: dict[str, float]
) -> Speaker:
    classifier.eval()
    weights = classifier.fingerprint()[:12]
    protocol = "held-out" if held_out else "paper"
    source = Source(cell.model, own.name, *parts, cell.seed, protocol, weights)
    size = float(sum(parameter.numel() for parameter in classifier.parameters()))
    return Speaker(source, _speaks(classifier, cell.folder), classifier.head, held_out, {**about, "parameters": size})


def _ensemble(cell: Cell, own: Home) -> Speaker:
    """The mean probabilities of all vanilla models of the grid, from the outputs in their folders."""
    members = [cell._replace(model="vanilla", seed=seed) for seed in range(cell.plan.models["vanilla"])]
    if missing := [member.key for member in members if not (member.folder / "rows.jsonl").exists()]:
        advice = "they failed, or ran on machines that do not share this folder"
        raise wrong("ensemble", "made of finished members", f"no {', '.join(missing)} in {cell.out}", advice)
    first = [read_rows(member.folder / "rows.jsonl")[0] for member in members]
    weights = hashlib.sha256("".join(row.weights for row in first).encode()).hexdigest()[:12]
    source = Source(cell.model, own.name, first[0].backbone, "vanilla", cell.seed, first[0].protocol, weights)

    def say(name: str, data: Dataset) -> Outputs:
        mean = average([Outputs.load(member.folder / "outputs" / name)[0] for member in members])
        mean.save(cell.folder / "outputs" / name, data.labels, weights)
        return mean

    return Speaker(source, say, None, cell.plan.training("vanilla", 0).held_out, {})


def _pixels(cell: Cell, own: Home) -> Results:
    """How far the pixel values of each other data set are from the ID test set's: mean over channels of the total
    variation distance of their 256-bin histograms."""
    ledger = Ledger(Source("pixels", own.name, "", "", 0, "", ""))
    test = own.load("test")
    inside = _histograms(test, "clean")
    counts = {own.name: _counts(inside, test)}
    for shift in shifts(cell.plan, cell.data, Path(cell.out)):
        if shift.kind == "covariate" or shift.severity:
            continue
        data = shift.make()
        outside = _histograms(data, shift.name)
        counts[shift.name] = _counts(outside, data)
        distances = np.abs(inside - outside).sum(2).mean(0) / 2
        where = (shift.name, shift.kind, shift.severity)
        ledger.add(where, "histogram", "distance", float(distances[0]), len(data.images), distances[1:])
    write_text(cell.folder / "pixels.json", json.dumps(counts))
    return ledger.results()


def _counts(histograms: Floats, data: Dataset) -> list[list[int]]:
    """(C, 256): how often each value occurs, for figures."""
    found: list[list[int]] = (histograms[:, 0] * data.images[:, 0].numel()).round().astype(int).tolist()
    return found


def _histograms(data: Dataset, name: str) -> Floats:
    """(C, 1 + B, 256): the share of pixels with each value, of all images and of each resample."""
    images = data.images.flatten(2).numpy()
    n, channels, pixels = images.shape
    weights = np.concatenate([np.ones((n, 1), np.float32), draws(name, 0, n)], 1)
    found = np.zeros((channels, weights.shape[1], 256))
    for channel in range(channels):
        for first in range(0, n, 1000):
            part = images[first : first + 1000, channel]
            numbers = part + 256 * np.arange(len(part))[:, None]
            each = np.bincount(numbers.ravel(), minlength=256 * len(part)).reshape(len(part), 256)
            found[channel] += weights[first : first + 1000].T @ each.astype(np.float32)
    return np.asarray(found / (n * pixels), np.float64)
