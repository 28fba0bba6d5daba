"""Random mutations of every kind of file that is read, through the error boundary of the command line, in this process.

    python tools/fuzz.py [--cases 2000] [--seconds 3000] [--seed 0] [--only KIND]

A case damages one file of a valid set and runs a command that reads it. It counts
- tracebacks: an exception that left `main`, or an "unexpected" error, which has a traceback in a file;
- hangs: a case that took more than ten seconds;
- wrong exit codes: 0 though the command says that something is wrong, or neither 0, 1 nor 2;
- errors that are not one line, or that do not name the file.
An exit code of 0 alone is no fault: a mutation may leave a file valid (a space in a JSON file, a pixel of an image).
Where the command then answers as it did before, nothing was lost. Where it answers otherwise, the case is listed for a
person to judge, except for files whose format guards nothing, such as the pixels of a BMP: those are counted.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
from shiftprism.outputs import Outputs
from shiftprism.rows import Results, ResultsFolder
from shiftprism.scores import Mahalanobis

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from dataset_files import MAKERS, ROWS, TINY

LIMIT = 10
"""Seconds a case may take."""
UNGUARDED = ("image .jpg", "image .tiff", "image .bmp", "image .gif", "corrupted-tar", "safetensors", "vectors.txt")
"""Kinds of files without a checksum: other pixels are valid pixels."""


class Target(NamedTuple):
    """A file to damage, and what reads it; both below the folder of the cases."""

    kind: str
    file: str
    read: Callable[[], Any]
    made: str = ""
    """A file that is written by the command, and removed after the case: part of its answer."""
    accepted: str = ""
    """Where the command fails after it has read the file, what it says then; that counts as an exit code of 0."""


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` catches it."""


def make_files(folder: Path) -> list[Target]:
    """Valid files of every kind, each small, and what reads them."""
    return [*_make_model(folder), *_make_data(folder), *_make_archives(folder), *_make_results(folder)]


def _run(words: str) -> Callable[[], None]:
    return partial(main, words.split())


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
        run_case(_run(words + name), 300)
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


def mutate(content: bytes, rng: random.Random, text: bool) -> bytes:
    """One to three random changes: bits, cuts, insertions, repetitions, and odd values where the file is text."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        kinds: list[Callable[[bytearray, random.Random], Any]] = [_flip, _flip, _cut, _insert, _repeat, _overwrite]
        rng.choice([*kinds, *(3 * [_replace_value] if text else [])])(changed, rng)
    return bytes(changed)


def _place(changed: bytearray, rng: random.Random) -> int:
    # half of the changes near the start, where headers are
    return rng.randrange(max(1, min(len(changed), 300 if rng.random() < 0.5 else len(changed))))


def _flip(changed: bytearray, rng: random.Random) -> None:
    if changed:
        changed[_place(changed, rng)] ^= 1 << rng.randrange(8)


def _cut(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    del changed[first : None if rng.random() < 0.3 else first + rng.randint(1, 40)]


def _insert(changed: bytearray, rng: random.Random) -> None:
    at = _place(changed, rng)
    changed[at:at] = rng.choice(
        [rng.randbytes(rng.randint(1, 20)), b"[" * 2000, b"\xff\xfe", b"\n\n", b"NaN", b"1e999"]
    )


def _repeat(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    changed[first:first] = changed[first : first + rng.randint(1, 200)]


def _overwrite(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    changed[first : first + 4] = rng.choice([b"\xff" * 4, b"\x00" * 4, b"\x7f\xff\xff\xff"])


_ODD = ("null", "[]", "{}", "-1", "0", "1e999", "NaN", "1" + "0" * 30, '""', '"x"', "true", "[1, 2]", '{"a": 1}', "1.0")


def _replace_value(changed: bytearray, rng: random.Random) -> None:
    """Another value in place of a word or number of a text."""
    text = changed.decode("utf-8", "replace")
    words = [word for word in text.replace(",", " ").replace(":", " ").split() if word.strip("{}[]")]
    if words:
        changed[:] = text.replace(rng.choice(words), rng.choice(_ODD), 1).encode()


class Outcome(NamedTuple):
    """How a case ended: its exit code, or the fault that it showed."""

    code: int | None
    fault: str = ""
    line: str = ""
    answer: str = ""
    """What it printed."""


def run_case(read: Callable[[], Any], limit: int = LIMIT) -> Outcome:
    """Run a command in this process, with its output caught and an alarm set."""

    def stop(*_: object) -> None:
        raise Hang

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            read()
    except SystemExit as stopped:
        code = stopped.code
    except Hang:
        return Outcome(None, "hang")
    except BaseException as error:  # whatever leaves main would be a traceback on a terminal
        return Outcome(None, "traceback", repr(error)[:200])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return judge(code, err.getvalue())._replace(answer=out.getvalue())


def judge(code: Any, err: str) -> Outcome:
    """The fault in how a command ended, if there is one."""
    # warnings, of Pillow about a damaged tag say, are lines of their own before the error
    line = "\n".join(each for each in err.strip().splitlines() if not each.startswith("shiftprism: warning"))[:300]
    if "Traceback" in err or "shiftprism: unexpected" in err:
        return Outcome(code, "traceback", line)
    if code not in (0, 1, 2) or (code == 0 and "shiftprism: " in line):
        return Outcome(code, "wrong exit code", line)
    if code and (not line.startswith("shiftprism: ") or line.count("\n") > 1):
        return Outcome(code, "not one line", line)
    return Outcome(code, "", line)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, with the cache of decoded images there too."""
    before, cache = Path.cwd(), os.environ.get("SHIFTPRISM_DATA")
    os.chdir(folder)
    os.environ["SHIFTPRISM_DATA"] = str(folder / "cache")
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = None
        os.environ.pop("SHIFTPRISM_DATA")
        if cache is not None:
            os.environ["SHIFTPRISM_DATA"] = cache


