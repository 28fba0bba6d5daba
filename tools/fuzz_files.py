"""Valid files of every kind that is read, each small, and the commands that read them; tools/fuzz.py damages them."""

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from shiftprism import calibrators, scores
from shiftprism._files import fingerprint
from shiftprism.benchmark import Plan
from shiftprism.calibrators import Temperature
from shiftprism.classifier import Classifier, predict
from shiftprism.cli import main
from shiftprism.datasets import load
from shiftprism.detector import Detector
from shiftprism.export import export
from shiftprism.monitor import Monitor
from shiftprism.outputs import Outputs
from shiftprism.rows import Results, ResultsFolder
from shiftprism.scores import Mahalanobis
from shiftprism.store import MonitorFold, make_observations, monitor_to_bytes, open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from dataset_files import MAKERS, ROWS, TINY

UNGUARDED = (
    *("image .jpg", "image .tiff", "image .bmp", "image .gif", "corrupted-tar", "safetensors", "vectors.txt"),
    *("resumed csv", "resumed jsonl", "rows.jsonl", "listed store"),
)
"""Kinds of files without a checksum: other pixels are valid pixels, and another number of a row is a number."""


class Target(NamedTuple):
    """A file to damage, and what reads it; both below the folder of the cases."""

    kind: str
    file: str
    read: Callable[[], Any]
    made: str = ""
    """A file that is written by the command, and removed after the case: part of its answer."""
    scratch: tuple[str, ...] = ()
    """Other files that it writes, removed as well."""
    accepted: str = ""
    """Where the command fails after it has read the file, what it says then; that counts as an exit code of 0."""
    good: tuple[int, ...] = (0,)
    """The exit codes of a command that took the file."""
    refused: tuple[int, ...] = (1, 2)
    """The exit codes of a command that did not."""


def make_files(folder: Path) -> list[Target]:
    """Valid files of every kind, each small, and what reads them."""
    return [
        *_make_model(folder),
        *_make_data(folder),
        *_make_archives(folder),
        *_make_results(folder),
        *_make_detector(folder),
        *_make_monitor(folder),
    ]


def _run(words: str) -> Callable[[], None]:
    return partial(main, words.split())


def _run_quietly(words: str) -> None:
    caught = io.StringIO()
    with contextlib.redirect_stdout(caught), contextlib.redirect_stderr(caught), contextlib.suppress(SystemExit):
        main(words.split())


