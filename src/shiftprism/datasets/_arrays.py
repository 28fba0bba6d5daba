"""A user's own arrays: `.npz` and `.safetensors` files of images and labels."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import read_tensors
from shiftprism._npz import read_arrays
from shiftprism.datasets._dataset import Dataset

_PAIRS = (("{}_images", "{}_labels"), ("x_{}", "y_{}"))
_WITHOUT_SPLIT = (("images", "labels"), ("x", "y"))


def load_arrays(path: Path, split: str) -> Dataset:
    """The arrays `images` and `labels`, or `train_images` … `test_labels`, or `x_train` … `y_test`, and class `names`.

    Images are uint8 of shape (N, C, H, W), (N, H, W, C) or (N, H, W), with C 1 or 3. Labels are integers from 0.
    Arrays that are not compressed are memory-mapped.
    """
    arrays = read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
    splits = [part for part in ("train", "test") if _keys(arrays, part)]
    if not splits:
        keys = _keys_without_split(arrays)
        if keys is None:
            got = f"{path} with {', '.join(sorted(arrays)) or 'nothing'}"
            raise wrong("name", "a file of `images` and `labels`", got, "rename its arrays, or write train_images, …")
        data = _dataset(path, arrays, [keys])
        return data if split == "all" else data.divide(split)
    wanted = splits if split == "all" else [split]
    if not set(wanted) <= set(splits):
        raise wrong("split", " or ".join(splits), f"{split!r} for {path}", "the file has no arrays of that name")
    return _dataset(path, arrays, [key for part in wanted if (key := _keys(arrays, part))])


def _keys(arrays: Mapping[str, Any], part: str) -> tuple[str, str] | None:
    pairs = [(images.format(part), labels.format(part)) for images, labels in _PAIRS]
    return next((pair for pair in pairs if set(pair) <= set(arrays)), None)


def _keys_without_split(arrays: Mapping[str, Any]) -> tuple[str, str] | None:
    return next((pair for pair in _WITHOUT_SPLIT if set(pair) <= set(arrays)), None)


def _dataset(path: Path, arrays: Mapping[str, Any], keys: list[tuple[str, str]]) -> Dataset:
    parts = [
        (_check_images(path, name, arrays[name]), _check_labels(path, label, arrays[label])) for name, label in keys
    ]
    names = tuple(str(name) for name in arrays["names"]) if "names" in arrays else _number_names(path, arrays)
    return Dataset.concat([Dataset(images, labels, names).check(str(path)) for images, labels in parts])


def _number_names(path: Path, arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """Names "0", "1", … up to the largest label in the whole file, so that all splits have the same names."""
    pairs = (_keys(arrays, "train"), _keys(arrays, "test"), _keys_without_split(arrays))
    largest = max(int(_check_labels(path, pair[1], arrays[pair[1]]).max()) for pair in pairs if pair)
    return tuple(map(str, range(1 + largest)))


def _check_images(path: Path, name: str, array: Tensor) -> Tensor:
    """A view of the images as (N, C, H, W)."""
    images = array[:, None] if array.ndim == 3 else array
    # Channels are looked for on the second axis first: (N, 3, 64, 3) is taken for channels before height and width.
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8 or not len(images):
        got = f"{array.dtype} of shape {tuple(array.shape)} in {path}"
        raise wrong(name, "uint8 of shape (N, C, H, W), (N, H, W, C) or (N, H, W)", got, "store pixels from 0 to 255")
    return images


def _check_labels(path: Path, name: str, array: Tensor) -> Tensor:
    labels = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if labels.ndim != 1 or labels.is_floating_point() or not len(labels):
        got = f"{array.dtype} of shape {tuple(array.shape)} in {path}"
        raise wrong(name, "whole class numbers of shape (N,)", got, "store one number for each image")
    return labels.long()


def _read_safetensors(path: Path) -> dict[str, Any]:
    arrays, metadata = read_tensors(path, None, "replace it with a whole copy", mapped=True)
    if "names" in metadata:
        try:
            arrays["names"] = [str(name) for name in json.loads(metadata["names"])]
        except (ValueError, TypeError) as error:
            raise wrong("names", "a JSON list of class names", f"{error} in {path}", "correct the metadata") from error
    return arrays


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file by name: tensors, or NumPy arrays of text. No claimed size is trusted or allocated."""
    arrays = read_arrays(path)
    texts = {name: array for name, array in arrays.items() if array.dtype.kind == "U"}
    return {**{name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "iubf"}, **texts}
