"""Loading a data set by its name or path, and downloading one by its name."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from shiftprism._checks import choice, wrong
from shiftprism._files import check_file
from shiftprism.datasets._arrays import load_arrays
from shiftprism.datasets._catalogue import DATASETS, Request
from shiftprism.datasets._corrupted import load_corrupted
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._download import Progress, fetch
from shiftprism.datasets._find import data_folder, find, missing_error
from shiftprism.datasets._folders import load_folder
from shiftprism.datasets._hugging_face import load_hugging_face
from shiftprism.datasets._images import resize


def load(name: str, split: str, root: "str | Path | None" = None, size: int | None = None) -> Dataset:
    """The data set `name`: images uint8 (N, C, H, W), labels (N,) and class names.

    `name` is one of
    - a name in `DATASETS`, such as "cifar10" or "cifar10-c/<corruption>/<severity>";
    - "hf:<owner>/<name>" or "hf:<owner>/<name>:<configuration>", of the Hugging Face Hub;
    - the path of a folder of class folders or of images without classes, or of an `.npz` or `.safetensors` file;
    - "<folder>/<corruption>/<severity>" for a folder in the layout of CIFAR-10-C.

    `split` is "train", "test" or "all". Data without splits is divided: every fifth image of a class is for testing.
    `root` is the folder that holds the files: by default $SHIFTPRISM_DATA, or ./data and ~/.cache/shiftprism. With a
    `size` the images are scaled to fill size × size. Images are memory-mapped where the format of the file allows it.

    >>> digits = load("digits", "test")
    >>> digits.images.shape, digits.names[:3]
    (torch.Size([596, 1, 8, 8]), ('0', '1', '2'))
    """
    choice("split", split, ("train", "test", "all"))
    if size is not None and not 1 <= size <= 4096:
        raise wrong("size", "between 1 and 4096", size, "give the side in pixels")
    data = _read(name, split, root, size).check(name)
    if size is not None and data.images.shape[2:] != (size, size):
        data = data._replace(images=torch.from_numpy(resize(data.images.numpy(), size)))
    return data


def _read(name: str, split: str, root: "str | Path | None", size: int | None) -> Dataset:
    first, _, part = name.partition("/")
    if first in DATASETS:
        return _read_named(first, part, split, root)
    if name.startswith("hf:"):
        return load_hugging_face(name.removeprefix("hf:"), split, data_folder(root), size)
    path = (Path(root) if root else Path()) / Path(name).expanduser()
    if path.is_dir():
        # Here `root` is where the user's own images are, so decoded ones do not go there.
        return load_folder(path, split, data_folder(), size)
    if path.is_file() and path.suffix in (".npz", ".safetensors"):
        return load_arrays(path, split)
    if (path.parent.parent / f"{path.parent.name}.npy").is_file():
        return load_corrupted(path.parent.parent, f"{path.parent.name}/{path.name}", None)
    if path.is_file():
        got = f"{name!r}, a file of another kind"
        raise wrong("name", "a folder of class folders, or a .npz or .safetensors file", got, "convert it to one")
    check_file(path)
    expected = f"one of {', '.join(DATASETS)}, hf:<owner>/<name>, or a folder, .npz or .safetensors file"
    raise wrong("name", expected, f"{name!r}, and there is nothing at {path.absolute()}", "correct the name")


def _read_named(name: str, part: str, split: str, root: "str | Path | None") -> Dataset:
    entry = DATASETS[name]
    if part and entry.splits != ("test",):
        raise wrong("name", name, f"{name}/{part}", "only the corrupted data sets have parts")
    if split == "all":
        return Dataset.concat([_read_named(name, part, each, root) for each in entry.splits])
    choice("split", split, entry.splits)
    place = find(name, split, root)
    if place is None:
        raise missing_error(name, split, root)
    path, form = place
    return form.read(path, Request(split, part, data_folder(root)))


def get(
    name: str,
    root: "str | Path | None" = None,
    progress: Progress = lambda file, done, size: None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Download the data set `name` from its publisher into `root`, or to where `load` looks, and return its files.

    A file that is there and has the right digest is not downloaded again.
    """
    entry = DATASETS[choice("name", name, DATASETS)]
    return [fetch(download, data_folder(root), progress, sleep) for download in entry.downloads]
