"""`shiftprism explain`: one page about one image: its place among held-out images, and the verdict in words."""

from pathlib import Path
from typing import Annotated

import typer

from shiftprism._errors import wrong
from shiftprism.cli._flags import Device
from shiftprism.cli._opening import FalseAlarm, Model, open_detector


def explain(
    detector: Annotated[
        str,
        typer.Argument(
            metavar="DETECTOR",
            show_default=False,
            help="The folder of a detector, or cifar10, which comes with the package.",
        ),
    ],
    image: Annotated[Path, typer.Argument(help="The image file.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option(help="The page. (the name of the image with .html)", show_default=False)
    ] = None,
    false_alarm: FalseAlarm = None,
    model: Model = None,
    device: Device = "auto",
) -> None:
    """Write a page about one image: its place among held-out images, and the verdict in words."""
    from rich.console import Console

    from shiftprism._files import write_text
    from shiftprism.cli._explanation import make_page
    from shiftprism.datasets import read_images
    from shiftprism.detector import prepare_for

    page = to or Path(f"{image.stem}.html")
    if page.suffix.lower() not in (".html", ".htm"):
        raise wrong("--to", "an .html file", page, "name it page.html, say")
    found = open_detector(detector, model, device, false_alarm)
    assert found.classifier is not None
    (file,) = read_images([image])
    if file.image is None:
        raise wrong("image", "an image file", f"{image} ({file.problem})", "name another")
    seen = prepare_for(found.classifier)(file.image)
    verdict = found(seen[None])[0]
    write_text(page, make_page(found, image.name, file.image, seen, verdict))
    console = Console()
    console.print(str(verdict), markup=False, highlight=False, soft_wrap=True)
    console.print(f"The page: {page.resolve()}", markup=False, highlight=False, soft_wrap=True)
