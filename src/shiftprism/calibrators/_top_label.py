"""The classical baselines: the confidence of the predicted class is replaced, the other classes share the rest."""

from abc import ABC

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.outputs import Outputs


class TopLabel(Calibrator, ABC):
    """A step function of the confidence c: log-probabilities with p_top = values[b] where edges[b − 1] < c ≤ edges[b].

    The other classes keep their odds among themselves. Where p_top falls below one of them, the prediction changes.
    """

    # Nothing holds a step to the model's own confidence: a bin of few samples, all of them right, becomes sure in most
    # folds at once, and one standard error does not show it.
    errors_to_beat = 2.0
    flattens = True
    edges: Tensor
    values: Tensor

    def __init__(
        self, edges: Tensor, values: Tensor, *, unchanged: bool | Tensor = False, report: Report = UNFITTED
    ) -> None:
        """`edges` (B − 1,) rising, `values` (B,) in (0, 1)."""
        if edges.ndim != 1 or values.shape != (len(edges) + 1,) or bool((edges.diff() < 0).any()):
            got = f"shapes {tuple(edges.shape)} and {tuple(values.shape)}"
            raise wrong("edges", "of shape (B − 1,), rising, with values (B,)", got, "one value for each bin")
        if not bool(((values > 0) & (values < 1)).all()):
            raise wrong("values", "between 0 and 1", "others", "a confidence of 0 or 1 has an infinite loss")
        super().__init__(report, unchanged, edges=edges, values=values)

    @classmethod
    def _candidate(cls, data: FitData, edges: Floats, values: Floats) -> Candidate:
        """Values stay 1/(N + 2) away from 0 and 1: what N answers allow by the rule of succession."""
        margin = 1 / (len(data.labels) + 2)
        fitted = cls(torch.from_numpy(edges), torch.from_numpy(np.clip(values, margin, 1 - margin)))
        note = "every prediction was right: no surer than that many right answers allow"
        return Candidate(fitted, True, 1, note if data.loss.all_right else "")

    def _calibrate(self, outputs: Outputs) -> Tensor:
        logp = torch.log_softmax(outputs.logits, 1)
        confidence, top = logp.max(1, keepdim=True)
        place = (confidence.exp() > self.edges.to(logp.dtype)).sum(1)
        value = self.values.to(logp.dtype)[place][:, None]
        # clamped: where the confidence is 1, the others have a probability of 0 to share
        rest = torch.logsumexp(logp.scatter(1, top, -torch.inf), 1, keepdim=True).clamp_min(-1e4)
        return (logp - rest + torch.log1p(-value)).scatter(1, top, value.log())


class Isotonic(TopLabel):
    """Top confidence by a rising step function, fitted by isotonic regression (Zadrozny & Elkan 2002).

    It regresses "the prediction is right" on the confidence by pooling adjacent violators: of all rising functions the
    one of the least NLL on the fit set. Values stay 1/(N + 2) away from 0 and 1.

    >>> outputs = Outputs.from_logits(torch.randn(200, 3) * 5)
    >>> Isotonic.fit(outputs, torch.arange(200) % 3).report.converged
    True
    """

    probabilities_suffice = True

    @classmethod
    def _fit(cls, data: FitData) -> list[Candidate]:
        from scipy.optimize import isotonic_regression

        confidence, right = _confidence(data)
        points, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
        found = isotonic_regression(np.bincount(place, right) / counts, weights=counts)
        blocks = np.asarray(found.blocks)  # where each step begins, and the end
        # A step lies half-way between two confidences, so that rounding it to float32 rarely moves a sample across.
        edges = (points[blocks[1:-1] - 1] + points[blocks[1:-1]]) / 2
        return [cls._candidate(data, edges, np.asarray(found.x)[blocks[:-1]])]


class Histogram(TopLabel):
    """Top confidence by bins of equal count: the share of right predictions in each (Zadrozny & Elkan 2001).

    `fit` makes `bins=15` of them; fewer where samples are few or their confidences equal.

    >>> outputs = Outputs.from_logits(torch.randn(200, 3) * 5)
    >>> Histogram.fit(outputs, torch.arange(200) % 3).values.shape
    torch.Size([15])
    """

    @classmethod
    def _fit(cls, data: FitData, *, bins: int = 15) -> list[Candidate]:
        if bins < 1:
            raise wrong("bins", "at least 1", bins, "15 is usual")
        confidence, right = _confidence(data)
        quantiles = np.quantile(confidence, np.arange(1, bins) / bins)
        # Ties or few samples can put two quantiles between the same two samples, and the last one at the maximum:
        # either would leave a bin empty.
        below, first = np.unique(np.searchsorted(np.sort(confidence), quantiles, "right"), return_index=True)
        edges = quantiles[first[below < len(confidence)]]
        place = np.searchsorted(edges, confidence, "left")
        shares = np.bincount(place, right) / np.bincount(place)
        return [cls._candidate(data, edges, shares)]


def _confidence(data: FitData) -> tuple[Floats, Floats]:
    """(N,): the largest probability, and 1 where its class is right, else 0."""
    confidence, predicted = torch.softmax(data.outputs.logits, 1).max(1)
    return confidence.numpy(), (predicted.numpy() == data.labels).astype(np.float64)
