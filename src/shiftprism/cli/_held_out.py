"""The images that a detector is fitted to: a data set by name, or a folder of any images."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

from shiftprism._errors import wrong

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.classifier import Classifier


class Images(NamedTuple):
    """Images, and what is known about them."""

    images: "Tensor | Sequence[Tensor]"
    labels: "Tensor | None"
    source: str
    problems: list[str]
    """Files that could not be read, with the reason."""


def read_named(classifier: "Classifier", run: Path, name: str | None, split: str, root: Path | None) -> Images:
    """The images of a data set; for a run of ours, by default those that it held out."""
    from shiftprism._checks import choice
    from shiftprism.datasets import load
    from shiftprism.training import read_run_settings, split_held_out

    settings = read_run_settings(run)
    name = name or settings.get("data")
    if name is None:
        raise wrong("--data", "given", "a model that does not say what it was trained on", "add --data FOLDER")
    share = float(settings.get("held_out", 0.0)) if name == settings.get("data") else 0.0
    split = choice("split", split or ("held-out" if share else "test"), ("held-out", "train", "test", "all"))
    if split == "held-out" and not share:
        raise wrong("--split", "one that this run has", "held-out", "training held out none of these data")
    data = split_held_out(name, share, root)[1] if split == "held-out" else load(name, split, root)
    if tuple(data.names) != tuple(classifier.names):
        got = f"{name} with {len(data.names)} others"
        raise wrong("--data", f"of the {len(classifier.names)} classes of the model", got, "fit it to its own classes")
    try:
        classifier.prepare(data.images[0])
    except ValueError as error:  # the images are those of --data
        raise ValueError(str(error).replace("`images`", "--data")) from error
    return Images(data.images, data.labels, f"{name} ({split})", [])


def read_folder(classifier: "Classifier", folder: Path, advance: "Callable[[int, int], None]") -> Images:
    """The images of a folder, whatever their sizes; class folders give labels."""
    import torch

    from shiftprism.datasets import list_images, read_images
    from shiftprism.detector import prepare_for

    paths = list_images(folder)
    if not paths:
        raise wrong("--data", "a folder with images", f"{folder} without any", "name another")
    classes = find_classes(folder, paths, classifier.names)
    kept: list[int] = []
    problems: list[str] = []
    fitting: list[Tensor] = []
    for number, file in enumerate(read_images(paths, prepare_for(classifier))):
        advance(number + 1, len(paths))
        if file.image is None:
            problems.append(f"{file.path}: {file.problem}")
            continue
        kept.append(number)
        if not file.image.is_floating_point():
            fitting.append(file.image)
    if not kept:
        raise wrong("--data", "a folder with readable images", f"{folder} ({problems[0]})", "name another")
    # Images that have the model's size are kept in memory; photographs are read again when they are needed.
    images = torch.stack(fitting) if len(fitting) == len(kept) else FileImages([paths[number] for number in kept])
    labels = None if classes is None else torch.tensor(classes)[kept]
    return Images(images, labels, str(folder), problems)


class FileImages(Sequence["Tensor"]):
    """The images of files, uint8 (C, H, W) of any sizes, decoded when they are asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> "Tensor": ...
    @overload
    def __getitem__(self, place: slice) -> "list[Tensor]": ...
    def __getitem__(self, place: int | slice) -> "Tensor | list[Tensor]":
        if isinstance(place, slice):
            return list(self._read(self.paths[place]))
        return next(self._read([self.paths[place]]))

    def _read(self, paths: list[Path]) -> "Iterator[Tensor]":
        from shiftprism.datasets import read_images

        for file in read_images(paths):
            if file.image is None:
                raise OSError(f"{file.path}: {file.problem}; it was readable when the fit began")
            yield file.image


def find_classes(folder: Path, paths: list[Path], names: tuple[str, ...]) -> list[int] | None:
    """The class of each file by the folder that it is in; None for images without classes."""
    folders = [path.relative_to(folder).parts[0] if len(path.relative_to(folder).parts) > 1 else "" for path in paths]
    present = sorted(set(folders))
    numbers = {name: number for number, name in enumerate(names)}
    if names == tuple(map(str, range(len(names)))) and not set(present) & set(names) and len(present) == len(names):
        numbers = {name: number for number, name in enumerate(present)}  # a model without names: folders in order
    known = [name for name in present if name in numbers]
    if not known:
        return None
    if unknown := [name or "images beside the class folders" for name in present if name not in numbers]:
        got = f"{folder} with {unknown[0]}" + (f" and {len(unknown) - 1} more" if unknown[1:] else "")
        advice = "remove or rename them, or name a folder without class folders"
        raise wrong("--data", f"a folder of the model's {len(names)} classes", got, advice)
    return [numbers[name] for name in folders]
