"""Whether a fit is worth applying: candidates are compared on held-out folds, and the simpler one wins a draw."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, Integers

FOLDS = 5
_CLEAR = 2000
"""With at least this many samples the fit set itself may decide, where the gain is far beyond the optimism."""
_MARGIN = 3.0
"""How many times the optimism p/n the gain must be for that: p/n is too little where no parameters give the truth."""


_DECISIVE = 4.0
"""How many standard errors on some of the folds make the others needless."""
Fit = Callable[[Integers], Sequence[Callable[[Integers], Tensor]]]


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


def is_better(
    candidate: Losses, simpler: Losses, optimism: float = 0.0, errors: float = 1.0, *, likely: bool = False
) -> bool:
    """Whether the candidate's loss is lower by more than `optimism` and that many standard errors of the difference.

    One imagined mistake is added to the samples. A set of N right answers says that mistakes are rare, not that there
    are none (the rule of succession). Sharper logits look better on every one of these answers; they are not, if one
    mistake would cost more than all of them gain. The mistake is that of an average sample or, if `likely`, that of a
    sample drawn by the probability of its second choice, whichever costs more.
    """
    difference = candidate.label - simpler.label
    costs = candidate.mistake - simpler.mistake
    # never below 0: a softer candidate must show its gain on the samples, not on the imagined one
    mistake = max(0.0, float(costs.mean()))
    if likely:
        chances = np.exp(simpler.mistake.min() - simpler.mistake)
        mistake = max(mistake, float(np.average(costs, weights=chances)))
    difference = np.append(difference, mistake)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() + errors * error + optimism < 0)  # never true of NaN


def is_clear(candidate: Losses, simpler: Losses, parameters: int, *, likely: bool = False) -> bool:
    """Whether the losses on the fit set itself show the gain beyond doubt, so that folds would tell nothing new.

    A fit of p parameters to n samples looks better than it is by about p/n (Akaike 1974).
    """
    n = len(candidate.label)
    return n >= _CLEAR and is_better(candidate, simpler, _MARGIN * parameters / n, errors=2.0, likely=likely)


def stratified_folds(labels: Integers, seed: int = 0) -> Integers:
    """(N,): the fold of each sample. Each class is spread evenly; there are fewer than 5 folds for fewer samples."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[by_class] = np.arange(len(labels)) % min(FOLDS, len(labels))
    return folds


class HeldOut:
    """The logits of candidates on held-out folds, every row from fits to the other folds; one fold after another.

    `fit` takes the rows of a fit and gives its candidates, each a function from rows to logits, the preferred first. A
    fold may have fewer of them than the whole set, or more: they are matched from the last, the simplest. The model's
    own logits stand after them.
    """

    def __init__(self, fit: Fit, labels: Tensor, own: Tensor, count: int) -> None:
        """`labels` (N,) and the model's `own` logits (N, K)."""
        self._fit, self._folds, self._done = fit, stratified_folds(labels.numpy()), 0
        self._labels, self._second = labels, second_choices(own)
        self._logits = [*(torch.empty_like(own) for _ in range(count)), own]

    @property
    def rows(self) -> Tensor:
        """Those that were held out so far."""
        return torch.from_numpy(np.flatnonzero(self._folds < self._done))

    def logits(self, number: int) -> Tensor:
        """Of a candidate on these rows."""
        return self._logits[number][self.rows]

    def losses(self, number: int) -> Losses:
        """Of a candidate on these rows."""
        return sample_losses(self.logits(number), self._labels[self.rows], self._second[self.rows])

    def compare(self, candidate: int, simpler: int, errors: float, likely: bool) -> tuple[bool, Losses, Losses]:
        """Whether the candidate is better than a simpler one, and the losses of both.

        Of many samples a fold may show it beyond doubt, either way; then the folds that are left are not fitted.
        """
        while True:
            if not self._done:
                self._extend()
            ours, theirs = self.losses(candidate), self.losses(simpler)
            if self._done > self._folds.max():
                return is_better(ours, theirs, errors=errors, likely=likely), ours, theirs
            if len(self._folds) >= _CLEAR:
                if is_better(ours, theirs, errors=_DECISIVE, likely=likely):
                    return True, ours, theirs
                if is_better(theirs, ours, errors=_DECISIVE):
                    return False, ours, theirs
            self._extend()

    def _extend(self) -> None:
        held_out = np.flatnonzero(self._folds == self._done)
        candidates = self._fit(np.flatnonzero(self._folds != self._done))
        count = len(self._logits) - 1
        for place, result in enumerate(self._logits[:-1]):
            match = candidates[-min(count - place, len(candidates))]
            result[torch.from_numpy(held_out)] = match(held_out)
        self._done += 1
