"""Arguments looked at where they enter: arrays, labels and tensors that are not what they should be are refused."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftprism._errors import choice as choice
from shiftprism._errors import wrong as wrong

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def vector(argument: str, values: ArrayLike) -> Floats:
    """A non-empty one-dimensional array of finite numbers, in float64."""
    array = array_of(argument, values)
    if array.ndim != 1:
        raise wrong(argument, "one-dimensional", f"shape {array.shape}", "pass one number for each sample")
    if len(array) == 0:
        raise wrong(argument, "non-empty", "no values", "pass at least one sample")
    return _finite(argument, array.astype(np.float64, copy=False))


def matrix(argument: str, values: ArrayLike) -> Floats:
    """A non-empty (N, K) array of finite numbers, in float64."""
    array = array_of(argument, values)
    if array.ndim != 2:
        raise wrong(argument, "of shape (N, K)", f"shape {array.shape}", "pass one row for each sample")
    if 0 in array.shape:
        raise wrong(argument, "non-empty", f"shape {array.shape}", "pass at least one sample and one class")
    return _finite(argument, array.astype(np.float64, copy=False))


def classes(argument: str, values: ArrayLike, samples: int, count: int) -> Integers:
    """`samples` whole class numbers from 0 to `count` − 1, as int64."""
    array = array_of(argument, values)
    if array.shape != (samples,):
        raise wrong(argument, f"of shape ({samples},)", f"shape {array.shape}", "pass one class number for each sample")
    if array.dtype.kind not in "iub":
        raise wrong(argument, "whole class numbers", f"dtype {array.dtype}", "convert them with .astype(int)")
    if array.size and (array.min() < 0 or array.max() >= count):
        got = f"values from {array.min()} to {array.max()}"
        raise wrong(argument, f"between 0 and {count - 1}", got, f"the model has {count} classes, numbered from 0")
    return array.astype(np.int64, copy=False)


def finite(argument: str, tensor: "Tensor") -> "Tensor":
    """`tensor`, if all of it is finite."""
    import torch

    # A sum is finite where every term is; only a suspicious one is looked at again, element by element.
    if not bool(torch.isfinite(tensor.detach().sum())) and not bool(torch.isfinite(tensor).all()):
        rows = (~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1).nonzero().flatten()
        got = f"{len(rows)} rows with NaN or infinite values, the first at row {int(rows[0])}"
        raise wrong(argument, "finite", got, "look at what the model or the images hold there")
    return tensor


def array_of(argument: str, values: ArrayLike) -> NDArray[Any]:
    """Any array-like of numbers, tensors on any device among them, as NumPy sees it."""
    given: Any = values
    if hasattr(given, "detach"):  # a tensor, perhaps on a device and with a gradient
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) == "torch.bfloat16" else given  # NumPy has no such type
    array = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise wrong(argument, "numeric", f"dtype {array.dtype}", "pass an array, a tensor or a list of numbers")
    return array


def _finite(argument: str, array: Floats) -> Floats:
    bad = ~np.isfinite(array)
    if bad.any():
        first = int(np.argwhere(bad)[0, 0])
        got = f"{int(bad.sum())} NaN or infinite values, the first at row {first}"
        raise wrong(argument, "finite", got, "remove or repair these samples first")
    return array
