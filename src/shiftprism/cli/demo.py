"""`shiftprism demo`: two real networks on CIFAR-10, then the same study on digits from training on; no download."""

import re
import shutil
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from shiftprism.report import Table
    from shiftprism.rows import Results

_DIGITS = (
    "Classifiers of the handwritten digits 0 to 6 meet digits they never saw (<b>concept shift</b>: same writers, same "
    "scanner), digits made noisy, blurred or pale (<b>covariate shift</b>), and photographs (both). Digits are small "
    "and easy: they show how things work, not how well."
)
_CIFAR = (
    "Two networks that differ only in their head were trained on 45,000 images of CIFAR-10 (one seed each, minutes on "
    "two cores). They meet test images, the classes of CIFAR-100 (<b>concept shift</b>), 15 corruptions (<b>covariate "
    "shift</b>), and SVHN and Tiny ImageNet (both). The rows and a sample of the outputs come with the package."
)


def demo(
    to: Annotated[Path, typer.Option(help="The folder for the pages and rows.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many models of each kind to train on digits.")] = 3,
) -> None:
    """Show detection and calibration on real CIFAR-10, then train on digits and do the same; write a page of each."""
    from shiftprism.benchmark import Plan
    from shiftprism.cli.benchmark import run_study
    from shiftprism.rows import ResultsFolder

    to.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    console = Console()
    began = time.perf_counter()
    with as_file(files("shiftprism.benchmark").joinpath("cifar10")) as stored:
        shutil.copytree(stored, to / "cifar10", dirs_exist_ok=True)
    cifar = ResultsFolder(to / "cifar10").collect()
    cifar.write(to / "cifar10")
    _show_study(console, to / "cifar10", _CIFAR, cifar)
    console.print(f"\nTraining {seeds} vanilla and {seeds} α-β classifiers on the digits 0 to 6 …")
    plan = Plan(
        suite="digits",
        models=(f"vanilla:{seeds}", f"alpha-beta:{seeds}"),
        corruptions=("gaussian_noise", "motion_blur", "contrast"),
        calibrators=("temperature", "alpha-beta"),
    )
    outcome = run_study(console, plan, to / "digits")
    if outcome.failed:
        raise RuntimeError("; ".join(f"{name}: {error}" for name, error in outcome.failed.items()))
    _show_study(console, to / "digits", _DIGITS, outcome.results)
    pages = " and ".join(str((to / name / "report.html").resolve()) for name in ("cifar10", "digits"))
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. The pages: {pages}", soft_wrap=True)


def _show_study(console: Console, folder: Path, lead: str, results: "Results") -> None:
    """Print two short tables, and write the whole page."""
    from shiftprism import report

    report.publish(folder, results, lead=lead)
    console.print(f"\n{re.sub('<[^>]*>', '', lead)}", width=80, highlight=False)
    for table in report.short_tables(results).values():
        console.print(_rich_table(table))
    console.print("Means over seeds. Deviations, notes and figures are on the page.", style="dim")


def _rich_table(table: "Table") -> RichTable:
    """The table for a terminal of 80 columns: means alone, names not repeated down a column, the best in bold."""
    drawn = RichTable(
        title=f"\n{table.title}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
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
        cells = [f"[bold]{cell.short}[/]" if cell.bold else cell.short for cell in line[table.labels :]]
        drawn.add_row(*shown, names[-1], *cells)
        before = names
    return drawn
