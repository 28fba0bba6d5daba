"""Trained weights that come as plain NumPy arrays."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism._npz import DamagedFile, read_arrays


def load_arrays(path: "str | Path", backbone: nn.Module, linear: nn.Module) -> None:
    """Fill `backbone` and `linear` with the arrays of an `.npz` file, all of them or, after an error, none.

    An array is named as in `backbone.state_dict()`, or `linear.weight` and `linear.bias`. Every tensor must be there
    with its own shape, and nothing else; only BatchNorm's counters (`num_batches_tracked`) may be absent. Nothing is
    unpickled.
    """
    arrays = _read_arrays(Path(path))
    state = {**backbone.state_dict(), **{f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}}
    missing = [name for name in state if name not in arrays and not name.endswith("num_batches_tracked")]
    extra = [name for name in arrays if name not in state]
    common = [name for name in state if name in arrays]
    faults = [f"no {name}" for name in missing] + [f"an unknown {name}" for name in extra]
    faults += [f"{name} of {_fault(arrays[name], state[name])}" for name in common if _fault(arrays[name], state[name])]
    if faults:
        raise wrong(
            "path", "the arrays of this network", f"{path} with " + ", ".join(faults), "build the network it holds"
        )
    with torch.no_grad():
        for name in common:  # only now that all of them fit
            state[name].copy_(torch.from_numpy(arrays[name]))


def _read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        return read_arrays(path)
    except DamagedFile as error:
        got = f"{path} ({error.problem})"
        raise wrong("path", "an .npz file of plain arrays", got, "write it with numpy.savez and no objects") from error


def _fault(array: NDArray[np.generic], tensor: Tensor) -> str:
    """Why `array` cannot replace `tensor`, or "" if it can."""
    if array.shape != tuple(tensor.shape):
        return f"shape {array.shape} in place of {tuple(tensor.shape)}"
    if array.dtype.kind not in "fiu":
        return f"dtype {array.dtype}"
    return "" if np.isfinite(array.astype(np.float64)).all() else "values that are not finite"
