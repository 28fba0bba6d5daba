"""Outputs: what a classifier says about a batch, or about a whole data set.

Every score, calibrator, threshold and figure reads this one type, so an image is forwarded once.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shiftprism._checks import finite, wrong
from shiftprism._files import write_tensors

_FORMAT = "shiftprism-outputs-1"


class Outputs(NamedTuple):
    """The five things a classifier says about N inputs, with D features and K classes.

    It is a plain tuple of tensors, so `torch.export`, devices and pytrees take it as it is.

    >>> outputs = Outputs.from_logits(torch.zeros(4, 3))
    >>> outputs
    Outputs(N=4, D=0, K=3)
    >>> outputs.features
    Traceback (most recent call last):
    ...
    ValueError: Expected `outputs` to be made by a classifier, with features, but got one made from logits alone; ...
    """

    features: Tensor
    """(N, D): f, the head's input."""
    norms: Tensor
    """(N,): |f|."""
    similarities: Tensor
    """(N, K): W f / |f| without bias; for a head without class weights its class score before any per-input scale."""
    raw: Tensor
    """(N, K): the linear layer's own output W f + b, before α and β."""
    logits: Tensor
    """(N, K): what the model predicts with."""

    @property
    def N(self) -> int:
        """How many inputs."""
        return len(self[4])

    @property
    def D(self) -> int:
        """How many features, 0 where there are only logits."""
        return self[0].shape[1]

    @property
    def K(self) -> int:
        """How many classes."""
        return self[4].shape[1]

    @property
    def has_features(self) -> bool:
        """Whether features, norms and similarities are there, or logits alone."""
        return self.D > 0

    @property
    def predictions(self) -> Tensor:
        """(N,): the class with the largest logit."""
        return self.logits.argmax(1)

    @staticmethod
    def from_logits(logits: Tensor) -> "Outputs":
        """For people who have nothing but logits; asking it for features, norms or similarities is an error."""
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            got = (
                f"{logits.dtype} of shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else type(logits).__name__
            )
            raise wrong("logits", "a floating-point tensor of shape (N, K)", got, "pass one row for each sample")
        absent = logits.new_empty(len(logits), 0)
        return Outputs(absent, absent.sum(1), absent, logits, logits)

    @staticmethod
    def concat(parts: Sequence["Outputs"]) -> "Outputs":
        """The rows of all `parts`, in order."""
        if not parts:
            raise wrong("parts", "non-empty", "no Outputs", "pass at least one")
        for part in parts[1:]:
            if (part.D, part.K) != (parts[0].D, parts[0].K):
                got = f"{parts[0]} beside {part}"
                raise wrong("parts", "of one model", got, "concatenate Outputs with equal D and K")
        return Outputs(*(torch.cat(fields) for fields in zip(*parts, strict=True)))

    def rows(self, index: "slice | Tensor | Sequence[int]") -> "Outputs":
        """The chosen rows of every field: a slice, a tensor of positions or a mask."""
        if isinstance(index, Sequence):
            index = torch.as_tensor(index, dtype=torch.long)
        return Outputs(*(field[index] for field in self))

    def to(self, target: "torch.device | torch.dtype | str") -> "Outputs":
        """Every field on another device or in another precision."""
        return Outputs(*(field.to(target) for field in self))

    def check(self) -> "Outputs":
        """Itself, if its shapes fit one another and everything in it is finite; an error naming the field otherwise."""
        n, k = self.N, self.K
        shapes = [(n, self.D), (n,), (n, k if self.has_features else 0), (n, k), (n, k)]
        for name, field, shape in zip(self._fields, self, shapes, strict=True):
            if field.shape != shape:
                raise wrong(
                    f"outputs.{name}", f"of shape {shape}", f"{tuple(field.shape)}", "all fields share N, D and K"
                )
            finite(f"outputs.{name}", field)
        return self

    def save(self, path: "str | Path", labels: Tensor | None = None, fingerprint: str = "") -> None:
        """Write one safetensors file, whole or not at all.

        `fingerprint` stands for the weights, the normalisation and the data these rows came from; `load` can demand it.
        """
        tensors = dict(zip(self._fields, self, strict=True))
        # from_logits shares one tensor between fields; safetensors wants each its own
        tensors["raw"] = tensors["raw"].clone() if self.raw is self.logits else tensors["raw"]
        tensors["similarities"] = tensors["similarities"].clone()
        if labels is not None:
            if labels.shape != (self.N,):
                raise wrong("labels", f"of shape ({self.N},)", f"{tuple(labels.shape)}", "pass one label for each row")
            tensors["labels"] = labels
        write_tensors(Path(path), tensors, {"format": _FORMAT, "fingerprint": fingerprint})

    @staticmethod
    def load(path: "str | Path", fingerprint: str | None = None) -> "tuple[Outputs, Tensor | None]":
        """The Outputs in a file and the labels saved beside them, refused when the fingerprint asked for differs."""
        try:
            with safe_open(path, framework="pt") as file:
                found = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise wrong(
                "path", "a whole safetensors file", f"{path} ({error})", "compute these Outputs again"
            ) from error
        missing = set(Outputs._fields) - set(tensors)
        if found.get("format") != _FORMAT or missing:
            got = json.dumps({"format": found.get("format"), "missing": sorted(missing)})
            raise wrong("path", f"a file of format {_FORMAT}", f"{path} with {got}", "write it with Outputs.save")
        if fingerprint is not None and found.get("fingerprint") != fingerprint:
            raise wrong(
                "fingerprint",
                repr(fingerprint),
                f"{found.get('fingerprint')!r} in {path}",
                "these Outputs come from other weights, another normalisation or other data: compute them again",
            )
        return Outputs(*(tensors[name] for name in Outputs._fields)), tensors.get("labels")

    def __repr__(self) -> str:
        return f"Outputs(N={self.N}, D={self.D}, K={self.K})"


def _guarded(position: int) -> property:
    """A field that is refused, with the reason, where the Outputs hold logits alone."""

    def read(outputs: Outputs) -> Tensor:
        if not outputs.has_features:
            raise wrong(
                "outputs",
                "made by a classifier, with features,",
                "one made from logits alone",
                "use shiftprism.adapt(model, example) to get them, or a score or calibrator that reads logits",
            )
        return outputs[position]

    return property(read, doc=f"Field {position} of Outputs.")


# Replaced after the class is made: a NamedTuple cannot declare a field and guard it at once, and a subclass of it would
# no longer be the plain named tuple that pytrees and torch.export know.
for _position, _name in enumerate(("features", "norms", "similarities")):
    setattr(Outputs, _name, _guarded(_position))
