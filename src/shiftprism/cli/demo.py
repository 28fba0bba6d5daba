"""`shiftprism demo`: a decision for each digit, real networks on CIFAR-10, a study on digits from training on."""

import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from shiftprism.cli._flags import Device

if TYPE_CHECKING:
    from shiftprism.report import Table

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


_FOLDERS = ("verdicts", "cifar10", "digits")
_SCORES = {"vanilla": ("msp", "u"), "alpha-beta": ("g", "h", "u", "style", "spectrum")}
"""What the terminal shows of the CIFAR-10 results."""


def demo(
    to: Annotated[Path, typer.Option(help="The folder for the pages and rows.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many models of each kind to train on digits.")] = 3,
    device: Device = "cpu",  # 8 × 8 pixels: the cores of a CPU train these models side by side, a GPU one at a time
    force: Annotated[bool, typer.Option("--force", help="Replace verdicts, cifar10 and digits in the folder.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve a detector of digits, with a page, until Ctrl-C; nothing else.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of --serve; 0 takes a free one.")] = 8000,
) -> None:
    """Decide about digits one by one, then show the evidence on real CIFAR-10 and on digits; write a page of each."""
    if serve:
        from shiftprism.cli.serve import serve_digits

        serve_digits(to, port)
        return
    from shiftprism._devices import choose_device
    from shiftprism._files import write_json
    from shiftprism.cli._flags import check_new

    choose_device(device)
    mark = to / "demo.json"
    for name in () if mark.exists() else _FOLDERS:  # an earlier demo may be resumed
        check_new("to", to / name, force)
    write_json(mark, {"made by": "shiftprism demo", "folders": list(_FOLDERS)})
    console = Console()
    began = time.perf_counter()
    _tell_story(console, to / "verdicts", device)
    _show_cifar10(console, to / "cifar10")
    _study_digits(console, to / "digits", seeds, device)
    pages = [to / "verdicts" / "index.html", *(to / name / "report.html" for name in ("cifar10", "digits"))]
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. The pages:")
    for page in pages:
        console.print(str(page.resolve()), soft_wrap=True, highlight=False, markup=False)


def _tell_story(console: Console, folder: Path, device: str) -> None:
    """A detector of digits: the counts and a verdict of each kind on the terminal, the picture in the folder."""
    from shiftprism._files import write_text
    from shiftprism.cli import _digits_story

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=1.0)
        story = _digits_story.make_story(
            device, lambda text, share: bar.update(task, completed=share, description=text)
        )
    story.detector.save(folder / "detector")
    _digits_story.write_picture(story, folder / "verdicts.png")
    write_text(folder / "index.html", _digits_story.make_page(story))
    level = f"{100 * story.detector.false_alarm:g} %"
    words = (
        f"A network that knows the digits 0 to 7, and a detector fitted to {story.held_out} held-out ones. It may "
        f"flag at most {level} of all clean digits. It never saw an 8 or a 9."
    )
    console.print(words, width=80, highlight=False)
    table = RichTable(box=None, padding=(0, 2, 0, 0))
    for number, name in enumerate(("", "images", "flagged", "covariate", "concept")):
        table.add_column(name, justify="right" if number else "left", header_style="underline")
    for name, images, *counts in _digits_story.count_kinds(story):
        table.add_row(name, str(images), *(f"{100 * count / images:.1f} %" for count in counts))
    console.print(table)
    for name in ("blurred", "never seen"):  # in words, the first of the picture that was caught
        shown = story.sets[name]
        places = _digits_story.pick(shown)
        first = next((place for place in places if shown.verdicts[place].kind != "in-distribution"), places[0])
        text = f"{_digits_story.name_digit(shown.labels[first])}, {name}: {shown.verdicts[first]}"
        console.print(text, width=80, highlight=False, markup=False)
    console.print(f"The picture: {(folder / 'verdicts.png').resolve()}", soft_wrap=True, highlight=False)


def _show_cifar10(console: Console, folder: Path) -> None:
    """The results that come with the package: a few lines here, all of it on the page."""
    from shiftprism import report
    from shiftprism._files import replacing
    from shiftprism.rows import ResultsFolder

    with as_file(files("shiftprism.benchmark").joinpath("cifar10")) as stored:
        for file in (file for file in stored.rglob("*") if file.is_file()):
            # not shutil.copytree: a package that only root may write to would leave such folders here
            with replacing(folder / file.relative_to(stored)) as beside:
                beside.write_bytes(file.read_bytes())
    results = ResultsFolder(folder).collect()
    results.write(folder)
    report.publish(folder, results, lead=_CIFAR)
    table = next(iter(report.short_tables(results).values()))
    chosen = [line for line in table.body if line[1].text in _SCORES.get(line[0].text, ())]
    console.print("\nReal CIFAR-10, two networks: AUROC in % (calibration and the rest: on the page)", highlight=False)
    places = [number for number, name in enumerate(table.head) if name != "rank" and not name.startswith("mean")]
    body = [[line[place] for place in places] for line in chosen]
    shown = table._replace(head=[table.head[place] for place in places], body=body)
    console.print(_rich_table(shown, bold=console.is_terminal))


def _study_digits(console: Console, folder: Path, seeds: int, device: str) -> None:
    """The whole study from training on; its tables are on the page."""
    from shiftprism import report
    from shiftprism.benchmark import Plan
    from shiftprism.cli.benchmark import run_study

    console.print(f"\nThe same study from training on, {seeds} + {seeds} classifiers of the digits 0 to 6 …")
    plan = Plan(
        suite="digits",
        models=(f"vanilla:{seeds}", f"alpha-beta:{seeds}"),
        corruptions=("gaussian_noise", "motion_blur", "contrast"),
        scores=("g", "h", "u", "msp", "energy", "gen", "mahalanobis_logits", "knn", "vim"),
        calibrators=("temperature", "alpha-beta"),
    )
    outcome = run_study(console, plan, folder, jobs=None, device=device)
    if outcome.failed:
        raise ValueError("; ".join(f"{name}: {error}" for name, error in outcome.failed.items()))
    report.publish(folder, outcome.results, lead=_DIGITS)


def _rich_table(table: "Table", bold: bool) -> RichTable:
    """The table for 80 columns: means alone, names not repeated down a column, the best in `bold` or with a star."""
    drawn = RichTable(box=None, padding=(0, 1, 0, 0))
    for number, name in enumerate(table.head):
        justify: Literal["left", "right"] = "left" if number < table.labels else "right"
        drawn.add_column(name.replace(" ", "\n"), justify=justify, no_wrap=True, header_style="underline")
    before: list[str] = []
    for line in table.body:
        names = [cell.text for cell in line[: table.labels]]
        shown = [names[i] if names[: i + 1] != before[: i + 1] else "" for i in range(table.labels - 1)]
        best = "[bold]{}[/]" if bold else "{}*"  # a file or a pipe has no bold
        cells = [best.format(cell.short) if cell.bold else cell.short for cell in line[table.labels :]]
        drawn.add_row(*shown, names[-1], *cells)
        before = names
    return drawn
