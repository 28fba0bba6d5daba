"""What every score does first: take its fields from an Outputs and refuse what cannot be scored."""

import torch
from torch import Tensor

from shiftprism._checks import finite, wrong
from shiftprism.outputs import Outputs


def read(outputs: Outputs, *names: str) -> tuple[Tensor, ...]:
    """The named fields, checked to be non-empty and finite (not while tracing, where values are unknown)."""
    if not isinstance(outputs, Outputs):
        raise wrong("outputs", "an Outputs", type(outputs).__name__, "make one with classifier.outputs(images)")
    fields = tuple(getattr(outputs, name) for name in names)
    if torch.compiler.is_compiling():
        return fields
    if outputs.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "score at least one input")
    return tuple(finite(f"outputs.{name}", field) for name, field in zip(names, fields, strict=True))
