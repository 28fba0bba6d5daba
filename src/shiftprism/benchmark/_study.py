"""The whole grid: cells side by side, progress from the files they write, and a folder that can be gone on with."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism._checks import wrong
from shiftprism._files import write_text
from shiftprism.benchmark._cells import run_cell, state
from shiftprism.benchmark._plan import Cell, Plan, as_json, cells, file_name
from shiftprism.benchmark._results import Results
from shiftprism.benchmark._rows import read_rows
from shiftprism.benchmark._spread import Done, spread
from shiftprism.benchmark._suites import home, home_files, shifts

_EPOCH = 10
"""An epoch counts as much as this many forwarded sets: 45,000 images and their gradients beside 10,000 without."""
_SETS = 4
"""Sets beside the shifted ones: train, held-out, clean, and the rows."""
Tell = Callable[[float, str], None]
"""Told the share of all work that is done, and what is going on."""
Work = Callable[[Any, int], Any]
Ladders = dict[str, list[tuple[str, int]]]
"""For each ID data set the name and severity of every shift."""


class Outcome(NamedTuple):
    """What a study ended with."""

    results: Results
    """Of every whole cell in the folder, those of earlier commands too."""
    failed: dict[str, str]
    """Cells that came to nothing, and why."""
    notes: list[str]
    """What a reader should know, such as a broken file that was made anew."""


def study(
    plan: Plan,
    out: str | Path,
    jobs: int = 1,
    cluster: str | None = None,
    tell: Tell | None = None,
    command: str = "",
    work: Work = run_cell,
) -> Outcome:
    """Run what is missing of a plan into the folder `out`, and write the rows of all of it.

    Killed at any moment, the same call goes on and ends with the same rows. A folder of other settings is refused; more
    models, seeds, scores or data sets of the same suite may be added to it.
    """
    out = Path(out).resolve()
    everything = cells(plan, out)
    ladders = _begun(plan, out, command)
    notes = [
        f"{cell.key}: {fault} The rows are made anew from its stored outputs."
        for cell in everything
        if (fault := state(cell.folder)) not in ("", "absent")
    ]
    failed: dict[str, str] = {}
    with _watching(everything, ladders, tell):
        if not cluster:  # elsewhere a cell makes what its machine does not have
            for done in spread(_make, _unmade(plan, out, ladders), jobs):
                failed |= {"shifted images": done.error} if done.error else {}
        for derived in (False, True):  # an ensemble needs its members' outputs
            wave = [cell for cell in everything if (cell.model == "ensemble") == derived]
            for done in spread(work, wave, jobs, cluster):
                failed |= _settled(wave[done.number], done)
    results = collect(out)
    results.write(out)
    _join_pixels(out)
    return Outcome(results, failed, notes)


def collect(out: Path) -> Results:
    """The rows of all whole cells in a folder, in the order of their names."""
    folders = sorted(path for path in (out / "cells").iterdir() if path.is_dir() and not state(path))
    return Results.concat(Results.read(folder) for folder in folders)


def _join_pixels(out: Path) -> None:
    """pixels.json: for each ID data set the pixel counts of every set, (C, 256), as figures need them."""
    found = {}
    for file in sorted(out.glob("cells/*-pixels-0/pixels.json")):
        counts = json.loads(file.read_text(encoding="utf-8"))
        found[next(iter(counts))] = counts
    write_text(out / "pixels.json", json.dumps(found))


def _settled(cell: Cell, done: Done) -> dict[str, str]:
    """Rows that came from another machine are written here; an error is kept beside them."""
    error = cell.folder / "error.txt"
    if done.error:
        write_text(error, done.trace or done.error)
        return {cell.key: f"{done.error} ({error})"}
    error.unlink(missing_ok=True)
    if state(cell.folder) or read_rows(cell.folder / "rows.jsonl") != done.result.rows:
        done.result.write(cell.folder)
    return {}


def _begun(plan: Plan, out: Path, command: str) -> Ladders:
    """Take the folder, and find whatever is missing or wrong about the data before any work is done.

    A new folder is then left as it was: the command that is put right must not be refused for other settings.
    """
    new = [path for path in (out / "suite.json", *home_files(plan, out)) if not path.exists()]
    _claim(plan, out, command)
    try:
        return {data: [(one.name, one.severity) for one in shifts(plan, data, out)] for data in plan.data}
    except (ValueError, OSError):
        for path in new if out / "suite.json" in new else ():
            path.unlink(missing_ok=True)
        raise


def _claim(plan: Plan, out: Path, command: str) -> None:
    """Write suite.json, with the commands that filled the folder before; refuse one of other settings."""
    path = out / "suite.json"
    earlier: list[str] = []
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = plan.differences(before["plan"])
            told = [*before.get("earlier", []), before.get("command", "")]
            earlier = [one for one in told if one not in ("", command)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise wrong("out", "a folder of results", f"{path} ({error})", "remove this file to go on") from error
        if changed:
            advice = "repeat the earlier command to go on with it, or take another folder"
            raise wrong("out", "a new folder, or one of these settings,", f"{out} with {'; '.join(changed)}", advice)
    asked = {"plan": as_json(plan), "command": command, "earlier": list(dict.fromkeys(earlier))}
    write_text(path, json.dumps(asked, indent=2) + "\n")


def _unmade(plan: Plan, out: Path, ladders: Ladders) -> list[tuple[Plan, str, str, int]]:
    """The shifted sets that are not in the folder yet."""
    found = []
    for data in plan.data:
        folder = out / "shifted" / home(plan, data, out).name
        for number, (name, severity) in enumerate(ladders[data]):
            if not (folder / file_name(name, severity)).exists():
                found.append((plan, data, str(out), number))
    return found


def _make(item: tuple[Plan, str, str, int], threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    plan, data, out, number = item
    shifts(plan, data, Path(out))[number].make()


@contextmanager
def _watching(everything: Sequence[Cell], ladders: Ladders, tell: Tell | None) -> Iterator[None]:
    """Tell every second how far the cells are, by the files they have written."""
    if tell is None:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=partial(_watch, everything, ladders, tell, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(everything: Sequence[Cell], ladders: Ladders, tell: Tell, stop: threading.Event) -> None:
    plan, out = everything[0].plan, Path(everything[0].out)
    sets = {data: len(found) for data, found in ladders.items()}
    whole: set[str] = set()
    last = False
    while not last:
        last = stop.is_set()  # once more after the end: the bar shall be full
        done, total, busy, made = 0.0, 0.0, [], 0
        for data in plan.data:
            made += _count(out / "shifted" / home(plan, data, out).name, "*.safetensors")
        total, done = float(sum(sets.values())), float(made)
        for cell in everything:
            epochs = 0 if cell.run or cell.model in ("ensemble", "pixels") else plan.training(cell.model, 0).epochs
            weight = 1 if cell.model == "pixels" else _EPOCH * epochs + sets[cell.data] + _SETS
            total += weight
            if cell.key in whole or not state(cell.folder):
                whole.add(cell.key)
                done += weight
            elif cell.folder.exists():
                busy.append(cell.key)
                done += min(weight - 1, _EPOCH * _lines(cell.folder / "run/metrics.jsonl"))
                done += _count(cell.folder / "outputs", "*.safetensors")
        now = "" if len(whole) == len(everything) else f"; {', '.join(busy[:2]) or 'shifted images'}"
        tell(done / total, f"{len(whole)} of {len(everything)} cells{now}")
        stop.wait(1.0)


def _count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern)) if folder.exists() else 0


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
