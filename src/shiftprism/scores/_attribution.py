"""Which kind of shift an input shows: covariate or concept, from p-values."""

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.verdicts import KINDS as KINDS


def attribute(p_combined: Tensor, p_covariate: Tensor, false_alarm: float = 0.05) -> Tensor:
    """(N,): the places in `KINDS`. An alarm where p_combined ≤ `false_alarm`; covariate where p_covariate is too.

    p_combined ranks a score of both kinds of shift, such as `Spectrum`, and p_covariate ranks `Style`. Both need held-
    out ID data that neither was fitted to. The evidence of style decides: it is silent on unseen classes, while a
    concept score falls under covariate shift as well. An alarm without such evidence is put down to concept. There is
    no "both": one image with a strong covariate shift looks the same.

    >>> kinds = attribute(torch.tensor([0.5, 0.01, 0.01]), torch.tensor([0.02, 0.02, 0.7]))
    >>> [KINDS[kind] for kind in kinds]
    ['in-distribution', 'covariate', 'concept']
    """
    if not 0 < false_alarm < 1:
        raise wrong("false_alarm", "between 0 and 1", false_alarm, "0.05 is usual")
    if p_combined.shape != p_covariate.shape:
        got = f"shapes {tuple(p_combined.shape)} and {tuple(p_covariate.shape)}"
        raise wrong("p_covariate", "of the shape of p_combined", got, "pass one p-value for each input")
    alarm, covariate = p_combined <= false_alarm, p_covariate <= false_alarm
    return torch.where(alarm, torch.where(covariate, 1, 2), 0)


def which_way(p_covariate: Tensor, p_concept: Tensor) -> Tensor:
    """ln p_covariate − ln p_concept, (N,): low for covariate shift, high for unseen classes.

    >>> which_way(torch.tensor([0.01, 0.5]), torch.tensor([0.1, 0.1]))
    tensor([-2.3026,  1.6094])
    """
    return p_covariate.log() - p_concept.log()
