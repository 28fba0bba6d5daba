"""The class weights of a head, for the scores and edits that work with W itself."""

from typing import Any

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs


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
    """Refuse a head whose W f + b is not `outputs.raw`."""
    some = Outputs(*(field.detach() for field in outputs.rows(slice(0, 64))))  # a few rows are enough to see it
    weight, bias = class_weights(head, outputs.D, some.features)
    expected = some.features @ weight.T + bias
    # the outputs may have been computed in lower precision, or on another device
    tolerance = float(1e-3 * expected.abs().max())
    if expected.shape != some.raw.shape or not torch.allclose(some.raw, expected, rtol=1e-3, atol=tolerance):
        got = f"a {type(head).__name__} whose W f + b is not `outputs.raw`"
        advice = "it takes a linear head (vanilla, alpha, beta, alpha-beta, gsd, inner, logit-norm, t2f-norm) "
        advice += "and its own Outputs"
        raise wrong("head", "the one these Outputs came from", got, advice)
