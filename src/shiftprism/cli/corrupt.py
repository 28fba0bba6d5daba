"""`shiftprism corrupt`: a data set's images under every corruption, as files in the layout of CIFAR-10-C."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from shiftprism.cli.data import Root


def corrupt(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A data set's name, or the path of your own.")],
    to: Annotated[Path, typer.Option(help="The folder to write; one that was begun is gone on with.")],
    split: Annotated[str, typer.Option(help="train, test or all.")] = "test",
    only: Annotated[list[str] | None, typer.Option(help="A corruption to make, instead of the 15 of CIFAR-C.")] = None,
    extra: Annotated[bool, typer.Option("--extra", help="Make the four extra corruptions too.")] = False,
    size: Annotated[int | None, typer.Option(help="Scale the images to this side first.")] = None,
    frost: Annotated[
        Path | None, typer.Option(help="A folder of photographs for frost; by default drawn textures.")
    ] = None,
    root: Root = None,
) -> None:
    """Write the corrupted images: <corruption>.npy for each, five severities one after another, and labels.npy."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from shiftprism._files import write_text
    from shiftprism.corruptions import COMMON, EXTRA, write_layout
    from shiftprism.datasets import load

    torch.set_num_threads(1)  # corruptions work on chunks too small to share; one thread was seen a third faster
    names = tuple(dict.fromkeys(only or COMMON)) + (EXTRA if extra else ())
    data = load(source, split, root, size)
    check_room(to, 5 * data.images.numel(), [name for name in names if not (to / f"{name}.npy").exists()])
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=5 * len(names))

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        files = write_layout(data.images, data.labels, to, names, photographs=frost, progress=progress)
    write_text(to / "names.txt", "".join(f"{name}\n" for name in data.names))  # for our loader; the layout has none
    console = Console()
    for file in files:
        console.print(str(file.absolute()), markup=False, highlight=False, soft_wrap=True)


def check_room(folder: Path, size: int, names: list[str]) -> None:
    """An error if the disk has not `size` bytes for each name: a full disk would kill the process that maps a file."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free < size * len(names):
        raise OSError(f"{folder} needs {size * len(names) / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB left.")
