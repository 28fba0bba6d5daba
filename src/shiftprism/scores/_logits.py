"""Scores that read the logits the model predicts with: calibration changes their values."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.heads import DUQ
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import finite_scores, widen


def msp(outputs: Outputs) -> Tensor:
    """ln p/(1 − p), (N,), the log-odds of the largest softmax probability p (Hendrycks & Gimpel 2017).

    They have the order of p, which itself rounds to 1 in float32 from log-odds of 17 on; `torch.sigmoid` gives p back.

    >>> torch.sigmoid(msp(Outputs.from_logits(torch.zeros(1, 4))))
    tensor([0.2500])
    """
    (logits,) = read_fields(outputs, "logits")
    return finite_scores(-_log_rest(_below_top(logits)), outputs)


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
    """−ln H, (N,), with Shannon's entropy H = −Σ_k p_k ln p_k of the softmax: higher is in-distribution.

    The logarithm has the order of −H, and tells inputs apart whose entropy underflows to 0.

    >>> entropy(Outputs.from_logits(torch.tensor([[300.0, 0.0], [200.0, 0.0]])))
    tensor([294.2929, 194.6967])
    """
    (logits,) = read_fields(outputs, "logits")
    below = _below_top(logits)
    rest = _log_rest(below)
    # With d_k = l_k − max l, H = ln Σ_k exp d_k − Σ_k p_k d_k. No term is negative, so they add up as logarithms.
    limits = torch.finfo(below.dtype)
    sizes = torch.where(below < 0, below + (-below).clamp_min(limits.tiny).log(), limits.min)
    others = torch.logsumexp(sizes, 1) - F.softplus(rest)
    return finite_scores(-torch.logaddexp(_log_softplus(rest), others), outputs)


def gen(outputs: Outputs, gamma: float = 0.1, top: int = 100) -> Tensor:
    """−ln Σ p_k^γ (1 − p_k)^γ over the `top` largest probabilities, (N,): a generalised entropy (Liu et al. 2023, GEN).

    The logarithm has the order of the published −Σ, and tells inputs apart where all terms underflow to 0.
    """
    if not 0 < gamma < 1:
        raise wrong("gamma", "between 0 and 1", gamma, "0.1 is its authors' choice")
    if top < 1:
        raise wrong("top", "a positive whole number", top, "100 is its authors' choice")
    (logits,) = read_fields(outputs, "logits")
    below, rest = _below_top(logits), _log_rest(_below_top(logits))[:, None]
    log_p = below - F.softplus(rest)
    # 1 − p of the largest is the sum of the others: near p = 1 the difference would lose its digits
    log_complements = torch.where(_is_top(logits), rest - F.softplus(rest), torch.log1p(-log_p.exp().clamp_max(0.5)))
    terms = gamma * (log_p + log_complements)
    chosen = terms if top >= outputs.K else terms.gather(1, below.topk(top).indices)
    return finite_scores(-torch.logsumexp(chosen, 1), outputs)


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


def _is_top(logits: Tensor) -> Tensor:
    """(N, K): where the largest logit is; of several, the first."""
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.argmax(1, keepdim=True), True)


def _below_top(logits: Tensor) -> Tensor:
    """d_k = l_k − max l in at least float32, (N, K)."""
    logits = widen(logits)
    return logits - logits.amax(1, keepdim=True)


def _log_rest(below: Tensor) -> Tensor:
    """ln Σ_{k≠ŷ} exp d_k, (N,): the log-odds of any other class; the lowest number where there is none."""
    # not −∞, of which logsumexp has no gradient
    return torch.logsumexp(below.masked_fill(_is_top(below), torch.finfo(below.dtype).min), 1)


def _log_softplus(values: Tensor) -> Tensor:
    """ln ln(1 + exp x), which is x where exp x is as good as nothing."""
    return torch.where(values < -40, values, F.softplus(values.clamp_min(-40)).log())
