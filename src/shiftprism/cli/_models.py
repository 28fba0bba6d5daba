"""An own model on the command line: one place that loads it, and one that runs image files through it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from shiftprism.classifier import Classifier
    from shiftprism.outputs import Outputs

OwnModel = Annotated[
    str,
    typer.Option(
        "--model",
        help="What makes the code of a model that was adapted: package.module:function, in a file here or installed.",
        show_default=False,
    ),
]
"""The option of every command that takes a run. The name is imported because a person typed it, from no file."""
_BATCH = 128


def load_model(folder: Path, model: str = "", device: str = "auto") -> "Classifier":
    """The saved model in a folder, on a device, with the code that `--model` names where it needs one."""
    from shiftprism._devices import choose_device, move
    from shiftprism.classifier import Classifier

    choose_device(device)  # one that is not there is an error before anything is imported or loaded
    return move(Classifier.load(folder, model=model or None), device)


def is_own_folder(classifier: "Classifier", name: str, root: Path | None) -> bool:
    """Whether `name` is a folder of images that go through the model's own resize rule."""
    place = (root or Path()) / Path(name).expanduser()
    return classifier.preprocessing.resize is not None and place.is_dir()


def predict_files(
    classifier: "Classifier", paths: Sequence[Path], batch: int = _BATCH
) -> "tuple[Outputs, torch.Tensor, dict[Path, str]]":
    """The Outputs of all files that can be read, their rows among `paths`, and the problem of each of the others."""
    import torch

    from shiftprism.classifier import predict
    from shiftprism.datasets import read_images

    rows: list[int] = []
    problems: dict[Path, str] = {}

    def batches() -> "Iterator[torch.Tensor]":
        ready: list[torch.Tensor] = []
        for row, file in enumerate(read_images(paths, classifier.prepare)):
            if file.image is None:
                problems[file.path] = file.problem
                continue
            rows.append(row)
            ready.append(file.image)
            if len(ready) == batch:
                yield torch.stack(ready)
                ready.clear()
        if ready:
            yield torch.stack(ready)

    outputs, _ = predict(classifier, batches())
    return outputs, torch.tensor(rows), problems
