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
_HEADINGS = ("clean", *(f"severity {severity}" for severity in range(1, 6)))
_KINDS = {"concept": "near", "both": "far"}
_SHIFT = "A corruption such as motion_blur, or a suite: covariate, concept-splits or near-far."
_NEAR = "A data set of unseen classes; may be repeated. Default: the other CIFAR."
_FAR = "A data set of another kind; may be repeated. Default for the CIFARs: SVHN and Tiny ImageNet."
_CORRUPTED = "A folder in the layout of CIFAR-10-C to show, instead of corrupting the images here."
_VECTORS = "Word vectors for concept-splits: a GloVe text file or an .npz."


def show(
    name: Annotated[str, typer.Argument(help="The name of a data set, or the path of your own.")],
    to: Annotated[Path, typer.Option(help="The PNG file to write.")],
    shift: Annotated[str | None, typer.Option(help=_SHIFT)] = None,
    split: Annotated[str, typer.Option(help="train, test or all.")] = "test",
    images: Annotated[int, typer.Option(min=1, max=100, help="How many images to show of each class or shift.")] = 8,
    first: Annotated[int, typer.Option(min=0, help="Skip this many images of every class.")] = 0,
    size: Annotated[int | None, typer.Option(help="Scale the images to this side.")] = None,
    near: Annotated[list[str] | None, typer.Option(help=_NEAR)] = None,
    far: Annotated[list[str] | None, typer.Option(help=_FAR)] = None,
    corrupted: Annotated[str | None, typer.Option(help=_CORRUPTED)] = None,
    vectors: Annotated[Path | None, typer.Option(help=_VECTORS)] = None,
    groups: Annotated[int, typer.Option(min=1, help="The number of concept splits made from word vectors.")] = 10,
    root: Root = None,
) -> None:
    """Draw a sheet of images of a data set, or of a shift of it."""
    from rich.console import Console

    from shiftprism._checks import choice, wrong
    from shiftprism.cli import _sheet
    from shiftprism.corruptions import CORRUPTIONS
    from shiftprism.datasets import load
    from shiftprism.shifts import SUITES

    if to.suffix.lower() != ".png":
        raise wrong("--to", "a .png file", to, "name it sheet.png, say")
    if shift is not None:
        choice("--shift", shift, [*SUITES, *CORRUPTIONS])
    data = load(name, split, root, size)
    options = {"near": near, "far": far, "vectors": vectors, "groups": groups, "split": split, "root": root}
    if shift is None:
        rows = _class_rows(data, images, first)
    elif shift in CORRUPTIONS:
        rows = _severity_rows(data, shift, pick_images(data, images, first), corrupted, root)
    elif shift == "covariate":
        rows = _corruption_rows(data, pick_images(data, 1, first), corrupted, root)
    else:
        rows = _suite_rows(data, shift, images, first, options)
    if not rows:
        raise wrong("--first", "less than the number of images of a class", first, "skip fewer images")
    _sheet.write(to, f"{name} ({split})" + (f": {shift}" if shift else ""), rows)
    Console().print(str(to.resolve()), markup=False, highlight=False, soft_wrap=True)


def pick_images(data: "Dataset", count: int, first: int = 0) -> "Tensor":
    """The positions of `count` images: one of each class in turn, after skipping the `first` ones of every class.

    A class that has too few images starts again with its first one.
    """
    import torch

    class_sizes = torch.bincount(data.labels)
    turn = (data.order_in_class() - first) % class_sizes[data.labels]
    return torch.argsort(turn * len(data.names) + data.labels)[:count]


def _class_rows(data: "Dataset", count: int, first: int) -> "list[Row]":
    """A row for each class. If there are many classes, one image for each, ten in a row."""
    from shiftprism.cli._sheet import Row

    if len(data.names) <= _MANY_CLASSES:
        parts = {name: data.only([name]).images[first:][:count] for name in data.names}
        return [Row(name, part) for name, part in parts.items() if len(part)]
    picks = pick_images(data, len(data.names), first)
    names = [data.names[label] for label in data.labels[picks].tolist()]
    return [Row("", data.images[picks[at : at + 10]], names[at : at + 10]) for at in range(0, len(picks), 10)]


def _severity_rows(
    data: "Dataset", corruption: str, picks: "Tensor", corrupted: str | None, root: Path | None
) -> "list[Row]":
    """A row for each of the picked images: clean and at the five severities."""
    from shiftprism.cli._sheet import Row

    columns = _corrupt_images(data, corruption, picks, corrupted, root)
    labels = [data.names[label] for label in data.labels[picks].tolist()]
    return [Row(label, columns[number], _HEADINGS if number == 0 else ()) for number, label in enumerate(labels)]


def _corruption_rows(data: "Dataset", pick: "Tensor", corrupted: str | None, root: Path | None) -> "list[Row]":
    """A row for each corruption of one image: clean and at the five severities."""
    from shiftprism.cli._sheet import Row
    from shiftprism.corruptions import COMMON, EXTRA

    names = COMMON if corrupted else (*COMMON, *EXTRA)
    columns = {name: _corrupt_images(data, name, pick, corrupted, root)[0] for name in names}
    return [Row(name, part, _HEADINGS if number == 0 else ()) for number, (name, part) in enumerate(columns.items())]


def _corrupt_images(
    data: "Dataset", corruption: str, picks: "Tensor", corrupted: str | None, root: Path | None
) -> "Tensor":
    """(n, 6, C, H, W): the picked images, clean and at the five severities, as in `shifts.covariate`."""
    import torch

    from shiftprism.corruptions import CORRUPTIONS
    from shiftprism.shifts import suite

    clean = data.images[picks]
    if corrupted is None:  # the seed of an image is its position, so only these few have to be made
        severities = [CORRUPTIONS[corruption](clean, severity, picks) for severity in range(1, 6)]
    else:
        shifts = suite("covariate", data, corrupted=corrupted, corruptions=[corruption], root=root)
        severities = [shift.make().images[picks] for shift in shifts]
    return torch.stack([clean, *severities], 1)


def _suite_rows(data: "Dataset", name: str, count: int, first: int, options: dict[str, Any]) -> "list[Row]":
    """A row for the data itself and one for each shift."""
    from shiftprism.cli._sheet import Row
    from shiftprism.shifts import suite

    parts = {"in distribution": data}
    for shift in suite(name, data, **options):
        label = f"severity {shift.severity}" if shift.severity else f"{shift.name}\n({_KINDS[shift.kind]})"
        parts[label] = shift.make()
    if name == "concept-splits":  # at least one image of each class of a split
        count = max(count, *(len(part.names) for part in list(parts.values())[1:]))
    rows = []
    for label, part in parts.items():
        picks = pick_images(part, count, first)
        rows.append(Row(label, part.images[picks], [part.names[number] for number in part.labels[picks].tolist()]))
    return rows
