"""Whether a fit is worth applying: candidates are compared on held-out folds, and the simpler one wins a draw."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, Integers

FOLDS = 5
_CLEAR = 2000
"""With at least this many samples the fit set itself may decide, where the gain is far beyond the optimism."""
_MARGIN = 3.0
"""How many times the optimism p/n the gain must be for that: p/n is too little where no parameters give the truth."""


class Losses(NamedTuple):
    """What logits cost on each sample (N,): with its label, and if the label were the model's second choice."""

    label: Floats
    mistake: Floats

    @property
    def mean(self) -> float:
        """The NLL."""
        return float(self.label.mean())


def sample_losses(logits: Tensor, labels: Tensor, second: Tensor) -> Losses:
    """The losses of logits (N, K) for labels (N,) and second choices (N,)."""
    total = torch.logsumexp(logits, 1)
    return Losses(*((total - logits.gather(1, y[:, None]).squeeze(1)).numpy() for y in (labels, second)))


def second_choices(logits: Tensor) -> Tensor:
    """(N,): the class of the second largest logit."""
    return torch.topk(logits, min(2, logits.shape[1]), 1).indices[:, -1]


def is_better(candidate: Losses, simpler: Losses, optimism: float = 0.0, errors: float = 1.0) -> bool:
    """Whether the candidate's loss is lower by more than `optimism` and that many standard errors of the difference.

    One imagined mistake is added to the samples. A set of N right answers says that mistakes are rare, not that there
    are none (the rule of succession). Sharper logits look better on every one of these answers; they are not, if one
    mistake would cost more than all of them gain.
    """
    difference = candidate.label - simpler.label
    # never below 0: a softer candidate must show its gain on the samples, not on the imagined one
    mistake = max(0.0, float((candidate.mistake - simpler.mistake).mean()))
    difference = np.append(difference, mistake)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() + errors * error + optimism < 0)  # never true of NaN


def is_clear(candidate: Losses, simpler: Losses, parameters: int) -> bool:
    """Whether the losses on the fit set itself show the gain beyond doubt, so that folds would tell nothing new.

    A fit of p parameters to n samples looks better than it is by about p/n (Akaike 1974).
    """
    n = len(candidate.label)
    return n >= _CLEAR and is_better(candidate, simpler, _MARGIN * parameters / n, errors=2.0)


def stratified_folds(labels: Integers, seed: int = 0) -> Integers:
    """(N,): the fold of each sample. Each class is spread evenly; there are fewer than 5 folds for fewer samples."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[by_class] = np.arange(len(labels)) % min(FOLDS, len(labels))
    return folds


def held_out_logits(
    fit: Callable[[Integers], Sequence[Callable[[Integers], Tensor]]], labels: Integers, count: int, like: Tensor
) -> list[Tensor]:
    """The logits (N, K) of each of `count` candidates, every row from a fit to the other folds.

    `fit` takes the rows of a fit and gives its candidates, each a function from rows to logits, the preferred first. A
    fold may have fewer of them than the whole set, or more: they are matched from the last, the simplest.
    """
    folds = stratified_folds(labels)
    results = [torch.empty_like(like) for _ in range(count)]
    for number in range(int(folds.max()) + 1):
        held_out = np.flatnonzero(folds == number)
        candidates = fit(np.flatnonzero(folds != number))
        for place, result in enumerate(results):
            match: Any = candidates[-min(count - place, len(candidates))]
            result[torch.from_numpy(held_out)] = match(held_out)
    return results
