"""Commands that once ended in a traceback, hung, or went on in silence: typed again, with how each ends now.

    python tools/error_commands.py [--write]

Each command runs as a person would type it, in a folder of odd files. It must end with its exit code, in one or two
lines on standard error, without a traceback. --write puts the table into docs/errors.md. The exit code of this program
is 1 where a case ends otherwise.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shiftprism.classifier import Classifier
from shiftprism.datasets import load
from shiftprism.rows import Results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from dataset_files import MAKERS

PAGE = Path(__file__).parents[1] / "docs/errors.md"
START, END = "<!-- made by tools/error_commands.py -->\n", "<!-- end -->"
SECONDS = 120
"""A command that takes longer hangs."""
FORBIDDEN = ("Traceback", "[Errno", "<_io.", "allow_pickle", "unexpected ")


class Case(NamedTuple):
    """A command, how it ended before by the words of the issue, and how it must end."""

    before: str
    words: str
    part: str
    """What it must say: on standard error, or in the row of an image that `score` skips."""
    code: int = 1
    check: "Callable[[Path], bool] | None" = None
    """Of the folder, afterwards."""


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, Edit] = {
    "channels 1.0": lambda about: about["recipe"]["arguments"].update(channels=1.0),
    'channels "1"': lambda about: about["recipe"]["arguments"].update(channels="1"),
    "channels 10⁹": lambda about: about["recipe"]["arguments"].update(channels=10**9),
    "channels 10³⁰": lambda about: about["recipe"]["arguments"].update(channels=10**30),
    "an extra argument": lambda about: about["recipe"]["arguments"].update(colour=True),
    "a missing argument": lambda about: about["recipe"]["arguments"].pop("channels"),
    "backbone []": lambda about: about["recipe"].update(backbone=[]),
    "head {}": lambda about: about["recipe"].update(head={}),
    "names 7": lambda about: about.update(names=7),
    "names null": lambda about: about.update(names=None),
    "recipe {}": lambda about: about.update(recipe={}),
    'recipe "x"': lambda about: about.update(recipe="x"),
    "no recipe": lambda about: about.pop("recipe"),
}
"""Of model.json; a file of 100,000 brackets is the fourteenth."""
TRACE, SILENT, HANG = "a traceback", "exit code 0", "no end"
BENCH = "benchmark --suite digits --models vanilla --seeds 1 "
CASES = (
    Case(f"{TRACE} (FloatingPointError)", "train --preset smoke --rate 1e9 --out fast", "a smaller rate may help"),
    Case(f"{TRACE} (channels differ)", "calibrate model --data svhn --split test --root svhn", "--data"),
    Case(TRACE, "data show digits --first 100000 --to sheet.png", "--first"),
    *(Case(TRACE, f"calibrate edit-{number} --data digits", "Expected RUN") for number in range(1, len(EDITS) + 1)),
    Case(TRACE, "calibrate brackets --data digits", "model.json"),
    Case(TRACE, "calibrate --logits bomb.npz", "--logits"),
    Case(TRACE, "train --preset smoke --epochs 1 --out run --resume", "result.json"),
    Case("more than two lines", "dmeo", "No such command", 2),
    Case("more than two lines", "train --foo", "No such option", 2),
    Case("more than two lines", "train --epochs x", "--epochs", 2),
    Case("more than two lines", "claims", "Missing argument", 2),
    Case("more than two lines", BENCH + "--cluster localhost:1 --out c1", "--cluster"),
    Case("more than two lines", BENCH + "--cluster nowhere --out c2", "--cluster"),
    Case("named a Python argument", "train --held-out 3", "Expected --held-out"),
    Case("[Errno 17]", "demo --to notes.txt", "notes.txt: File exists"),
    Case("<_io.BytesIO …>", "data show damaged --to sheet.png --split all", "damaged/a/1.png"),
    Case("NumPy's advice to unpickle", "calibrate --logits objects.npz", "Python objects"),
    Case("a codec error without a file", "train --config latin.toml", "latin.toml"),
    Case('"nothing at notes.txt"', "train --data notes.txt", "a file of another kind"),
    Case('"damaged at byte 0"', "data show apple --to sheet.png --split all", "not in an image format we read"),
    Case('"damaged at byte 0"', "score cifar10 apple/a/1.heic", "it is not in an image format we read.", 4),
    Case(HANG, "train --data pipe", "a pipe"),
    Case(HANG, "calibrate --logits pipe", "a pipe"),
    Case(HANG, "score cifar10 pipe", "this is a pipe", 4),
    Case(HANG, "calibrate --logits /dev/zero", "a device"),
    Case(f"{SILENT}, read it", "data show linked --to sheet.png --split all", "linked/a/1.png, a link to"),
    Case(f"{SILENT}, a black image", "data show floats --to sheet.png --split all", "its pixels are floats"),
    Case(f"{SILENT}, a black image", "score cifar10 floats/a/1.tiff", "its pixels are floats", 4),
    Case(
        f"{SILENT}, not composed on white",
        "data show clear --to clear.png --split all --images 1 --size 8",
        "",
        0,
        lambda folder: bool((np.asarray(Image.open(folder / "clear.png"))[-40:] > 250).mean() > 0.9),
    ),
    Case(SILENT, "calibrate model --data nine.npz --split all", "of 8 × 8 pixels"),
    Case(SILENT, "calibrate --logits one.npz", "two classes or more"),
    Case(SILENT, "claims nan", "nan"),
    Case(SILENT, "claims huge", "huge"),
    Case(SILENT, "claims cut", "resamples.safetensors"),
    Case(SILENT, "benchmark --suite digits --models ''", "--models"),
    Case(SILENT, "train --preset smoke --epochs 1 --momentum 2 --out m", "--momentum"),
    Case(SILENT, "data check --root nosuch", "--root"),
    Case("an error after work had begun", BENCH + "--runs colour --out grid", "--runs"),
    Case(
        "weights that only their owner may read",
        "train --preset smoke --epochs 1 --out fresh",
        "",
        0,
        lambda folder: (folder / "fresh/weights.safetensors").stat().st_mode & 0o777 == 0o644,
    ),
    Case("replaced it", "demo --to taken", "taken/digits, which exists"),
    Case("replaced it", "report results --to notes.txt", "notes.txt, which exists"),
    Case("replaced it", "calibrate model --data digits --split test --method temperature", "--force"),
)


def make_files(folder: Path) -> None:
    """Every odd file that a case reads."""
    names = load("digits", "test").names
    model = Classifier.build("digits", "alpha-beta", names, channels=1)
    model.image_size = (8, 8)
    model.save(folder / "model")
    for number, edit in enumerate(EDITS.values(), 1):
        model.save(folder / f"edit-{number}")
        about = json.loads((folder / f"edit-{number}/model.json").read_text())
        edit(about)
        (folder / f"edit-{number}/model.json").write_text(json.dumps(about))
    model.save(folder / "brackets")
    (folder / "brackets/model.json").write_text("[" * 100_000)
    Classifier.build("digits", "vanilla", names[:7], channels=3).save(folder / "colour")
    MAKERS["svhn-compressed"](folder / "svhn", "test")
    twice = "calibrate model --data digits --split test --method temperature"
    for words in (twice, "train --preset smoke --epochs 1 --out run"):
        assert run_command(folder, words).returncode == 0, words
    (folder / "run/result.json").write_text('{"score": 1}')
    _make_arrays(folder)
    _make_images(folder)
    _make_results(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "latin.toml").write_bytes('data = "Zürich"\n'.encode("latin-1"))
    os.mkfifo(folder / "pipe")
    (folder / "taken/digits").mkdir(parents=True)
    (folder / "taken/digits/rows.jsonl").write_text("mine")


def _make_arrays(folder: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99), }"  # 37 GB
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("logits", "labels"):
            array = b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + bytes(1200)
            archive.writestr(f"{name}.npy", array)
    objects: Any = np.array([{}], dtype=object)
    np.savez(folder / "objects.npz", logits=objects, labels=objects)
    np.savez(folder / "one.npz", logits=np.zeros((60, 1)), labels=np.zeros(60, np.int64))
    nine: dict[str, Any] = {"images": np.zeros((20, 9, 9), np.uint8), "labels": np.arange(20) % 10}
    np.savez(folder / "nine.npz", **nine, names=np.array(list("0123456789")))


def _make_images(folder: Path) -> None:
    for name in ("damaged", "apple", "linked", "floats", "clear"):
        (folder / name / "a").mkdir(parents=True)
    whole = folder / "damaged/a/1.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(whole)
    whole.write_bytes(whole.read_bytes()[:-20])
    (folder / "apple/a/1.heic").write_bytes(b"x")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "outside.png")
    (folder / "linked/a/1.png").symlink_to(folder / "outside.png")
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(folder / "floats/a/1.tiff")
    Image.fromarray(np.zeros((8, 8, 4), np.uint8), "RGBA").save(folder / "clear/a/1.png")


def _make_results(folder: Path) -> None:
    stored = files("shiftprism.benchmark").joinpath("cifar10/cells/cifar10-vanilla-0/rows.jsonl")
    (folder / "stored").mkdir()
    (folder / "stored/rows.jsonl").write_bytes(stored.read_bytes())
    results = Results.read(folder / "stored")
    for name in ("results", "nan", "huge", "cut"):
        results.take(range(0, len(results.rows), 40)).write(folder / name)
    for name, value in (("nan", "NaN"), ("huge", "1e999")):
        first, *rest = (folder / name / "rows.jsonl").read_text().splitlines(keepends=True)
        row = json.loads(first)
        edited = first.replace(json.dumps(row["value"]), value, 1)
        assert edited != first
        (folder / name / "rows.jsonl").write_text("".join([edited, *rest]))
    resamples = folder / "cut/resamples.safetensors"
    resamples.write_bytes(resamples.read_bytes()[:-100])


def run_command(folder: Path, words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a process of its own, with the usual umask."""
    command = [sys.executable, "-m", "shiftprism", *shlex.split(words)]
    place = os.environ | {"COLUMNS": "200", "TMPDIR": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=place, capture_output=True, text=True, check=False, timeout=SECONDS, umask=0o022
    )


