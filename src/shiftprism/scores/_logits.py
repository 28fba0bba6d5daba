"""Scores that read the logits the model predicts with: calibration changes their values."""

from typing import Any

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.heads import DUQ
from shiftprism.outputs import Outputs, read_fields


def msp(outputs: Outputs) -> Tensor:
    """The largest softmax probability, (N,) (Hendrycks & Gimpel 2017).

    >>> msp(Outputs.from_logits(torch.zeros(1, 4)))
    tensor([0.2500])
    """
    (logits,) = read_fields(outputs, "logits")
    return torch.softmax(logits, 1).amax(1)


def max_logit(outputs: Outputs) -> Tensor:
    """The largest logit, (N,) (Hendrycks et al. 2022)."""
    (logits,) = read_fields(outputs, "logits")
    return logits.amax(1)


def energy(outputs: Outputs, temperature: float = 1.0) -> Tensor:
    """T ln Σ_k exp(l_k / T), (N,): the negative free energy, so that higher is in-distribution (Liu et al. 2020)."""
    if not temperature > 0:
        raise wrong("temperature", "positive", temperature, "1.0 is the usual choice")
    (logits,) = read_fields(outputs, "logits")
    return temperature * torch.logsumexp(logits / temperature, 1)


def entropy(outputs: Outputs) -> Tensor:
    """Σ_k p_k ln p_k, (N,): the *negative* Shannon entropy of the softmax, so that higher is in-distribution."""
    (logits,) = read_fields(outputs, "logits")
    log_probabilities = torch.log_softmax(logits, 1)
    # p ln p is 0 at p = 0, where ln p may be −∞ and the product NaN
    return (log_probabilities.exp() * log_probabilities.clamp_min(torch.finfo(logits.dtype).min)).sum(1)


def gen(outputs: Outputs, gamma: float = 0.1, top: int = 100) -> Tensor:
    """−Σ p_k^γ (1 − p_k)^γ over the `top` largest probabilities, (N,): a generalised entropy (Liu et al. 2023, GEN)."""
    if not 0 < gamma < 1:
        raise wrong("gamma", "between 0 and 1", gamma, "0.1 is its authors' choice")
    if top < 1:
        raise wrong("top", "a positive whole number", top, "100 is its authors' choice")
    (logits,) = read_fields(outputs, "logits")
    log_p = torch.log_softmax(logits, 1)
    p = log_p.exp()
    # Near p = 1 the difference 1 − p loses its digits in float32; the sum of the other probabilities keeps them.
    largest = torch.zeros_like(p).scatter(1, p.argmax(1, keepdim=True), 1).bool()
    rest = torch.where(largest, p.masked_fill(largest, 0).sum(1, keepdim=True), 1 - p)
    terms = (gamma * log_p).exp() * rest**gamma
    return -(terms if top >= outputs.K else terms.gather(1, p.topk(top).indices)).sum(1)


def kernel(outputs: Outputs, head: Any) -> Tensor:
    """max_k ln K_k of a DUQ head, (N,): how near the nearest centroid is (van Amersfoort et al. 2020).

    >>> from shiftprism.heads import Linear
    >>> kernel(Outputs.from_logits(torch.zeros(1, 3)), Linear(2, 3))
    Traceback (most recent call last):
    ...
    ValueError: Expected `head` to be one with kernels (duq) but got Linear; train with --head duq, or take max_logit.
    """
    if not isinstance(head, DUQ):
        raise wrong("head", "one with kernels (duq)", type(head).__name__, "train with --head duq, or take max_logit")
    return max_logit(outputs)