def run_target(target: Target, limit: int = LIMIT) -> Outcome:
    """Run what reads the file; the answer includes what was written, and an error must name the file."""
    outcome = run_case(target.read, limit)
    made = Path(target.made or os.devnull)
    if target.made and made.exists():
        outcome = outcome._replace(answer=outcome.answer + made.read_bytes().hex())
        made.unlink()
    if target.accepted and outcome.code == 1 and target.accepted in outcome.line:
        return Outcome(0, answer=outcome.line)
    if outcome.code == 1 and not outcome.fault and not any(part in outcome.line for part in Path(target.file).parts):
        return outcome._replace(fault="names no file")
    return outcome


def describe_change(before: bytes, after: bytes) -> str:
    """Where two contents begin to differ, and how."""
    pairs = enumerate(zip(before, after, strict=False))
    first = next((number for number, (old, new) in pairs if old != new), min(len(before), len(after)))
    part = slice(max(0, first - 12), first + 28)
    return f"{len(before)} -> {len(after)} bytes, at {first}: {before[part]!r} -> {after[part]!r}"


class Tally(NamedTuple):
    """What was counted in a run."""

    counts: Counter[str]
    """Cases by kind and how they ended."""
    faults: Counter[str]
    lines: list[str]
    """One for each fault."""
    doubts: list[str]
    """One for each case that a person should judge: an exit code of 0, and another answer than before."""


def run_cases(folder: Path, cases: int, seconds: float, seed: int, only: str = "") -> Tally:
    """Damage one file after another until either limit is reached."""
    rng, ended = random.Random(seed), time.perf_counter() + seconds
    tally = Tally(Counter(), Counter(), [], [])
    with inside(folder):
        targets = [target for target in make_files(folder) if only in target.kind]
        valid = {target.kind: run_target(target, 60) for target in targets}
        assert all(outcome.code == 0 and not outcome.fault for outcome in valid.values()), valid
        for number in range(cases):
            if time.perf_counter() > ended:
                break
            target = targets[number % len(targets)]
            path = folder / target.file
            content = path.read_bytes()
            changed = mutate(content, rng, path.suffix in (".json", ".jsonl", ".toml", ".txt"))
            path.write_bytes(changed)
            outcome = run_target(target)
            path.write_bytes(content)
            name = f"case {number}, {target.kind}"
            tally.counts[f"{target.kind}: {_describe_end(outcome, valid[target.kind])}"] += 1
            if outcome.fault:
                kept = folder.parent / f"fault-{number}{path.suffix}"
                kept.write_bytes(changed)
                tally.faults[outcome.fault] += 1
                tally.lines.append(f"{outcome.fault}: {name}: {outcome.line} ({kept})")
            elif outcome.code == 0 and outcome.answer != valid[target.kind].answer and target.kind not in UNGUARDED:
                tally.doubts.append(f"{name}: {describe_change(content, changed)}")
    return tally


def _describe_end(outcome: Outcome, valid: Outcome) -> str:
    if outcome.code == 0:
        return f"exit 0, {'the same' if outcome.answer == valid.answer else 'another'} answer"
    return f"exit {outcome.code}"


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only kinds of files whose name contains this")
    wanted = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="shiftprism-fuzz-"))
    (place / "files").mkdir()
    began = time.perf_counter()
    tally = run_cases(place / "files", wanted.cases, wanted.seconds, wanted.seed, wanted.only)
    for name, count in sorted(tally.counts.items()):
        print(f"{count:6}  {name}")
    print("To judge: an exit code of 0, and another answer than before", *tally.doubts, sep="\n")
    print("Faults", *tally.lines, sep="\n")
    summary = {"cases": sum(tally.counts.values()), "seconds": round(time.perf_counter() - began)}
    kinds = ("traceback", "hang", "wrong exit code", "not one line", "names no file")
    print(json.dumps(summary | {"to judge": len(tally.doubts)} | {name: tally.faults[name] for name in kinds}))
    shutil.rmtree(place / "files")
    sys.exit(bool(tally.lines))


if __name__ == "__main__":
    _main()
