"""A run: data, backbone, head and settings by name, in a folder that holds all of it and can be gone on with."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shiftprism._checks import wrong
from shiftprism._extras import need
from shiftprism._files import write_text
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset, load
from shiftprism.training.augmentation import channel_statistics
from shiftprism.training.loop import Progress, train
from shiftprism.training.precision import settled
from shiftprism.training.processes import Processes
from shiftprism.training.settings import Training, read_settings, write_settings


class Run(NamedTuple):
    """A finished run. `result` holds the test accuracy, the number of test images and the seconds of all epochs."""

    classifier: Classifier
    history: list[dict[str, Any]]
    result: dict[str, Any]


def run(
    out: Path,
    data: str,
    backbone: str,
    head: str,
    training: Training,
    root: Path | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    progress: Callable[[Progress], None] | None = None,
    processes: Processes | None = None,
) -> Run:
    """Train by names into the folder `out`: config.toml, metrics.jsonl, a state to go on from, the model, result.json.

    A folder with a state is refused unless `resume`; with `resume`, a finished run is loaded and returned as it is.
    """
    together = processes or Processes()
    before = read_settings(out / "config.toml") if (out / "config.toml").exists() else {}
    if training.precision == "auto" and before:
        training = replace(training, precision=before.get("precision", "float32"))
    if (out / "state.safetensors").exists() and not resume:
        raise wrong("out", "a new folder", f"{out}, which holds a run", "add --resume to go on with it")
    names = {"data": data, "backbone": backbone, "head": head}
    if (out / "result.json").exists():
        return _finished(out, names | asdict(training))
    learned, _ = split(data, training, root)
    test = load(data, "test", root)
    mean, std = channel_statistics(learned.images)
    channels = learned.images.shape[1]
    classifier = Classifier.build(backbone, head, learned.names, channels, mean, std, training.seed)
    classifier.to("cuda" if torch.cuda.is_available() else "cpu")
    training = settled(training, classifier, learned.images, together, None)
    if together.writes:
        write_settings(out / "config.toml", names | asdict(training))
    together.wait()
    record = _recorder(out, tensorboard)
    history = train(classifier, learned, training, progress, out / "state.safetensors", together, record)
    outputs, _ = predict(classifier, test)
    right = int((outputs.predictions == test.labels).sum())
    seconds = sum(entry["seconds"] for entry in history)
    result = {"test_accuracy": right / outputs.N, "test_images": outputs.N, "training_seconds": round(seconds, 1)}
    if together.writes:
        classifier.cpu().save(out)
        write_text(out / "result.json", json.dumps(result, indent=2) + "\n")
    together.wait()
    return Run(classifier, history, result)


def split(data: str, training: Training, root: Path | None = None) -> tuple[Dataset, Dataset]:
    """(what a run trains on, what it sets aside for calibrators and ranks): the same for every seed and head."""
    return load(data, "train", root).set_aside(training.held_out)


def _finished(out: Path, settings: dict[str, Any]) -> Run:
    before = read_settings(out / "config.toml")
    changed = [name for name in settings if before.get(name) != settings[name]]
    if changed:
        got = ", ".join(f"{name} {settings[name]!r} for {before.get(name)!r}" for name in changed)
        raise wrong("out", "a run of these settings", f"a finished one with {got}", "train into another folder")
    history = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return Run(Classifier.load(out), history, json.loads((out / "result.json").read_text(encoding="utf-8")))


def _recorder(out: Path, tensorboard: bool) -> Callable[[list[dict[str, Any]]], None]:
    """Writes metrics.jsonl anew after each epoch, whole, and the newest epoch as events where asked for."""
    need("tensorboard", "tensorboard") if tensorboard else None

    def record(history: list[dict[str, Any]]) -> None:
        write_text(out / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in history))
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(str(out / "events")) as writer:
                for name, value in history[-1].items():
                    if name != "epoch":
                        writer.add_scalar(name, value, history[-1]["epoch"], time.time())

    return record
