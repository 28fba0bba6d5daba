"""`shiftprism score`: a verdict on each image file, on the terminal or in a file that a later run resumes."""

import sys
from collections import Counter
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftprism._errors import wrong
from shiftprism.cli._cluster_scores import Order, check_options, refuse_archives, score_on_cluster
from shiftprism.cli._flags import Compile, Device
from shiftprism.cli._opening import FalseAlarm, Model, Named, Opened, open_judge
from shiftprism.cli._progress import SHOWN, print_counts, show_progress
from shiftprism.cli._verdict_files import SKIPPED, VerdictFile, make_row, path_text

if TYPE_CHECKING:
    from rich.console import Console

    from shiftprism.detector import FileVerdict

FLAGGED_CODE, SKIPPED_CODE, BOTH_CODE = 3, 4, 5


def score(
    detector: Named,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders (and what is below them), patterns such as 'photos/*.jpg', or - for a list of "
            "paths on standard input, one a line.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(help="A .csv, .jsonl or .parquet file, a row an image. The same command resumes it."),
    ] = None,
    false_alarm: FalseAlarm = None,
    model: Model = None,
    device: Device = "auto",
    compiled: Compile = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in place of resuming it.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Score on a Ray cluster: its address, auto, or local. Tar shards, Parquet files and s3:// are read, "
            "too. (extra: cluster)"
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column of images in Parquet files, with --cluster. (the one of bytes)")
    ] = None,
) -> None:
    """Decide for each image whether the model knows its like, or its style or its concept has shifted.

    A file that cannot be read is a row with its reason. Exit codes: 0 all images are in-distribution, 3 some are
    flagged, 4 some files were skipped, 5 both, 1 an error.
    """
    from rich.console import Console

    console = Console()
    if cluster is not None:
        order = Order(detector, expand_words(images), to, cluster, false_alarm, column)
        check_options(order, model, device)
        if compiled:
            raise wrong("--compile", "left out with --cluster", "given", "workers run the exported file")
        kinds = score_on_cluster(console, order, force)
    else:
        refuse_archives(images, column)
        paths = list_paths(images)
        if not paths:
            raise wrong("images", "at least one image", "none", "name files or folders with images")
        opened = open_judge(detector, model, device, false_alarm, compiled)
        if to is None:
            kinds = _score_to_terminal(console, opened, paths)
        else:
            kinds = _score_to_file(console, opened, paths, to, force)
    total, skipped = sum(kinds.values()), kinds[SKIPPED]
    flagged = kinds["covariate"] + kinds["concept"]
    if skipped:
        typer.echo(f"shiftprism: {skipped} of {total} files could not be read; the rows say why", err=True)
    if flagged or skipped:
        raise typer.Exit(BOTH_CODE if flagged and skipped else FLAGGED_CODE if flagged else SKIPPED_CODE)


def list_paths(words: list[str]) -> list[Path]:
    """The files that are named by files, folders, patterns and, for "-", lines of standard input; each once."""
    from shiftprism.datasets import list_images

    return list(dict.fromkeys(list_images(*expand_words(words))))


def expand_words(words: list[str]) -> list[str]:
    """The words, with the files of a pattern and, for "-", the lines of standard input in their place."""
    places: list[str] = []
    for word in words:
        if word == "-":
            lines = (line.rstrip("\r\n") for line in sys.stdin)
            places += [line for line in lines if line]
        elif any(letter in word for letter in "*?[") and "://" not in word and not Path(word).exists():
            places += sorted(glob(word, recursive=True)) or [word]  # a pattern without files is a row that says so
        else:
            places.append(word)
    return places


def _score_to_terminal(console: "Console", opened: Opened, paths: list[Path]) -> Counter[str]:
    """Show every image where there are few, otherwise the flagged and the skipped ones, and count the kinds."""
    from shiftprism.detector import score_files

    kinds: Counter[str] = Counter()
    shown: list[FileVerdict] = []
    few = len(paths) <= SHOWN
    with show_progress(len(paths)) as advance:
        for file in score_files(opened.judge, paths, prepare=opened.prepare):
            kind = SKIPPED if file.verdict is None else file.verdict.kind
            kinds[kind] += 1
            if len(shown) < SHOWN and (few or kind != "in-distribution"):
                shown.append(file)
            advance(1)
    _print_table(console, shown)
    if len(paths) > len(shown):
        console.print()
        print_counts(console, kinds, opened.about)
        console.print("--to verdicts.csv keeps every row.", style="dim")
    return kinds


def _score_to_file(console: "Console", opened: Opened, paths: list[Path], to: Path, force: bool) -> Counter[str]:
    """Append a row for each image that the file lacks, and count the kinds of all that were asked for."""
    from shiftprism.detector import score_files

    file = VerdictFile(to, opened.identity, force)
    left = [path for path in paths if path_text(path) not in file.kinds]
    kinds = Counter(file.kinds[text] for path in paths if (text := path_text(path)) in file.kinds)
    if kinds:
        console.print(f"{sum(kinds.values())} of {len(paths)} images are in {to} already.", highlight=False)
    finished = False
    try:
        with show_progress(len(left)) as advance:
            for number, one in enumerate(score_files(opened.judge, left, prepare=opened.prepare), 1):
                file.append(make_row(one, opened.identity))
                kinds[SKIPPED if one.verdict is None else one.verdict.kind] += 1
                if number % 128 == 0:
                    file.flush()
                    advance(128)
        finished = True
    finally:
        file.close(finished)
    print_counts(console, kinds, opened.about)
    console.print(f"Written: {to.resolve()}", markup=False, highlight=False, soft_wrap=True)
    return kinds


def _print_table(console: "Console", files: "list[FileVerdict]") -> None:
    """A table, and under each row the verdict in words."""
    from rich.table import Table

    if not files:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline", show_edge=False)
    table.add_column("path", overflow="fold")
    for name in ("class", "confidence", "kind"):
        table.add_column(name, justify="right" if name == "confidence" else "left", no_wrap=True)
    for file in files:
        text = path_text(file.path)
        if file.verdict is None:
            table.add_row(text, "", "", SKIPPED)
        else:
            sure = f"{file.verdict.confidence:.1%}".replace("%", " %")
            table.add_row(text, file.verdict.name, sure, file.verdict.kind)
    console.print(table, markup=False, highlight=False)
    console.print()
    names = [file.path.name for file in files]
    for file in files:
        name = file.path.name if names.count(file.path.name) == 1 else path_text(file.path)
        words = f"skipped: {file.problem}." if file.verdict is None else str(file.verdict)
        console.print(f"{name}: {words}", markup=False, highlight=False, soft_wrap=True)
