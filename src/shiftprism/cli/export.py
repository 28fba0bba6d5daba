"""`shiftprism export`: a detector as one ONNX file that carries its verdict."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftprism.cli._flags import check_new
from shiftprism.cli._opening import Model, open_detector

if TYPE_CHECKING:
    from shiftprism.classifier import Classifier
    from shiftprism.cli._held_out import Images


def export(
    detector: Annotated[
        str,
        typer.Argument(
            metavar="DETECTOR",
            show_default=False,
            help="The folder of a detector, or cifar10, which comes with the package.",
        ),
    ],
    to: Annotated[Path, typer.Option(help="The .onnx file to write.", show_default=False)],
    precision: Annotated[
        str,
        typer.Option(
            help="float32, float16 or int8: of the backbone. The last two are other networks: all else is fitted "
            "again to --data."
        ),
    ] = "float32",
    data: Annotated[
        str | None,
        typer.Option(
            help="Held-out images, as for shiftprism fit: a folder (class folders give labels), or a data set by name. "
            "With float32, images to compare on.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Of a data set by name: train, test or all.")] = "test",
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    side: Annotated[
        int | None, typer.Option("--size", min=1, help="Side of the images, for a model that takes any size.")
    ] = None,
    model: Model = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a detector to one ONNX file: images in, label, probabilities, scores, p-values and kind out."""
    from rich.console import Console

    from shiftprism._checks import choice, wrong
    from shiftprism.export import PRECISIONS
    from shiftprism.export import export as write

    if to.suffix.lower() != ".onnx":
        raise wrong("--to", "a file that ends in .onnx", str(to), "name such a file")
    check_new("--to", to, force)
    choice("precision", precision, PRECISIONS)
    if precision != "float32" and data is None:
        advice = "another precision is another network, and its ranks are taken anew"
        raise wrong("--data", f"held-out images for --precision {precision}", "nothing", advice)
    opened = open_detector(detector, model, "cpu", None)
    assert opened.classifier is not None
    held = None if data is None else _read(opened.classifier, detector, data, split, root)
    console = Console()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    report = write(
        opened,
        to,
        images=None if held is None else held.images,
        labels=None if held is None or held.labels is None else held.labels.numpy(),
        size=None if side is None else (side, side),
        precision=precision,
        progress=say,
    )
    say(f"inside: {report.input.inside}")
    say(str(report.differences))
    if precision != "float32":
        say(f"classes other than those of the network in float32: {report.labels_changed} of {report.compared}")
    say(f"Written: {to.resolve()} ({report.bytes / 1e6:.1f} MB, {report.nodes} nodes)")


def _read(classifier: "Classifier", detector: str, data: str, split: str, root: Path | None) -> "Images":
    from shiftprism.cli._held_out import read_folder, read_named
    from shiftprism.datasets import DATASETS

    if data in DATASETS or not Path(data).is_dir():
        return read_named(classifier, Path(detector), data, split, root)
    return read_folder(classifier, Path(data), lambda done, total: None)
