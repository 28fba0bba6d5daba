"""The paper's scores, read from the feature path alone: neither α, β nor any calibration can change them."""

import math

import torch
from torch import Tensor

from shiftprism.outputs import Outputs, read_fields


def g(outputs: Outputs) -> Tensor:
    """The covariate score |f|, (N,): shift of style (noise, blur, weather) lowers it (Tian et al., eq. 5).

    >>> from shiftprism.heads import Linear
    >>> g(Linear(2, 3).outputs(torch.tensor([[3.0, 4.0]])))
    tensor([5.])
    """
    (norms,) = read_fields(outputs, "norms")
    return norms


def h(outputs: Outputs) -> Tensor:
    """The concept score max_k s_k − mean_k s_k, (N,): unseen classes lower it (Tian et al., eq. 5)."""
    (similarities,) = read_fields(outputs, "similarities")
    return similarities.amax(1) - similarities.mean(1)


def u(outputs: Outputs) -> Tensor:
    """The combined score U = g·h = max_k l_k − mean_k l_k with l = |f| s, (N,) (Tian et al., eq. 4 and 5).

    It bounds `kl_uniform` on both sides: U − ln K ≤ KL(Uniform ‖ softmax(l)) ≤ U.
    """
    return g(outputs) * h(outputs)


def kl_uniform(outputs: Outputs) -> Tensor:
    """KL(Uniform ‖ softmax(l)) = ln Σ_k exp l_k − mean_k l_k − ln K with l = |f| s, (N,) (Tian et al., eq. 2)."""
    norms, similarities = read_fields(outputs, "norms", "similarities")
    plain = norms[:, None] * similarities
    top = plain.amax(1, keepdim=True)
    # Less the largest one, so that huge logits do not cancel each other's digits; never below 0 by rounding.
    below = plain - top
    return (torch.logsumexp(below, 1) - below.mean(1) - math.log(outputs.K)).clamp_min(0)


def max_similarity(outputs: Outputs) -> Tensor:
    """max_k s_k, (N,): the largest cosine for a head whose class weights have length 1."""
    (similarities,) = read_fields(outputs, "similarities")
    return similarities.amax(1)
