"""`shiftprism demo`: two real networks on CIFAR-10, then the same study on digits from training on; no download."""

import re
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table as RichTable

from shiftprism.cli._flags import Device

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
    device: Device = "cpu",  # 8 × 8 pixels: the cores of a CPU train these models side by side, a GPU one at a time
    force: Annotated[bool, typer.Option("--force", help="Replace cifar10 and digits in the folder.")] = False,
) -> None:
    """Show detection and calibration on real CIFAR-10, then train on digits and do the same; write a page of each."""
    from shiftprism._devices import choose_device
    from shiftprism._files import replacing, write_json
    from shiftprism.benchmark import Plan
    from shiftprism.cli._flags import check_new
    from shiftprism.cli.benchmark import run_study
    from shiftprism.rows import ResultsFolder

    choose_device(device)
    mark = to / "demo.json"
    for name in () if mark.exists() else ("cifar10", "digits"):  # an earlier demo may be resumed
        check_new("to", to / name, force)
    write_json(mark, {"made by": "shiftprism demo", "folders": ["cifar10", "digits"]})
    console = Console()
    began = time.perf_counter()
    with as_file(files("shiftprism.benchmark").joinpath("cifar10")) as stored:
        for file in (file for file in stored.rglob("*") if file.is_file()):
            # not shutil.copytree: a package that only root may write to would leave such folders here
            with replacing(to / "cifar10" / file.relative_to(stored)) as beside:
                beside.write_bytes(file.read_bytes())
    cifar = ResultsFolder(to / "cifar10").collect()
    cifar.write(to / "cifar10")
    _show_study(console, to / "cifar10", _CIFAR, cifar)
    console.print(f"\nTraining {seeds} vanilla and {seeds} α-β classifiers on the digits 0 to 6 …")
    plan = Plan(
        suite="digits",
        models=(f"vanilla:{seeds}", f"alpha-beta:{seeds}"),
        corruptions=("gaussian_noise", "motion_blur", "contrast"),
        scores=("g", "h", "u", "msp", "energy", "gen", "mahalanobis_logits", "knn", "vim"),
        calibrators=("temperature", "alpha-beta"),
    )
    outcome = run_study(console, plan, to / "digits", jobs=None, device=device)
    if outcome.failed:
        raise ValueError("; ".join(f"{name}: {error}" for name, error in outcome.failed.items()))
    _show_study(console, to / "digits", _DIGITS, outcome.results)
    pages = " and ".join(str((to / name / "report.html").resolve()) for name in ("cifar10", "digits"))
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. The pages: {pages}", soft_wrap=True)


def _show_study(console: Console, folder: Path, lead: str, results: "Results") -> None:
    """Print two short tables, and write the whole page."""
    from shiftprism import report

    report.publish(folder, results, lead=lead)
    console.print(f"\n{re.sub('<[^>]*>', '', lead)}", width=80, highlight=False)
    for table in report.short_tables(results).values():
        console.print(_rich_table(table, bold=console.is_terminal))
    best = "In bold" if console.is_terminal else "With *"
    words = f"Means over seeds. {best}: the best, and what is not significantly worse."
    console.print(f"{words} Deviations, notes and figures are on the page.", style="dim")


def _rich_table(table: "Table", bold: bool) -> RichTable:
    """The table for 80 columns: means alone, names not repeated down a column, the best in `bold` or with a star."""
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
        best = "[bold]{}[/]" if bold else "{}*"  # a file or a pipe has no bold
        cells = [best.format(cell.short) if cell.bold else cell.short for cell in line[table.labels :]]
        drawn.add_row(*shown, names[-1], *cells)
        before = names
    return drawn
