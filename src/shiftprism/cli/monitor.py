"""`shiftprism monitor`: watch a stream of images or verdicts, with a state that survives being killed."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from shiftprism.detector import FileVerdict
    from shiftprism.monitor import Estimate, Monitor, Status
    from shiftprism.runtime import ExportedDetector
    from shiftprism.verdicts import Verdicts

EXIT_CODES = {"ok": 0, "alarm": 3, "warning": 4}
_BATCH = 64
"""Images of a folder that are scored at once."""
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")
_WIDTH = 30
"""Characters of a bar in the live view."""
_LONGEST = 1 << 24
"""Bytes that a line of verdicts may have."""
_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {"ok": "green", "warning": "yellow", "alarm": "red"}


class Batch(NamedTuple):
    """What came next in a stream."""

    verdicts: "Verdicts"
    names: list[str]
    """The file of each verdict; none where verdicts were read."""
    problems: dict[str, str]
    """Why other files have no verdict; they are no observations."""
    bookmark: str


Score = Callable[[list[Path]], Batch]


def monitor(
    detector: Annotated[
        Path,
        typer.Argument(
            help="The folder of a saved detector, an exported .onnx file, or the state of a monitor to start from."
        ),
    ],
    watch: Annotated[
        Path | None, typer.Option(help="A folder of images, read in the order in which they come.")
    ] = None,
    jsonl: Annotated[str | None, typer.Option(help="A file of verdicts as JSON lines; - for standard input.")] = None,
    state: Annotated[Path | None, typer.Option(help="Where the state is kept. (DETECTOR/monitor.safetensors)")] = None,
    false_alarm: Annotated[float | None, typer.Option(help="The chance of ever raising a false alarm. (0.01)")] = None,
    run_length: Annotated[
        int | None, typer.Option(help="Promise an average number of images before a false alarm instead.")
    ] = None,
    within_class: Annotated[
        bool | None, typer.Option("--within-class", help="Rank scores within the predicted class.")
    ] = None,
    every: Annotated[int | None, typer.Option(help="Test one of so many images. (1)")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the folder has been read.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds between two looks at the folder.")] = 2.0,
    reset: Annotated[str | None, typer.Option(help="First record this reason and start a new promise.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print JSON lines, even to a terminal.")] = False,
) -> None:
    """Watch a stream, and tell covariate from concept shift.

    What has been printed is in the state: after a kill, start the same command again. Exit codes: 0 without alarm, 3
    with an alarm, 4 with a warning, 1 for errors.
    """
    from shiftprism._errors import wrong

    if watch is not None and jsonl is not None:
        raise wrong("--jsonl", "left out beside --watch", jsonl, "watch a folder or read verdicts")
    if watch is not None and not watch.is_dir():
        raise wrong("--watch", "a folder", watch, "name a folder of images")
    words = {"false_alarm": false_alarm, "run_length": run_length, "within_class": within_class, "every": every}
    settings = {name: value for name, value in words.items() if value is not None}
    own_state = detector.is_file() and detector.suffix != ".onnx"
    beside = detector / "monitor.safetensors" if detector.is_dir() else detector.with_suffix(".monitor.safetensors")
    path = state or (detector if own_state else beside)
    own, score = _open(detector, path, settings, scores=watch is not None)
    _check_settings(own, settings, path)
    if reset is not None:
        own.reset(reset)
    own.save(path)
    show = _show_lines if json_lines or not sys.stdout.isatty() else _show_live
    batches: Iterator[Batch] = iter(())
    if watch is not None:
        batches = _read_folder(watch, own.bookmark, score, once, wait)
    elif jsonl is not None:
        batches = _read_lines(jsonl)
    show(own, _follow(own, path, batches, jsonl))
    raise typer.Exit(EXIT_CODES[own.status().level])


def _follow(own: "Monitor", path: Path, batches: Iterator[Batch], source: str | None) -> Iterator[tuple[int, Batch]]:
    """Feed a monitor; each batch is in the state before it is passed on, with its first observation number.

    Verdicts of a `source` of lines may be such as no detector gives.
    """
    from shiftprism._errors import wrong

    for batch in batches:
        first = own.observations
        try:
            own.update(batch.verdicts)
        except ValueError as error:
            got = f"{source} ({str(error).rstrip('.')})"
            raise wrong("--jsonl", "verdicts that a monitor takes", got, "see Verdicts.to_dicts") from error
        own.bookmark = batch.bookmark
        own.save(path)
        yield first, batch


def _check_settings(own: "Monitor", settings: dict[str, Any], path: Path) -> None:
    """A promise cannot change while it is kept: flags must agree with the state."""
    from shiftprism._errors import wrong

    for name, value in settings.items():
        known = getattr(own.settings, name)
        if value != known:
            flag = f"--{name.replace('_', '-')}"
            raise wrong(flag, f"{known}, as in {path}", value, f"leave {flag} out, or begin another --state")


def _open(detector: Path, path: Path, settings: dict[str, Any], scores: bool) -> "tuple[Monitor, Score]":
    """The monitor of a state, or a new one, and the function that scores image files."""
    from shiftprism._errors import wrong
    from shiftprism.monitor import Monitor

    if detector.is_file() and detector.suffix != ".onnx":  # a state: no torch is needed to read verdicts
        if scores:
            raise wrong("DETECTOR", "a folder, to score images", detector, "name the folder of a saved detector")
        return Monitor.load(path if path.exists() else detector), _score_nothing
    if detector.suffix == ".onnx":
        from shiftprism.runtime import load

        exported = load(detector)
        reference, score = exported.reference, lambda files: _score_exported(exported, files)
    else:
        from shiftprism.cli._opening import check_detector
        from shiftprism.detector import Detector, score_files

        check_detector(str(detector))
        saved = Detector.load(detector)
        reference, score = saved.reference(), lambda files: _gather(score_files(saved, files))
    if path.exists():
        return Monitor.load(path, reference.detector), score
    return Monitor(reference, **settings), score


def _score_nothing(files: list[Path]) -> Batch:
    raise AssertionError(f"{files} without a detector")


def _score_exported(exported: "ExportedDetector", files: list[Path]) -> Batch:
    """The verdicts of an ONNX file on image files."""
    import torch

    from shiftprism.detector import score_files

    def prepare(image: "torch.Tensor") -> "torch.Tensor":
        return torch.from_numpy(exported.prepare(image.numpy()))

    return _gather(score_files(lambda images: exported(images.numpy()), files, prepare=prepare))


def _gather(found: "Iterable[FileVerdict]") -> Batch:
    """The verdicts on files as one batch."""
    from shiftprism.verdicts import ARRAYS, Verdicts

    files = list(found)
    judged = [(one, one.verdict) for one in files if one.verdict is not None]
    columns: dict[str, Any] = {"label": [one.label for one, _ in judged]}
    for name in ARRAYS[1:]:
        columns[name] = [getattr(verdict, name) for _, verdict in judged]
    problems = {one.path.name: one.problem for one in files if one.verdict is None}
    return Batch(Verdicts(**columns), [one.path.name for one, _ in judged], problems, "")


def _read_folder(folder: Path, bookmark: str, score: Score, once: bool, wait: float) -> Iterator[Batch]:
    """Batches of the images of a folder, by time of change and name, from the bookmark on."""
    import time

    last = _read_bookmark(bookmark)
    while True:
        found = [file for file in folder.iterdir() if file.suffix.lower() in _IMAGES and file.is_file()]
        new = sorted((file.stat().st_mtime_ns, file.name) for file in found)
        new = [key for key in new if key > last]
        for start in range(0, len(new), _BATCH):
            part = new[start : start + _BATCH]
            last = part[-1]
            yield score([folder / name for _, name in part])._replace(bookmark=f"{last[0]} {last[1]}")
        if once and not new:
            return
        if not new:
            time.sleep(wait)


def _read_bookmark(bookmark: str) -> tuple[int, str]:
    time_of_change, _, name = bookmark.partition(" ")
    return (int(time_of_change), name) if time_of_change.isdigit() else (-1, "")


def _read_lines(source: str) -> Iterator[Batch]:
    """Batches of the verdicts that are there already: one where they come slowly, thousands where they are waiting."""
    import os

    from shiftprism._errors import wrong

    number, rest = 0, b""
    descriptor = sys.stdin.fileno() if source == "-" else os.open(source, os.O_RDONLY)
    while chunk := os.read(descriptor, 1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:  # a device, say, that never ends
            got = f"{source} with a line of more than {_LONGEST:,} bytes"
            raise wrong("--jsonl", "lines of JSON", got, "see Verdicts.to_dicts")
        if lines:
            yield Batch(_read_verdicts(lines, number, source), [], {}, "")
            number += len(lines)
    if rest.strip():
        yield Batch(_read_verdicts([rest], number, source), [], {}, "")


def _read_verdicts(lines: list[bytes], before: int, source: str) -> "Verdicts":
    """The verdicts of JSON lines, as `Verdicts.to_dicts` makes them."""
    import json

    import numpy as np

    from shiftprism._errors import wrong
    from shiftprism.verdicts import ARRAYS, Verdicts

    columns: dict[str, list[Any]] = {name: [] for name in ARRAYS}
    for number, line in enumerate(lines, before + 1):
        if line.strip():
            try:
                values = json.loads(line)
                row = {name: values[name] for name in ARRAYS}
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                got = f"line {number} of {source} ({type(error).__name__}: {error})"
                raise wrong(
                    "--jsonl", f"lines of JSON with {', '.join(ARRAYS)}", got, "see Verdicts.to_dicts"
                ) from error
            for name, value in row.items():
                columns[name].append(value)
    try:
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in columns.items()}
        return Verdicts(**arrays)
    except (ValueError, TypeError, OverflowError) as error:
        got = f"lines {before + 1} to {before + len(lines)} of {source} ({error})"
        raise wrong("--jsonl", "numbers and kinds", got, "see Verdicts.to_dicts") from error


def _show_lines(own: "Monitor", followed: Iterator[tuple[int, Batch]]) -> None:
    """The status as a line of JSON, at first and after each batch; before it, a line for each image of a folder."""
    import json

    typer.echo(json.dumps(own.status().to_dict()))
    sys.stdout.flush()
    for first, batch in followed:
        if batch.names:
            for number, (values, name) in enumerate(zip(batch.verdicts.to_dicts(), batch.names, strict=True), first):
                typer.echo(json.dumps({"observation": number, "file": name, **values}))
        for name, problem in batch.problems.items():
            typer.echo(json.dumps({"file": name, "problem": problem}))
        typer.echo(json.dumps(own.status().to_dict()))
        sys.stdout.flush()


def _show_live(own: "Monitor", followed: Iterator[tuple[int, Batch]]) -> None:
    """The status in place, drawn again after each batch."""
    from rich.live import Live

    with Live(draw_status(own.status(), own.history()), refresh_per_second=8) as live:
        for _, batch in followed:
            for name, problem in batch.problems.items():
                live.console.print(f"{name}: {problem}", markup=False, highlight=False)
            live.update(draw_status(own.status(), own.history()))


def draw_status(status: "Status", history: "Sequence[Estimate]" = ()) -> "RenderableType":
    """Level, evidence, shares flagged and estimated accuracy, for a terminal; the last windows as small bars."""
    import math

    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    for name, value in (("covariate shift", status.e_covariate), ("concept shift", status.e_concept)):
        part = max(0.0, min(1.0, math.log(max(value, 1.0)) / math.log(status.threshold)))
        full = round(_WIDTH * part)
        bar = Text("█" * full + "░" * (_WIDTH - full), style="red" if part >= 1 else "cyan")
        table.add_row(f"evidence of {name}", bar, f"{value:.3g} of {status.threshold:.3g}")
    flagged, usual = (f"{share:.1%}".replace("%", " %") for share in (status.flagged, status.usual_flagged))
    table.add_row("flagged recently", flagged, f"{usual} is usual")
    if history:
        shares = [one.covariate + one.concept for one in history[-_WIDTH:]]
        bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)
        table.add_row("flagged over time", bars, f"one bar for {history[0].images} images")
    if status.accuracy is not None and status.calibrated:
        one = status.accuracy
        words = f"{one.low:.3f} to {one.high:.3f}" if status.trust else "do not trust this"
        table.add_row("estimated accuracy", f"{one.value:.3f}", words)
    return Group(Text(str(status), style=_COLOURS[status.level]), table)
