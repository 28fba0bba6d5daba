"""Named data as uint8 tensors, labels and class names.

`load(name, split)` is the door: every data set comes as a `Dataset` of images (N, C, H, W), labels and names. `get`
fetches one that is not there; `DATASETS` says what is known by name.
"""

from pathlib import Path

import torch

from shiftprism._checks import choice, wrong
from shiftprism.datasets._arrays import load_arrays
from shiftprism.datasets._catalogue import DATASETS, Wish, find, missing
from shiftprism.datasets._corrupted import load_corrupted
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._folders import load_folder
from shiftprism.datasets._get import get
from shiftprism.datasets._hugging_face import load_hugging_face
from shiftprism.datasets._images import resized
from shiftprism.datasets._places import home, roots

__all__ = ["DATASETS", "Dataset", "get", "load"]


def load(name: str, split: str, root: "str | Path | None" = None, size: int | None = None) -> Dataset:
    """The data set `name`: images uint8 (N, C, H, W), labels (N,) and class names.

    `name` is one of
    - `DATASETS`, such as "cifar10", and "cifar10-c/<corruption>/<severity>";
    - "hf:<owner>/<name>" or "hf:<owner>/<name>:<configuration>", of the Hugging Face Hub;
    - the path of a folder of class folders, or of an `.npz` or `.safetensors` file;
    - "<folder>/<corruption>/<severity>" for a folder in the layout of CIFAR-10-C.

    `split` is "train", "test" or "all"; data without a split of its own is divided, every fifth image of a class being
    for testing. `root` is the folder that holds the publisher's files: by default $SHIFTPRISM_DATA, or ./data and
    ~/.cache/shiftprism. With a `size` the images are scaled to fill size × size. Images stay in their file,
    memory-mapped, wherever its format allows.

    >>> digits = load("digits", "test")
    >>> digits.images.shape, digits.names[:3]
    (torch.Size([596, 1, 8, 8]), ('0', '1', '2'))
    """
    choice("split", split, ("train", "test", "all"))
    if size is not None and not 1 <= size <= 4096:
        raise wrong("size", "between 1 and 4096", size, "give the side in pixels")
    data = _read(name, split, root, size).check(name)
    if size is not None and data.images.shape[2:] != (size, size):
        data = data._replace(images=torch.from_numpy(resized(data.images.numpy(), size)))
    return data


def _read(name: str, split: str, root: "str | Path | None", size: int | None) -> Dataset:
    known, _, part = name.partition("/")
    if known in DATASETS:
        return _named(known, part, split, root)
    if name.startswith("hf:"):
        return load_hugging_face(name.removeprefix("hf:"), split, home(root), size)
    path = (Path(root) if root else Path()) / Path(name).expanduser()
    if path.is_dir():
        return load_folder(path, split, home(), size)
    if path.is_file() and path.suffix in (".npz", ".safetensors"):
        return load_arrays(path, split)
    if (path.parent.parent / f"{path.parent.name}.npy").is_file():
        return load_corrupted(path.parent.parent, f"{path.parent.name}/{path.name}", None)
    expected = f"one of {', '.join(DATASETS)}, hf:<owner>/<name>, or a folder, .npz or .safetensors file"
    raise wrong("name", expected, f"{name!r}, of which there is nothing at {path.absolute()}", "correct the name")


def _named(name: str, part: str, split: str, root: "str | Path | None") -> Dataset:
    entry = DATASETS[name]
    if part and entry.splits != ("test",):
        raise wrong("name", name, f"{name}/{part}", "only the corrupted sets have parts")
    if split == "all":
        return Dataset.concat([_named(name, part, each, root) for each in entry.splits])
    choice("split", split, entry.splits)
    found = find(name, split, roots(root))
    if found is None:
        raise missing(name, split, roots(root), home(root))
    path, form = found
    return form.read(path, Wish(split, part, home(root)))