def _make_model(folder: Path) -> list[Target]:
    """A saved model, what is fitted to it, its run, and settings."""
    digits = load("digits", "test")
    small = digits.rows(slice(0, 200))
    arrays: dict[str, Any] = {
        "images": small.images.numpy(),
        "labels": small.labels.numpy(),
        "names": np.array(small.names),
    }
    np.savez(folder / "mine.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    np.savez(folder / "logits.npz", logits=np.random.default_rng(0).normal(size=(60, 3)), labels=np.arange(60) % 3)
    classifier = Classifier.build("digits", "alpha-beta", digits.names, channels=1)
    classifier.save(folder / "model")
    (folder / "model" / "config.toml").write_text('data = "mine.npz"\nheld_out = 0.5\nseed = 3\nepochs = 4\n')
    outputs, _ = predict(classifier, small)
    outputs.save(folder / "outputs.safetensors", small.labels)
    Temperature.fit(outputs, small.labels).save(folder / "calibrator")
    Mahalanobis.fit(outputs, small.labels).save(folder / "score")
    words = "train --preset smoke --epochs 1 --data mine.npz --backbone digits --device cpu --resume --out "
    for name in ("run", "stopped"):
        _run_quietly(words + name)
    (folder / "stopped" / "result.json").unlink()
    (folder / "settings.toml").write_text('epochs = 1\nbatch = 512\npreset = "smoke"\ndata = "mine.npz"\nrate = 0.1\n')
    calibrate = _run("calibrate model --method temperature --force --split all --data mine.npz")
    train = _run("train --config settings.toml --epochs 1 --backbone digits --data nosuch.npz")
    finished = _run(words + "run")
    return [
        Target("model.json", "model/model.json", calibrate),
        Target("weights", "model/weights.safetensors", calibrate),
        Target("config.toml", "model/config.toml", calibrate),
        Target("settings.toml", "settings.toml", train, accepted="nosuch.npz"),
        Target("result.json", "run/result.json", finished),
        Target("metrics.jsonl", "run/metrics.jsonl", finished),
        Target("run's config.toml", "run/config.toml", finished),
        Target("run's weights", "run/weights.safetensors", finished),
        Target("state", "stopped/state.safetensors", _run(words + "stopped"), made="stopped/result.json"),
        Target("outputs", "outputs.safetensors", partial(_load, _read_outputs, "outputs.safetensors")),
        *(
            Target(f"{name} {file}", f"{name}/{file}", partial(_load, partial(_read_module, read), name))
            for name, read in (("calibrator", calibrators.load), ("score", scores.load))
            for file in (f"{name}.json", "weights.safetensors")
        ),
    ]


def _load(read: Callable[[str], str], path: str) -> None:
    """Read what no command reads alone, with errors and answers like those of a command."""
    try:
        print(read(path))
    except (ValueError, OSError) as error:
        print(f"shiftprism: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _read_module(load_module: Callable[[str], torch.nn.Module], path: str) -> str:
    module = load_module(path)
    return f"{module} {getattr(module, 'report', '')} {fingerprint(module.state_dict())}"


def _read_outputs(path: str) -> str:
    outputs, labels = Outputs.load(path)
    named = dict(zip(Outputs._fields, tuple(outputs), strict=True))
    return fingerprint(named if labels is None else named | {"labels": labels})


def _read_data(root: Path, name: str) -> str:
    data = load(name, "test", root)
    return f"{data.names} {fingerprint({'images': data.images, 'labels': data.labels})}"


def _make_data(folder: Path) -> list[Target]:
    """Arrays, images and word vectors of a user."""
    for name in ("a", "b", "c"):
        (folder / "images" / name).mkdir(parents=True)
        for number, ending in enumerate(("png", "jpg", "tiff", "bmp", "gif", "png")):
            pixels = np.random.default_rng(number).integers(0, 256, (12, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.{ending}")
    pixels, names = np.zeros((30, 8, 8), np.uint8), np.array(["x", "y", "z"])
    np.savez(folder / "near.npz", images=pixels, labels=np.arange(30) % 3, names=names)
    words = [*"0123456789", "x", "y", "z"]
    vectors = np.random.default_rng(0).normal(size=(len(words), 4)).round(3)
    np.savez_compressed(folder / "vectors.npz", words=np.array(words), vectors=vectors)
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(words, vectors, strict=True)]
    (folder / "vectors.txt").write_text("".join(lines))
    show = "data show --to sheet.png --split all --images 1 "
    splits = "data show digits --to sheet.png --shift concept-splits --images 1 --near near.npz --groups 3 --vectors "
    images = [f"images/a/{number}.{kind}" for number, kind in enumerate(("png", "jpg", "tiff", "bmp", "gif"))]
    return [
        Target("npz data", "mine.npz", _run(show + "mine.npz"), "sheet.png"),
        Target("npz packed", "packed.npz", _run(show + "packed.npz"), "sheet.png"),
        Target("npz logits", "logits.npz", _run("calibrate --logits logits.npz --force")),
        Target("vectors.npz", "vectors.npz", _run(splits + "vectors.npz"), "sheet.png"),
        Target("vectors.txt", "vectors.txt", _run(splits + "vectors.txt"), "sheet.png"),
        *(Target(f"image {Path(f).suffix}", f, _run(show + "images --size 8 --images 6"), "sheet.png") for f in images),
    ]


def _make_archives(folder: Path) -> list[Target]:
    """Data sets in the publishers' archives, made small; the constants that say how large they are, too."""
    from shiftprism.datasets import _cifar, _tiny_imagenet

    _cifar.ROWS.update(ROWS)
    _tiny_imagenet.CLASSES, _tiny_imagenet.EACH = len(TINY), {"train": 2, "test": 2}
    targets = []
    for kind in (
        "cifar10-binary-archive",
        "cifar10-python-archive",
        "cifar100-python-archive",
        "fashion-mnist-gz",
        "svhn-compressed",
        "tiny-imagenet-zip",
        "corrupted-tar",
        "safetensors",
    ):
        made = MAKERS[kind](folder / kind, "test")
        read = partial(_load, partial(_read_data, folder / kind), made.name)
        targets.append(Target(kind, str(made.file.relative_to(folder)), read))
    return targets


def _make_results(folder: Path) -> list[Target]:
    """Rows and the plan of a benchmark."""
    stored = files("shiftprism.benchmark").joinpath("cifar10/cells/cifar10-vanilla-0/rows.jsonl")
    (folder / "stored").mkdir()
    (folder / "stored" / "rows.jsonl").write_text(stored.read_text(encoding="utf-8"), encoding="utf-8")
    results = Results.read(folder / "stored")
    results.take(range(0, len(results.rows), 40)).write(folder / "results")
    claims = _run("claims results --format json")
    plan = Plan(suite="digits", models=("vanilla",), seeds=1, images=200).resolve()
    ResultsFolder(folder / "grid").write_suite(plan.to_json(), "shiftprism benchmark")
    shutil.copytree(folder / "model", folder / "foreign")
    # a model of other classes than the suite's: the command ends after it has read the plan
    benchmark = "benchmark --suite digits --models vanilla --seeds 1 --images 200 --out grid --runs foreign"
    return [
        Target("rows", "results/rows.jsonl", claims),
        Target("resamples", "results/resamples.safetensors", claims),
        Target("suite.json", "grid/suite.json", _run(benchmark), accepted="Expected --runs"),
    ]


_PARTS = (
    *("detector.json", "ranks.safetensors", "model/model.json", "model/weights.safetensors"),
    *(f"{part}/weights.safetensors" for part in ("style", "concept", "calibrator")),
    *("style/score.json", "concept/score.json", "calibrator/calibrator.json"),
)
"""Of the folder of a detector."""


def _make_detector(folder: Path) -> list[Target]:
    """A detector, its ONNX file, images that both score, and a file of verdicts that is resumed."""
    digits = load("digits", "train")
    classifier = Classifier.build("digits", "alpha-beta", digits.names, 1, seed=1).eval()
    detector = Detector.fit(classifier, digits.images[:200], digits.labels[:200], concept="knn", copies=4)
    detector.save(folder / "detector")
    export(detector, folder / "detector.onnx", images=digits.images[200:220])
    (folder / "shown").mkdir()
    for number in range(4):
        pixels = digits.images[300 + number, 0].numpy()
        Image.fromarray(pixels if number < 3 else 255 - pixels).save(folder / "shown" / f"{number}.png")
    score = "score {} shown --device cpu"
    with_torch, with_onnx = (_run(score.format(name)) for name in ("detector", "detector.onnx"))
    resumed = {ending: f"{score.format('detector')} --to verdicts.{ending}" for ending in ("csv", "jsonl")}
    for words in resumed.values():
        _run_quietly(words)
    taken = (0, 3)
    return [
        *(Target(f"detector {part}", f"detector/{part}", with_torch, good=taken) for part in _PARTS),
        Target("detector.onnx", "detector.onnx", with_onnx, good=taken),
        Target("scored image", "shown/0.png", with_torch, good=taken, refused=(1, 2, 4, 5)),
        *(Target(f"resumed {e}", f"verdicts.{e}", _run(words), good=taken) for e, words in resumed.items()),
    ]


def _make_monitor(folder: Path) -> list[Target]:
    """The state of a monitor, verdicts that one reads, and the store of a service."""
    detector = Detector.load(folder / "detector")
    rows = load("digits", "train").images[400:700]
    verdicts = detector(torch.cat([rows, 255 - rows[:60]]))
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in verdicts.to_dicts()))
    _run_quietly("monitor detector --state state.safetensors --jsonl rows.jsonl")
    Monitor(detector.reference()).save(folder / "empty.safetensors")
    with open_store(str(folder / "store.sqlite")) as store:
        start = monitor_to_bytes(Monitor(detector.reference()))
        stream = store.open_stream("digits", detector.fingerprint(), detector.names, calibrated=True, state=start)
        ids = [f"{number:032x}" for number in range(100)]
        store.append(make_observations(verdicts[:100], ids, stream.number, "request", 1000.0))
        store.fold(stream, MonitorFold())
    states, logs = (0, 3, 4), ("store.sqlite-wal", "store.sqlite-shm")
    show, draw = "monitor state.safetensors --json", "report --monitor state.safetensors --to page.html"
    watch = "monitor empty.safetensors --state new.safetensors --jsonl rows.jsonl --json"
    return [
        Target("monitor state", "state.safetensors", _run(show), good=states),
        Target("reported state", "state.safetensors", _run(draw), "page.html"),
        Target("rows.jsonl", "rows.jsonl", _run(watch), scratch=("new.safetensors",), good=states),
        Target("listed store", "store.sqlite", _run("store list --store store.sqlite"), scratch=logs),
        Target("checked store", "store.sqlite", _run("store check --store store.sqlite"), scratch=logs),
    ]
