"""`shiftprism export`: a detector as one ONNX file that carries its verdict."""

from pathlib import Path
from typing import Annotated

import typer

from shiftprism.cli._flags import check_new
from shiftprism.cli._opening import Model, open_detector


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
    side: Annotated[
        int | None, typer.Option("--size", min=1, help="Side of the images, for a model that takes any size.")
    ] = None,
    model: Model = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a detector to one ONNX file: images in, label, probabilities, scores, p-values and kind out."""
    from rich.console import Console

    from shiftprism.export import export as write

    check_new("--to", to, force)
    opened = open_detector(detector, model, "cpu", None)
    console = Console()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    report = write(opened, to, size=None if side is None else (side, side), progress=say)
    say(f"inside: {report.input.inside}")
    say(str(report.differences))
    say(f"Written: {to.resolve()} ({report.bytes / 1e6:.1f} MB, {report.nodes} nodes)")
