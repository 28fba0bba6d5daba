"""Several models on the same inputs: their mean, and how much of the uncertainty is their disagreement.

With p_m the probabilities of member m, p̄ their mean and H the Shannon entropy in nats, the uncertainty is a sum of two:
H(p̄) = mean_m H(p_m) + mutual information. All three are *uncertainties*, higher = less certain, as their names say;
their negatives are scores (higher = more in-distribution).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shiftprism._checks import finite, wrong
from shiftprism.outputs import Outputs


def average(members: Sequence[Outputs]) -> Outputs:
    """One Outputs whose softmax is the mean of the members' probabilities, in the order of their rows (deep ensembles).

    Its logits are ln p̄, which log-softmax does not change; so every score and calibrator that reads logits takes them.
    Features of different models have no common axes and are not averaged: it has logits alone.

    >>> sure = Outputs.from_logits(torch.tensor([[0.0, -200.0]]))
    >>> other = Outputs.from_logits(torch.tensor([[-200.0, 0.0]]))
    >>> average([sure, other]).logits.exp()
    tensor([[0.5000, 0.5000]])
    """
    return Outputs.from_logits(_mean(_log_probabilities(members)))


def predictive_entropy(members: Sequence[Outputs]) -> Tensor:
    """H(p̄), (N,), from 0 to ln K: the whole uncertainty. The score `entropy` of `average(members)` is its −ln."""
    return _entropy(_mean(_log_probabilities(members)))


def expected_entropy(members: Sequence[Outputs]) -> Tensor:
    """mean_m H(p_m), (N,), from 0 to ln K: what the members share, which further members would not remove."""
    return _entropy(_log_probabilities(members)).mean(0)


def mutual_information(members: Sequence[Outputs]) -> Tensor:
    """H(p̄) − mean_m H(p_m), (N,), from 0 to ln min(K, M): the members' disagreement.

    Computed as mean_m KL(p_m ‖ p̄): the same number, without the difference of two nearly equal ones.

    >>> member = Outputs.from_logits(torch.zeros(1, 2))
    >>> mutual_information([member, member])
    tensor([0.])
    """
    each = _log_probabilities(members)
    return (each.exp() * (each - _mean(each))).sum(-1).mean(0).clamp_min(0)


def _log_probabilities(members: Sequence[Outputs]) -> Tensor:
    """ln p_m, (M, N, K), of members that agree in inputs and classes."""
    members = list(members)
    if not members or not all(isinstance(member, Outputs) for member in members):
        got = "none" if not members else ", ".join(sorted({type(member).__name__ for member in members}))
        raise wrong("members", "the Outputs of one model or more", got, "pass [predict(model, images)[0], …]")
    shapes = [tuple(member.logits.shape) for member in members]
    if len(set(shapes)) > 1 or 0 in shapes[0]:
        got = "logits of shapes " + ", ".join(map(str, shapes))
        raise wrong("members", "of the same inputs and classes", got, "predict the same images with every model")
    if not torch.compiler.is_compiling():
        for member in members:
            finite("members", member.logits)
    each = torch.log_softmax(torch.stack([member.logits for member in members]), -1)
    return each.clamp_min(torch.finfo(each.dtype).min / 2)  # so that 0 · ln 0 and differences of two are numbers


def _mean(each: Tensor) -> Tensor:
    return torch.logsumexp(each, 0) - math.log(len(each))


def _entropy(log_probabilities: Tensor) -> Tensor:
    return -(log_probabilities.exp() * log_probabilities).sum(-1)
