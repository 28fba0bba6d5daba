"""Random mutations of every kind of file that the command line reads, through its error boundary, in this process.

    python tools/fuzz.py [--cases 2000] [--seconds 240] [--seed 0]

A case damages one file of a valid set and runs a command that reads it. It counts
- tracebacks: an exception that left `main`, or an "unexpected" error, which has a traceback in a file;
- hangs: a case that took more than ten seconds;
- wrong exit codes: 0 though the command says that something is wrong, or neither 0, 1 nor 2.
An exit code of 0 alone is no fault: a mutation may leave a file valid (a space in a JSON file, a pixel of an image).
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
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shiftprism.classifier import Classifier
from shiftprism.cli import main
from shiftprism.datasets import load
from shiftprism.rows import Results

LIMIT = 10
"""Seconds a case may take."""


class Target(NamedTuple):
    """A file to damage, and the command that reads it; both below the folder of the cases."""

    kind: str
    file: str
    words: tuple[str, ...]


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` catches it."""


def make_files(folder: Path) -> list[Target]:
    """Valid files of every kind, each small, and what reads them."""
    digits = load("digits", "test")
    Classifier.build("digits", "alpha-beta", digits.names, channels=1).save(folder / "model")
    (folder / "model" / "config.toml").write_text('data = "mine.npz"\nheld_out = 0.5\nseed = 3\nepochs = 4\n')
    small = digits.rows(slice(0, 200))
    arrays: dict[str, Any] = {
        "images": small.images.numpy(),
        "labels": small.labels.numpy(),
        "names": np.array(small.names),
    }
    np.savez(folder / "mine.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    np.savez(folder / "logits.npz", logits=np.random.default_rng(0).normal(size=(60, 3)), labels=np.arange(60) % 3)
    for name in ("a", "b", "c"):
        (folder / "images" / name).mkdir(parents=True)
        for number, ending in enumerate(("png", "jpg", "tiff", "bmp", "gif", "png")):
            pixels = np.random.default_rng(number).integers(0, 256, (12, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.{ending}")
    stored = files("shiftprism.benchmark").joinpath("cifar10/cells/cifar10-vanilla-0/rows.jsonl")
    (folder / "stored").mkdir()
    (folder / "stored" / "rows.jsonl").write_text(stored.read_text(encoding="utf-8"), encoding="utf-8")
    results = Results.read(folder / "stored")
    results.take(range(0, len(results.rows), 40)).write(folder / "results")
    (folder / "settings.toml").write_text('epochs = 1\nbatch = 512\npreset = "smoke"\ndata = "mine.npz"\nrate = 0.1\n')
    calibrate = ("calibrate", "model", "--method", "temperature", "--force", "--split", "all", "--data", "mine.npz")
    show = ("data", "show", "--to", "sheet.png", "--split", "all", "--images", "1")
    images = [f"images/a/{number}.{kind}" for number, kind in enumerate(("png", "jpg", "tiff", "bmp", "gif"))]
    train = ("train", "--config", "settings.toml", "--epochs", "1", "--backbone", "digits", "--data", "nosuch.npz")
    return [
        Target("model.json", "model/model.json", calibrate),
        Target("weights", "model/weights.safetensors", calibrate),
        Target("config.toml", "model/config.toml", calibrate),
        Target("npz data", "mine.npz", (*show, "mine.npz")),
        Target("npz packed", "packed.npz", (*show, "packed.npz")),
        Target("npz logits", "logits.npz", ("calibrate", "--logits", "logits.npz", "--force")),
        *(Target(f"image {Path(file).suffix}", file, (*show, "images", "--size", "8")) for file in images),
        Target("rows", "results/rows.jsonl", ("claims", "results", "--format", "json")),
        Target("resamples", "results/resamples.safetensors", ("claims", "results", "--format", "json")),
        Target("settings.toml", "settings.toml", train),
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


def run_case(words: tuple[str, ...], limit: int = LIMIT) -> Outcome:
    """Run a command in this process, with its output caught and an alarm set."""

    def stop(*_: object) -> None:
        raise Hang

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as stopped:
        code = stopped.code
    except Hang:
        return Outcome(None, "hang")
    except BaseException as error:  # whatever leaves main would be a traceback on a terminal
        return Outcome(None, "traceback", repr(error)[:200])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return judge(code, err.getvalue())


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
    return Outcome(code)


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


def run_cases(folder: Path, cases: int, seconds: float, seed: int) -> tuple[Counter[str], Counter[str], list[str]]:
    """(cases by kind and exit code, faults, a line for each fault): until either limit is reached."""
    rng, ended = random.Random(seed), time.perf_counter() + seconds
    counts, faults, lines = Counter[str](), Counter[str](), []
    with inside(folder):
        targets = make_files(folder)
        for target in targets:
            if target.kind != "settings.toml":  # its command ends before any training
                assert run_case(target.words, 60) == Outcome(0), (target, run_case(target.words, 60))
        for number in range(cases):
            if time.perf_counter() > ended:
                break
            target = targets[number % len(targets)]
            path = folder / target.file
            content = path.read_bytes()
            path.write_bytes(mutate(content, rng, path.suffix in (".json", ".jsonl", ".toml")))
            outcome = run_case(target.words)
            counts[f"{target.kind}: exit {outcome.code}"] += 1
            if outcome.fault:
                faults[outcome.fault] += 1
                kept = folder.parent / f"fault-{number}{path.suffix}"
                shutil.copy(path, kept)
                lines.append(f"{outcome.fault}: case {number}, {target.kind}: {outcome.line} ({kept})")
            path.write_bytes(content)
    return counts, faults, lines


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="shiftprism-fuzz-"))
    (place / "files").mkdir()
    began = time.perf_counter()
    counts, faults, lines = run_cases(place / "files", wanted.cases, wanted.seconds, wanted.seed)
    for name, count in sorted(counts.items()):
        print(f"{count:6}  {name}")
    print("\n".join(lines))
    summary = {"cases": sum(counts.values()), "seconds": round(time.perf_counter() - began)}
    summary |= {name: faults[name] for name in ("traceback", "hang", "wrong exit code", "not one line")}
    print(json.dumps(summary))
    shutil.rmtree(place / "files")
    sys.exit(bool(lines))


if __name__ == "__main__":
    _main()
