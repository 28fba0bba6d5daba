"""The whole grid: cells side by side, progress from the files they write, and a folder that can be resumed."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shiftprism._checks import wrong
from shiftprism._devices import count_jobs
from shiftprism._files import write_text
from shiftprism._tasks import TaskResult, Work, check_device, run_tasks, use_threads
from shiftprism.benchmark._cells import load_run_model, run_cell
from shiftprism.benchmark._grid import Cell, list_cells
from shiftprism.benchmark._plan import Plan
from shiftprism.benchmark._suites import in_distribution, list_data_files, list_shifts
from shiftprism.corruptions import frost_source
from shiftprism.rows import Results, ResultsFolder, set_file

_EPOCH = 10
"""An epoch takes as long as forwarding this many sets: 45,000 images and their gradients beside 10,000 without."""
_SETS = 4
"""Sets beside the shifted ones: train, held-out, clean, and the rows."""
ReportProgress = Callable[[float, str], None]
"""Called with the share of all work that is done, and what is running."""
Ladders = dict[str, list[tuple[str, int]]]
"""For each ID data set the name and severity of every shift."""


class Outcome(NamedTuple):
    """The end of a study."""

    results: Results
    """Of every whole cell in the folder, those of earlier commands too."""
    failed: dict[str, str]
    """Cells that failed, and why."""
    notes: list[str]
    """What a reader should know, such as a damaged file that was written again."""


def study(
    plan: Plan,
    out: str | Path,
    *,
    jobs: int | None = 1,
    cluster: str | None = None,
    progress: ReportProgress | None = None,
    command: str = "",
    device: str = "auto",
    work: Work = run_cell,
) -> Outcome:
    """Run what is missing of a plan into the folder `out`, and write the rows of all of it.

    Killed at any moment, the same call resumes and ends with the same rows. A folder of other settings is refused; more
    models, seeds, scores, calibrators or data sets of the same suite may be added to it. `jobs` cells run at a time;
    None stands for one a GPU, or one a core where there is none. Each has a `device`, which is no part of the plan.
    """
    check_device(device, cluster)
    plan, folder = plan.resolve(), ResultsFolder(Path(out).resolve())
    cells = list_cells(plan, folder.path)
    ladders = _prepare_folder(plan, folder, cells, command)
    notes = [
        f"{cell.key}: {fault} The rows are measured again from its stored outputs."
        for cell in cells
        if (fault := cell.folder.find_fault()) not in ("", "absent")
    ]
    failed: dict[str, str] = {}
    measured: dict[str, Results] = {}
    with _watch_progress(cells, ladders, progress):
        if not cluster:  # elsewhere a cell makes the images that its machine does not have
            for task in run_tasks(_make_images, _missing_shifts(plan, folder, ladders), jobs or count_jobs("cpu")):
                failed |= {"shifted images": task.error} if task.error else {}
        for derived in (False, True):  # an ensemble needs its members' outputs, a mirrored model its weights
            wave = [cell for cell in cells if cell.derived == derived]
            cell_jobs = jobs or (1 if cluster else count_jobs(device))
            for task in run_tasks(work, wave, cell_jobs, cluster, device):
                cell = wave[task.number]
                if task.error:
                    failed[cell.key] = _record_error(cell, task)
                else:
                    measured[cell.key] = task.result
                    _store_rows(cell, task.result)
    results = folder.collect(measured)
    results.write(folder.path)
    folder.write_pixels()
    return Outcome(results, failed, notes)


def _record_error(cell: Cell, task: TaskResult) -> str:
    write_text(cell.folder.error, task.trace or task.error)
    return f"{task.error} ({cell.folder.error})"


def _store_rows(cell: Cell, results: Results) -> None:
    """Write the rows of a cell that ran on another machine; elsewhere the cell has written them."""
    cell.folder.error.unlink(missing_ok=True)
    if cell.folder.find_fault():
        results.write(cell.folder.path)


def _prepare_folder(plan: Plan, folder: ResultsFolder, cells: Sequence[Cell], command: str) -> Ladders:
    """Record the plan, and find whatever is wrong about the data or the given runs before any work is done.

    If something is wrong, a new folder is left as it was: the corrected command must not be refused for other settings.
    """
    new = [path for path in (folder.suite, *list_data_files(plan, folder)) if not path.exists()]
    _record_plan(plan, folder, command)
    try:
        for cell in cells:
            if cell.run:
                load_run_model(cell, in_distribution(plan, cell.data, folder))
        return {
            data: [(shift.name, shift.severity) for shift in list_shifts(plan, data, folder)] for data in plan.data_sets
        }
    except (ValueError, OSError):
        for path in new if folder.suite in new else ():
            path.unlink(missing_ok=True)
        raise


def _record_plan(plan: Plan, folder: ResultsFolder, command: str) -> None:
    """Write the plan and the command; refuse a folder of other settings."""
    suite = folder.read_suite()
    if suite:
        stored = suite.get("plan")
        if not isinstance(stored, dict):
            raise wrong("out", "a folder of results", f"{folder.suite} without a plan", "remove this file to resume")
        if changed := plan.differences(stored):
            advice = "repeat the earlier command to resume it, or choose another folder"
            got = f"{folder.path} with {'; '.join(changed)}"
            raise wrong("out", "a new folder, or one of these settings,", got, advice)
    # its numbers belong to one of the two, and the command alone does not tell
    photographed = "   # with photographed frost" if command and frost_source() == "photographed" else ""
    folder.write_suite(plan.to_json(), command + photographed)


def _missing_shifts(plan: Plan, folder: ResultsFolder, ladders: Ladders) -> list[tuple[Plan, str, str, int]]:
    """The shifted sets that are not in the folder yet; photographs are not kept there."""
    missing: list[tuple[Plan, str, str, int]] = []
    if plan.suite == "photos":
        return missing
    for data in plan.data_sets:
        shifted = folder.shifted(in_distribution(plan, data, folder).name)
        for number, (name, severity) in enumerate(ladders[data]):
            if not (shifted / set_file(name, severity)).exists():
                missing.append((plan, data, str(folder.path), number))
    return missing


def _make_images(item: tuple[Plan, str, str, int], threads: int, device: str) -> None:
    plan, data, out, number = item
    with use_threads(threads):
        list_shifts(plan, data, ResultsFolder(Path(out)))[number].make()


@contextmanager
def _watch_progress(cells: Sequence[Cell], ladders: Ladders, progress: ReportProgress | None) -> Iterator[None]:
    """Report every second how far the cells are, by the files they have written."""
    if progress is None:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=partial(_report_progress, cells, ladders, progress, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _report_progress(cells: Sequence[Cell], ladders: Ladders, progress: ReportProgress, stop: threading.Event) -> None:
    plan, folder = cells[0].plan, cells[0].results
    sets = {data: len(ladder) for data, ladder in ladders.items()}
    whole: set[str] = set()
    last = False
    while not last:
        last = stop.is_set()  # once more after the end, so that the bar is full
        shifted = [folder.shifted(in_distribution(plan, data, folder).name) for data in plan.data_sets]
        kept = sum(sets.values()) if plan.suite != "photos" else 0
        total, done = float(kept), float(sum(_count_files(path) for path in shifted))
        running = []
        for cell in cells:
            weight = _expected_work(cell, sets[cell.data])
            total += weight
            if cell.key in whole or not cell.folder.find_fault():
                whole.add(cell.key)
                done += weight
            elif cell.folder.path.exists():
                running.append(cell.key)
                done += min(weight - 1, _EPOCH * _count_lines(cell.folder.run / "metrics.jsonl"))
                done += _count_files(cell.folder.path / "outputs")
        now = "" if len(whole) == len(cells) else f"; {', '.join(running[:2]) or 'shifted images'}"
        progress(done / total, f"{len(whole)} of {len(cells)} cells{now}")
        stop.wait(1.0)


def _expected_work(cell: Cell, sets: int) -> int:
    """The work of a cell, in sets to forward."""
    if cell.model == "pixels":
        return 1
    trained = not cell.run and not cell.derived
    return (_EPOCH * cell.plan.training(cell.model, 0).epochs if trained else 0) + sets + _SETS


def _count_files(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.safetensors")) if folder.exists() else 0


def _count_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
