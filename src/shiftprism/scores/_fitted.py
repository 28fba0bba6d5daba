"""What every fitted score is: a final module made by `fit`, whose tensors are buffers and whose settings are plain."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from torch import Tensor, nn

from shiftprism._checks import classes, wrong
from shiftprism._files import replacing
from shiftprism.outputs import Outputs

FORMAT = "shiftprism-score-1"
Setting = int | float | str


class Fitted(nn.Module, ABC):
    """Outputs in, (N,) out, higher = more in-distribution; made by a class method `fit`, never empty.

    The tensors are buffers, so `.to(device)`, `state_dict` and `torch.export` work; `save` writes them with the
    settings to one file that `shiftprism.scores.load` reads.
    """

    def __init__(self, tensors: Mapping[str, Tensor], **settings: Setting) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self.settings = settings

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """One number for each input, (N,), in the dtype of the Outputs."""

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all; nothing is pickled."""
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        about = {"format": FORMAT, "score": type(self).__name__, "settings": json.dumps(self.settings)}
        with replacing(Path(path)) as beside:
            save_file(tensors, beside, about)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def detached(tensor: Tensor) -> Tensor:
    """Without its graph and in at least float32: what a fit reads and what its buffers are kept in."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


def class_numbers(labels: ArrayLike, outputs: Outputs) -> Tensor:
    """The labels as int64 on the device of the Outputs, one for each row and each a class of the model."""
    return torch.from_numpy(classes("labels", labels, outputs.N, outputs.K)).to(outputs[4].device)


def same_width(tensor: Tensor, width: int, what: str = "features") -> Tensor:
    """`tensor`, if it is as wide as what the score was fitted to."""
    if tensor.shape[1] != width:
        got = f"{tensor.shape[1]} {what}"
        raise wrong("outputs", f"of {width} {what}", got, "score Outputs of the model this was fitted to")
    return tensor


def tame(tensor: Tensor) -> Tensor:
    """Clamped to where a sum of squares of its rows is finite: features far out score low, never NaN."""
    most = (torch.finfo(tensor.dtype).max / max(tensor.shape[1], 1)) ** 0.5 / 16
    return tensor.clamp(-most, most)


def finite_like(values: Tensor, outputs: Outputs) -> Tensor:
    """In the dtype of the Outputs, with infinities brought to its largest number."""
    dtype = outputs[4].dtype
    limits = torch.finfo(dtype)
    return values.clamp(limits.min, limits.max).to(dtype)


def by_rows(function: Callable[[Tensor], Tensor], tensor: Tensor, rows: int) -> Tensor:
    """function(tensor), computed for `rows` at a time; at once while tracing, where the number of rows is unknown."""
    if torch.compiler.is_compiling() or len(tensor) <= rows:
        return function(tensor)
    return torch.cat([function(part) for part in tensor.split(rows)])


def class_weights(head: Any, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, D) and b (K,), 0 where there is none, of a head on `width` features; dtype and device of `like`."""
    weight, bias = getattr(head, "weight", None), getattr(head, "bias", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[1] != width:
        got = "None" if head is None else f"a {type(head).__name__} without them"
        advice = "pass classifier.head: any head with class weights, or an nn.Linear"
        raise wrong("head", f"one with class weights of shape (K, {width})", got, advice)
    weight = weight.detach().to(like)
    return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().to(like)


def check_linear(head: Any, outputs: Outputs) -> None:
    """An error where `outputs.raw` is not W f + b of this head."""
    some = Outputs(*(field.detach() for field in outputs.rows(slice(0, 64))))
    weight, bias = class_weights(head, outputs.D, some.features)
    expected = some.features @ weight.T + bias
    near = float(1e-3 * expected.abs().max())
    if expected.shape != some.raw.shape or not torch.allclose(some.raw, expected, rtol=1e-3, atol=near):
        got = f"a {type(head).__name__} whose W f + b is not `outputs.raw`"
        advice = "it takes a linear head (vanilla, alpha, beta, alpha-beta, gsd, inner) and its own Outputs"
        raise wrong("head", "the one these Outputs came from", got, advice)
