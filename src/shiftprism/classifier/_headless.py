"""A model cut before its last layer, so that it returns the features that its logits are linear in."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda inputs: inputs.flatten(1),
    "mean of maps": lambda inputs: inputs.flatten(2).mean(2),
    "mean of tokens": lambda inputs: inputs.flatten(1, -2).mean(1),
    "first token": lambda inputs: inputs[:, 0],
}
"""How the input of a last layer becomes one feature vector for each image, (N, …) -> (N, D)."""


class Cut(NamedTuple):
    """One of the layers that a model is cut before."""

    layer: str
    """Its name among the model's modules; empty for the model itself."""
    reduction: str
    """A name in `REDUCTIONS`."""


class Adapted(NamedTuple):
    """Where the model of an adapted Classifier came from."""

    factory: str | None
    """The name of what makes its code, "package.module:function"; for people, nothing imports it from here."""
    cuts: tuple[Cut, ...]
    shape: tuple[int, ...]
    """(C, H, W) of the images it was adapted with, after resize and crop."""
    logits: tuple[float, ...] = ()
    """What it said of `probe_image(shape)` when it was saved: other code with the same weights is found by this."""


def probe_image(shape: Sequence[int]) -> Tensor:
    """(1, C, H, W): an image in [0, 1] that is the same everywhere, and like no other."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 + 31) % 256 / 255).reshape(1, *shape)


class Headless(nn.Module):
    """The features of a model, (N, D): the inputs of its last layers, side by side. The layers themselves are gone."""

    like: Tensor

    def __init__(self, model: nn.Module, cuts: Sequence[Cut], classes: int) -> None:
        super().__init__()
        # a buffer that no file holds, so that `.half()` and `.double()` change it with the model
        self.register_buffer("like", first_weights(model).new_empty(0), persistent=False)
        self.model = model
        self.count = len(cuts)
        for number, cut in enumerate(cuts):
            self._replace(cut.layer, _Recorder(number, cut.reduction, classes))

    def _replace(self, layer: str, recorder: "_Recorder") -> None:
        if not layer:
            self.model = recorder
            return
        parent, _, name = layer.rpartition(".")
        setattr(self.model.get_submodule(parent), name, recorder)

    def forward(self, images: Tensor) -> Tensor:
        with _record() as features:
            self.model(images.to(self.like.dtype))
        if len(features) != self.count:
            got = f"one that used {len(features)} of {self.count} for these images"
            raise wrong("model", "one that uses its last layers for every image", got, "build a Classifier yourself")
        return torch.cat([features[number] for number in range(self.count)], 1)


_THREAD = threading.local()
"""Its `features` is what the recorders of this thread write to, so that several threads may share a model."""


@contextmanager
def _record() -> Iterator[dict[int, Tensor]]:
    before = getattr(_THREAD, "features", None)
    _THREAD.features = features = dict[int, Tensor]()
    try:
        yield features
    finally:
        _THREAD.features = before


class _Recorder(nn.Module):
    """In the place of a last layer: it keeps its input, and returns zeros of the shape that the layer returned.

    What the model does with its logits (reshape, average, wrap in an object) is done to these zeros.
    """

    def __init__(self, number: int, reduction: str, classes: int) -> None:
        super().__init__()
        self.number, self.reduction, self.classes = number, reduction, classes

    def forward(self, inputs: Tensor) -> Tensor:
        features = getattr(_THREAD, "features", None)
        if features is not None:
            features[self.number] = REDUCTIONS[self.reduction](inputs)
        if self.reduction in ("mean of tokens", "first token") or inputs.ndim == 2:
            return inputs.new_zeros(*inputs.shape[:-1], self.classes)
        places = inputs.shape[2:] if self.reduction == "mean of maps" else (1,) * (inputs.ndim - 2)
        return inputs.new_zeros(inputs.shape[0], self.classes, *places)


def first_weights(model: nn.Module) -> Tensor:
    """A tensor on the device and of the type that the model computes in: its first parameter or buffer of floats."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
