"""A run: data, backbone, head and settings by name, in a folder that holds everything and can be resumed."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism._devices import choose_device, move
from shiftprism._errors import wrong
from shiftprism._extras import need
from shiftprism._files import check_file, check_seal, read_json, write_sealed, write_text
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset, load
from shiftprism.training._augmentation import channel_statistics
from shiftprism.training._loop import Progress, train
from shiftprism.training._precision import decide_precision
from shiftprism.training._processes import Processes
from shiftprism.training._settings import Setup, differences, read_settings, write_settings


class Run(NamedTuple):
    """A finished run. `result` holds the test accuracy, the number of test images and the seconds of all epochs."""

    classifier: Classifier
    history: list[dict[str, Any]]
    result: dict[str, Any]


def run(
    out: Path,
    setup: Setup,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    progress: Callable[[Progress], None] | None = None,
    processes: Processes | None = None,
    device: str = "auto",
) -> Run:
    """Train by names into the folder `out`: config.toml, metrics.jsonl, a state, and at the end model and result.json.

    With `keep` in the settings, models of earlier epochs are in checkpoints/EPOCH.

    A folder that holds a run is an error unless `resume`. With `resume` a finished run is loaded and returned as it is.
    The classifier that is returned stays on the `device`, which is no setting: a run may resume on another one.
    """
    choose_device(device)  # one that is not there is an error before anything is loaded or written
    state = out / "state.safetensors"
    if state.exists() and not resume:
        raise wrong("out", "a new folder", f"{out}, which holds a run", "add --resume to resume it")
    if (out / "result.json").exists():
        finished = _load_finished(out, setup)
        return finished._replace(classifier=move(finished.classifier, device))
    processes = processes or Processes(device)
    learned, _ = split_held_out(setup.data, setup.training.held_out, setup.root)
    test = load(setup.data, "test", setup.root)
    classifier = move(_build_classifier(setup, learned), device)
    classifier.to(processes.device(classifier.mean.device))  # among several processes each has its own
    # decided before the loop, so that config.toml says it from the start
    training = decide_precision(setup.training, classifier, learned.images, processes, state)
    if processes.writes:
        write_settings(out / "config.toml", setup._replace(training=training).settings())
    processes.wait()
    record = _make_recorder(out, tensorboard)
    places = {"state": state, "checkpoints": out / "checkpoints"}
    history = train(classifier, learned, training, progress, **places, processes=processes, record=record)
    outputs, _ = predict(classifier, test)
    correct = int((outputs.predictions == test.labels).sum())
    seconds = sum(entry["seconds"] for entry in history)
    result = {"test_accuracy": correct / outputs.N, "test_images": outputs.N, "training_seconds": round(seconds, 1)}
    if processes.writes:
        classifier.save(out)  # from wherever it is: what follows may forward on the device
        write_sealed(out / "result.json", result)  # last: a folder that has it is finished
    processes.wait()
    return Run(classifier, history, result)


def split_held_out(data: str, share: float, root: Path | None = None) -> tuple[Dataset, Dataset]:
    """(the training images of a run, those it holds out for calibrators and ranks): equal for every seed and head."""
    return load(data, "train", root).hold_out(share)


def _build_classifier(setup: Setup, learned: Dataset) -> Classifier:
    if len(learned.names) < 2:
        got = f"{setup.data} with {len(learned.names)}"
        raise wrong("data", "of two classes or more", got, "make a folder of images for each class")
    mean, std = channel_statistics(learned.images)
    return Classifier.build(
        setup.backbone,
        setup.head,
        learned.names,
        channels=learned.images.shape[1],
        mean=mean,
        std=std,
        seed=setup.training.seed,
    )


def _load_finished(out: Path, setup: Setup) -> Run:
    """The run in a folder, if it is of these settings; `precision="auto"` means the precision that was chosen then."""
    stored, settings = read_settings(out / "config.toml"), setup.settings()
    if settings["precision"] == "auto":
        settings["precision"] = stored.get("precision")
    if changed := differences(settings, stored):
        got = f"a finished one with {', '.join(changed)}"
        raise wrong("out", "a run of these settings", got, "train into another folder")
    return Run(Classifier.load(out), _read_history(out / "metrics.jsonl"), read_result(out))


def read_result(out: Path) -> dict[str, Any]:
    """What `run` wrote last: accuracy, number of test images and seconds; a file without these numbers is an error."""
    path, advice = out / "result.json", "remove it and resume the run"
    result = read_json(path, "the result of a run", advice)
    for name in ("test_accuracy", "test_images", "training_seconds"):
        value = result.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise wrong("path", "the result of a run", f"{path} with {name} = {value!r:.40}", advice)
    accuracy, images = result["test_accuracy"], result["test_images"]
    if type(images) is not int or not 0 < images < 1 << 40 or not _is_share(accuracy, images):
        got = f"{path} with an accuracy of {accuracy!r:.20} on {images!r:.20} images"
        raise wrong("path", "the result of a run", got, advice)
    return check_seal(path, result, "the result of a run", advice)


def _is_share(accuracy: float, images: int) -> bool:
    """Whether some number of right answers gives this accuracy."""
    return accuracy <= 1 and round(accuracy * images) / images == accuracy


def _read_history(path: Path) -> list[dict[str, Any]]:
    try:
        history = [json.loads(line) for line in check_file(path).read_text(encoding="utf-8").splitlines()]
        if not all(isinstance(entry, dict) for entry in history):
            raise ValueError("a line that is no object")
        return history
    except (ValueError, RecursionError) as error:
        raise wrong("path", "the records of a run", f"{path} ({error})", "train into another folder") from error


def _make_recorder(out: Path, tensorboard: bool) -> Callable[[list[dict[str, Any]]], None]:
    """A function that writes the history to metrics.jsonl, and with `tensorboard` the last epoch as events too."""
    if tensorboard:
        need("tensorboard", "tensorboard")  # a missing extra is an error now, not after the first epoch

    def record(history: list[dict[str, Any]]) -> None:
        write_text(out / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in history))
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(str(out / "events")) as writer:
                for name, value in history[-1].items():
                    if name != "epoch":
                        writer.add_scalar(name, value, history[-1]["epoch"], time.time())

    return record