def find_fault(case: Case, done: "subprocess.CompletedProcess[str]", folder: Path) -> str:
    """What is wrong with how a command ended; "" where nothing is."""
    lines = done.stderr.splitlines()
    if done.returncode != case.code:
        return f"exit code {done.returncode}, not {case.code}"
    if any(word in done.stderr + done.stdout for word in FORBIDDEN):
        return "a traceback, or words of another program"
    if case.code and not (1 <= len(lines) <= 2 and lines[0].startswith("shiftprism: ")):
        return f"{len(lines)} lines"
    if case.part not in (done.stdout if case.code == 4 else done.stderr):
        return f"does not say {case.part!r}"
    if case.check is not None and not case.check(folder):
        return "the check of its files failed"
    return ""


def describe(case: Case, done: "subprocess.CompletedProcess[str]", folder: Path) -> str:
    """A line of the table."""
    skipped = [line for line in done.stdout.splitlines() if ": skipped: " in line] if case.code == 4 else []
    said = " ⏎ ".join([*done.stderr.splitlines(), *skipped]).replace(f"{folder}/", "") or "as it should"
    number = int(case.words.split()[1].removeprefix("edit-")) if "edit-" in case.words else 0
    edited = f" ({list(EDITS)[number - 1]})" if number else ""
    cells = [f"`{case.words}`{edited}", case.before, str(done.returncode), said]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/errors.md")
    options = parser.parse_args()
    faults, lines = 0, ["| command | before | exit code | what it says now |", "| --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        make_files(folder)
        for case in CASES:
            done = run_command(folder, case.words)
            lines.append(describe(case, done, folder))
            print(lines[-1], flush=True)
            if fault := find_fault(case, done, folder):
                faults += 1
                print(f"FAULT: {fault}", flush=True)
    print(f"{len(CASES)} commands, {faults} faults")
    if options.write and not faults:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        table = "\n".join(lines)
        PAGE.write_text(f"{before}{START}\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
