"""`shiftprism corrupt`: write a data set under every corruption, as files in the layout of CIFAR-10-C."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from shiftprism.cli.data import Root


def corrupt(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The name of a data set, or the path of your own.")],
    to: Annotated[Path, typer.Option(help="The folder to write. An interrupted run is resumed.")],
    split: Annotated[str, typer.Option(help="train, test or all.")] = "test",
    only: Annotated[
        list[str] | None, typer.Option(help="A corruption to make instead of CIFAR-C's 15; may be repeated.")
    ] = None,
    extra: Annotated[bool, typer.Option("--extra", help="Make the four extra corruptions too.")] = False,
    size: Annotated[int | None, typer.Option(help="Scale the images to this side first.")] = None,
    parameters: Annotated[
        str,
        typer.Option(
            help="What a severity means. auto: CIFAR-C's parameters up to 32 pixels, ImageNet-C's from 224 on, and "
            "between them a power of the shorter side. cifar or imagenet: those of one, lengths scaled to the images."
        ),
    ] = "auto",
    frost: Annotated[
        Path | None, typer.Option(help="A folder of photographs for frost. Default: drawn textures.")
    ] = None,
    root: Root = None,
) -> None:
    """Write <corruption>.npy for each corruption, with the five severities in order, and labels.npy."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from shiftprism._files import write_text
    from shiftprism.corruptions import COMMON, EXTRA, describe_parameters, write_layout
    from shiftprism.datasets import load

    torch.set_num_threads(1)  # the chunks are too small to share; with one thread it took a third less time
    names = tuple(dict.fromkeys(only or COMMON)) + (EXTRA if extra else ())
    data = load(source, split, root, size)
    used = describe_parameters(min(data.images.shape[2:]), parameters)
    check_disk(to, 5 * data.images.numel(), [name for name in names if not (to / f"{name}.npy").exists()])
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Console(stderr=True)
    bars.quiet = not bars.is_terminal  # elsewhere a bar that vanishes leaves an empty line
    with Progress(*columns, console=bars, transient=True) as bar:
        task = bar.add_task("", total=5 * len(names))

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        files = write_layout(
            data.images, data.labels, to, names, photographs=frost, parameters=parameters, progress=progress
        )
    write_text(
        to / "names.txt", "".join(f"{name}\n" for name in data.names)
    )  # for our loader: the layout has no class names
    Console(stderr=True).print(f"Made with {used}.", highlight=False, soft_wrap=True)
    console = Console()
    for file in files:
        console.print(str(file.absolute()), markup=False, highlight=False, soft_wrap=True)


def check_disk(folder: Path, size: int, names: list[str]) -> None:
    """An error if the disk lacks `size` bytes for each name: a full disk would kill a process that maps a file."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < size * len(names):
        raise OSError(f"{folder} needs {size * len(names) / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB left.")
