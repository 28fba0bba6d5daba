"""`shiftprism data`: list, download and check data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shiftprism.datasets import Finding

app = typer.Typer(no_args_is_help=True, help="List, download, check and show data sets.")

_ROOT_HELP = "The folder of the data sets. Default: $SHIFTPRISM_DATA, or ./data and ~/.cache/shiftprism."
Root = Annotated[Path | None, typer.Option("--root", help=_ROOT_HELP)]


@app.command("list")
def list_(root: Root = None) -> None:
    """List the data sets that have a name: sizes, licences, and where their files are."""
    from shiftprism.datasets import DATASETS, find, search_folders

    for name, entry in DATASETS.items():
        _print(f"{name}: {entry.about}")
        size = sum(item.size for item in entry.downloads)
        _print(f"    licence: {entry.licence}; download: {f'{size / 1e6:,.0f} MB' if size else 'none needed'}")
        for split in entry.splits:
            place = find(name, split, root)
            _print(f"    {split}: {_describe_place(place[0] if place else None)}")
    _print("Looked in " + ", ".join(str(folder.absolute()) for folder in search_folders(root)))


@app.command("get")
def get_(
    name: Annotated[str, typer.Argument(help="A name that `shiftprism data list` shows.")],
    root: Root = None,
) -> None:
    """Download a data set. An interrupted download is resumed; each file is checked against its published digest."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from shiftprism._errors import choice
    from shiftprism.datasets import DATASETS, get

    choice("name", name, DATASETS)  # before a progress bar is drawn
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

        files = get(name, root, progress)
    for file in files:
        _print(str(file))
    if not files:
        _print(f"{name} needs no download")


@app.command("check")
def check_(
    names: Annotated[list[str] | None, typer.Argument(help="The data sets to check. Default: all.")] = None,
    root: Root = None,
) -> None:
    """Read every data set from its files and say whether it is complete. The exit status is 1 if one is not."""
    from shiftprism._errors import choice, wrong
    from shiftprism.datasets import DATASETS, missing_error, verify

    failed = False
    if root is not None and not root.is_dir():  # no data at all would look like an answer
        raise wrong("root", "a folder", f"{root}, where there is none", "correct the path")
    for name in names or ():
        choice("names", name, DATASETS)
    for name in names or DATASETS:
        for finding in verify(name, root):
            if finding.path is None and names:  # only a data set that was asked for by name must be there
                _print(str(missing_error(name, finding.split, root)), error=True)
                failed = True
            else:
                _print(f"{name} {finding.split}: {_describe_finding(finding)}", error=bool(finding.problem))
                failed |= bool(finding.problem)
    if failed:
        raise typer.Exit(1)


def _describe_place(path: Path | None) -> str:
    if path is None:
        return "not found"
    return "always available" if path == Path() else str(path)


def _describe_finding(finding: "Finding") -> str:
    if finding.problem:
        return finding.problem
    if finding.path is None or finding.path == Path():
        return _describe_place(finding.path)
    shape = " × ".join(f"{side:,}" for side in finding.shape)
    same = {None: "", True: ", byte for byte as published", False: ", not byte for byte as published"}
    return f"{finding.subset or 'complete'}, {shape}, {finding.path.absolute()}{same[finding.published]}"


def _print(text: str, error: bool = False) -> None:
    """Print one line, an error to standard error. Paths are printed as they are, not as markup."""
    from rich.console import Console

    Console(stderr=error).print(text, style="red" if error else None, markup=False, highlight=False, soft_wrap=True)
