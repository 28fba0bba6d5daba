"""`shiftprism demo`: what real networks say about CIFAR-10, then the whole path on digits; without a download."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftprism.benchmark import Evidence, Row
    from shiftprism.report import Table
    from shiftprism.training import Progress as Step

_LEAD = (
    "Classifiers of the handwritten digits 0 to 6 meet digits they never saw (<b>concept shift</b>: same writers, same "
    "scanner) and digits made noisy, blurred or pale (<b>covariate shift</b>). Digits are small and easy: they show "
    "how things work, not how well; nothing here was tuned to look good."
)

_REAL = (
    "Two networks that differ in their head alone were trained on 45,000 images of CIFAR-10 (one seed each, minutes on "
    "two cores). Here they meet test images, the classes of CIFAR-100 (<b>concept shift</b>), 15 corruptions "
    "(<b>covariate shift</b>), and SVHN and Tiny ImageNet (both). Their outputs for a sample of each set are part of "
    "the package; the numbers are computed from them now."
)
_DRAWN = ("gaussian_noise", "motion_blur", "contrast")


def demo(
    to: Annotated[Path, typer.Option(help="The folder for the pages and rows.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many models of each kind to train on digits.")] = 3,
) -> None:
    """Show detection and calibration on real CIFAR-10, then train on digits and do the same; write a page of each."""
    import torch

    from shiftprism import benchmark

    to.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    console = Console()
    began = time.perf_counter()
    torch.set_num_threads(1)  # images of 8 x 8 are too small to share between threads
    heads = ("vanilla", "alpha-beta")
    real = benchmark.bundled()
    found = [row for one in real for row in benchmark.measure(one).rows]
    _shown(console, to / "cifar10.html", "ShiftPrism on CIFAR-10", _REAL, found, real, _DRAWN)
    console.print(f"\nTraining {seeds} vanilla and {seeds} α-β classifiers on the digits 0 to 6 …")
    with _bar(console) as bar:
        task = bar.add_task("", total=None)
        done: dict[str, int] = {}

        def tell(name: str, now: "Step") -> None:
            done[name] = now.step
            text = f"{name:20} accuracy {now.accuracy:6.1%}"
            bar.update(task, total=now.steps * seeds * len(heads), completed=sum(done.values()), description=text)

        rows, evidence = benchmark.digits(heads, range(seeds), progress=tell)
    benchmark.write_rows(to / "rows.jsonl", found + rows)
    _shown(console, to / "report.html", "ShiftPrism on digits", _LEAD, rows, evidence)
    pages = " and ".join(str((to / name).resolve()) for name in ("cifar10.html", "report.html"))
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. The pages: {pages}", soft_wrap=True)


def _shown(
    console: Console,
    page: Path,
    title: str,
    lead: str,
    rows: "Sequence[Row]",
    evidence: "Sequence[Evidence]",
    ladders: "Sequence[str]" = (),
) -> None:
    """Two tables here, and all of it as a page."""
    from shiftprism import report

    report.write_page(page, title, lead, rows, evidence, ladders)
    console.print(f"\n{title}: {re.sub('<[^>]*>', '', lead)}", width=80, highlight=False)
    for table in (report.detection_table(report.each_shift(rows, ladders)), report.calibration_table(rows)):
        console.print(_rich(table))
        console.print(table.note, style="dim", width=80)


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


def _rich(table: "Table") -> RichTable:
    """The table for a terminal of 80 columns: names are not repeated down a column, the best is bold."""
    drawn = RichTable(
        title=f"\n{table.title}", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    for number, name in enumerate(table.head):
        justify: Literal["left", "right"] = "left" if number < table.labels else "right"
        drawn.add_column(name.replace(" ", "\n"), justify=justify, no_wrap=True, header_style="underline")
    before: list[str] = []
    for number, line in enumerate(table.body):
        if table.new_group(number):
            drawn.add_row()
        names = [cell.text for cell in line[: table.labels]]
        shown = [names[i] if names[: i + 1] != before[: i + 1] else "" for i in range(table.labels - 1)]
        cells = [f"[bold]{cell.text}[/]" if cell.bold else cell.text for cell in line[table.labels :]]
        drawn.add_row(*shown, names[-1], *cells)
        before = names
    return drawn
