"""`shiftprism data show`: a sheet of images, so that a person can see what a severity looks like."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftprism.cli.data import Root

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.cli._sheet import Row
    from shiftprism.datasets import Dataset

_MANY_CLASSES = 20
_SHIFT = "A corruption such as motion_blur, or a suite: covariate, concept-splits or near-far."
_NEAR = "Data sets of unseen classes; by default CIFAR's counterpart."
_FAR = "Data sets of another kind; by default SVHN and Tiny ImageNet for CIFAR."
_CORRUPTED = "A folder in the layout of CIFAR-10-C to show instead of corrupting here."
_VECTORS = "Word vectors for concept-splits: a GloVe text file or an .npz."


def show(
    name: Annotated[str, typer.Argument(help="A data set's name, or the path of your own.")],
    to: Annotated[Path, typer.Option(help="The PNG file to write.")],
    shift: Annotated[str | None, typer.Option(help=_SHIFT)] = None,
    split: Annotated[str, typer.Option(help="train, test or all.")] = "test",
    images: Annotated[int, typer.Option(min=1, max=100, help="How many images to show of a class or a shift.")] = 8,
    first: Annotated[int, typer.Option(min=0, help="Pass over this many images of every class.")] = 0,
    size: Annotated[int | None, typer.Option(help="Scale the images to this side.")] = None,
    near: Annotated[list[str] | None, typer.Option(help=_NEAR)] = None,
    far: Annotated[list[str] | None, typer.Option(help=_FAR)] = None,
    corrupted: Annotated[str | None, typer.Option(help=_CORRUPTED)] = None,
    vectors: Annotated[Path | None, typer.Option(help=_VECTORS)] = None,
    groups: Annotated[int, typer.Option(min=1, help="The steps of concept-splits made from word vectors.")] = 10,
    root: Root = None,
) -> None:
    """Draw a sheet of a data set, or of what a shift makes of it."""
    from rich.console import Console

    from shiftprism._checks import choice, wrong
    from shiftprism.cli import _sheet
    from shiftprism.corruptions import CORRUPTIONS
    from shiftprism.datasets import load
    from shiftprism.shifts import SUITES

    if to.suffix.lower() != ".png":
        raise wrong("--to", "a .png file", to, "name the sheet sheet.png, say")
    if shift is not None:
        choice("--shift", shift, [*SUITES, *CORRUPTIONS])
    data = load(name, split, root, size)
    options = {"near": near, "far": far, "vectors": vectors, "groups": groups, "split": split, "root": root}
    if shift is None:
        rows = _classes(data, images, first)
    elif shift in CORRUPTIONS:
        rows = _severities(data, shift, images, first, corrupted, root)
    elif shift == "covariate":
        rows = _corruptions(data, first, corrupted, root)
    else:
        rows = _suite(data, shift, images, first, options)
    _sheet.write(to, f"{name} ({split})" + (f": {shift}" if shift else ""), rows)
    Console().print(str(to.resolve()), markup=False, highlight=False, soft_wrap=True)


def varied(data: "Dataset", count: int, first: int = 0) -> "Tensor":
    """The positions of `count` images: from every class in turn, in the order it has them, after its `first` ones."""
    import torch

    order = torch.argsort(data.labels, stable=True)
    counts = torch.bincount(data.labels)
    place = torch.empty_like(data.labels)  # the how-manieth of its class each image is
    place[order] = torch.cat([torch.arange(int(number)) for number in counts])
    turn = (place - first) % counts[data.labels]
    return torch.argsort(turn * len(data.names) + data.labels)[:count]


def _classes(data: "Dataset", count: int, first: int) -> "list[Row]":
    """A row for each class; where these are many, one image for each, ten a row."""
    from shiftprism.cli._sheet import Row

    if len(data.names) <= _MANY_CLASSES:
        parts = {name: data.only([name]).images[first:][:count] for name in data.names}
        return [Row(name, part) for name, part in parts.items() if len(part)]
    picks = varied(data, len(data.names), first)
    names = [data.names[label] for label in data.labels[picks].tolist()]
    return [Row("", data.images[picks[at : at + 10]], names[at : at + 10]) for at in range(0, len(picks), 10)]


def _severities(
    data: "Dataset", name: str, count: int, first: int, corrupted: str | None, root: Path | None
) -> "list[Row]":
    """A row for each image: clean and at the five severities."""
    from shiftprism.cli._sheet import Row

    picks = varied(data, count, first)
    columns = _spoiled(data, name, picks, corrupted, root)
    labels = [data.names[label] for label in data.labels[picks].tolist()]
    return [Row(label, columns[number], _HEADS if number == 0 else ()) for number, label in enumerate(labels)]


def _corruptions(data: "Dataset", first: int, corrupted: str | None, root: Path | None) -> "list[Row]":
    """A row for each corruption of one image: clean and at the five severities."""
    from shiftprism.cli._sheet import Row
    from shiftprism.corruptions import COMMON, EXTRA

    picks = varied(data, 1, first)
    names = COMMON if corrupted else (*COMMON, *EXTRA)
    columns = {name: _spoiled(data, name, picks, corrupted, root)[0] for name in names}
    return [Row(name, part, _HEADS if number == 0 else ()) for number, (name, part) in enumerate(columns.items())]


_HEADS = ("clean", *(f"severity {severity}" for severity in range(1, 6)))


def _spoiled(data: "Dataset", name: str, picks: "Tensor", corrupted: str | None, root: Path | None) -> "Tensor":
    """(n, 6, C, H, W): the images picked, clean and at the five severities, as `shifts.covariate` makes them."""
    import torch

    from shiftprism.corruptions import CORRUPTIONS
    from shiftprism.shifts import suite

    clean = data.images[picks]
    if corrupted is None:  # an image's seed is its position, so nothing but these few need be made
        made = [CORRUPTIONS[name](clean, severity, picks) for severity in range(1, 6)]
    else:
        shifts = suite("covariate", data, corrupted=corrupted, corruptions=[name], root=root)
        made = [shift.make().images[picks] for shift in shifts]
    return torch.stack([clean, *made], 1)


def _suite(data: "Dataset", name: str, count: int, first: int, options: dict[str, Any]) -> "list[Row]":
    """A row for the data itself and one for each shift."""
    from shiftprism.cli._sheet import Row
    from shiftprism.shifts import suite

    found = {"in distribution": data}
    for shift in suite(name, data, **options):
        label = f"severity {shift.severity}" if shift.severity else f"{shift.name}\n({_KINDS[shift.kind]})"
        found[label] = shift.make()
    if name == "concept-splits":  # room for one image of each class of a step
        count = max(count, *(len(part.names) for part in list(found.values())[1:]))
    rows = []
    for label, part in found.items():
        picks = varied(part, count, first)
        rows.append(Row(label, part.images[picks], [part.names[number] for number in part.labels[picks].tolist()]))
    return rows


_KINDS = {"concept": "near", "both": "far"}
