"""The classical baselines: the confidence of the class predicted is replaced, the others share the rest as before."""

from abc import ABC

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, FitData, Report, fit_data, mean_nll
from shiftprism.calibrators.temperature import separable
from shiftprism.outputs import Outputs


class TopLabel(Calibrator, ABC):
    """A step function of the confidence c: log-probabilities with p_top = values[b] where edges[b − 1] < c ≤ edges[b].

    The other classes keep their odds among themselves. Where p_top falls below one of them, the prediction changes.
    """

    keeps_predictions = False
    edges: Tensor
    values: Tensor
    unchanged: Tensor

    def __init__(
        self, edges: Tensor, values: Tensor, unchanged: bool | Tensor = False, report: Report = UNFITTED
    ) -> None:
        """`edges` (B − 1,) rising, `values` (B,) in (0, 1); `unchanged` gives the model's own logits as they are."""
        super().__init__()
        if edges.ndim != 1 or values.shape != (len(edges) + 1,) or bool((edges.diff() < 0).any()):
            got = f"shapes {tuple(edges.shape)} and {tuple(values.shape)}"
            raise wrong("edges", "of shape (B − 1,), rising, with values (B,)", got, "one value for each bin")
        if not bool(((values > 0) & (values < 1)).all()):
            raise wrong("values", "between 0 and 1", "others", "a confidence of 0 or 1 has an infinite loss")
        self._hold(report, edges=edges, values=values, unchanged=torch.tensor(bool(unchanged)))

    def forward(self, outputs: Outputs) -> Tensor:
        logp = torch.log_softmax(outputs.logits, 1)
        confidence, top = logp.max(1, keepdim=True)
        place = (confidence.exp() > self.edges.to(logp.dtype)).sum(1)
        value = self.values.to(logp.dtype)[place][:, None]
        rest = torch.logsumexp(logp.scatter(1, top, -torch.inf), 1, keepdim=True).clamp_min(-1e4)
        changed = (logp - rest + torch.log1p(-value)).scatter(1, top, value.log())
        return torch.where(self.unchanged, outputs.logits, changed)


class Isotonic(TopLabel):
    """Isotonic regression of "the prediction is right" on the confidence (Zadrozny & Elkan 2002), by adjacent pooling.

    Of all rising functions it has the least NLL on the fit set. Values stay 1/(N + 2) away from 0 and 1.

    >>> outputs = Outputs.from_logits(torch.randn(200, 3) * 5)
    >>> Isotonic.fit(outputs, torch.arange(200) % 3).report.converged
    True
    """

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> "Isotonic":
        """The best rising step function of the confidence."""
        from scipy.optimize import isotonic_regression

        data = fit_data(outputs, labels, logits, probabilities)
        confidence, right = _confidence(data)
        points, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
        found = isotonic_regression(np.bincount(place, right) / counts, weights=counts)
        begins = np.asarray(found.blocks)[1:-1]
        edges = (points[begins - 1] + points[begins]) / 2
        values = np.asarray(found.x)[np.asarray(found.blocks)[:-1]]
        tensors = _bounded(edges, values, len(right))
        fitted = cls(*tensors, report=_report(data))
        after = mean_nll(fitted(data.outputs).numpy(), data.labels)
        return cls(*tensors, *_judged(fitted.report, after))


class Histogram(TopLabel):
    """Histogram binning (Zadrozny & Elkan 2001): the share of right predictions in bins of equal count.

    >>> outputs = Outputs.from_logits(torch.randn(200, 3) * 5)
    >>> Histogram.fit(outputs, torch.arange(200) % 3).values.shape
    torch.Size([15])
    """

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        bins: int = 15,
    ) -> "Histogram":
        """`bins` of equal count; fewer where confidences are equal."""
        if bins < 1:
            raise wrong("bins", "at least 1", bins, "15 is usual")
        data = fit_data(outputs, labels, logits, probabilities)
        confidence, right = _confidence(data)
        edges = np.unique(np.quantile(confidence, np.arange(1, bins) / bins))
        edges = edges[edges < confidence.max()]
        place = np.searchsorted(edges, confidence, "left")
        counts = np.bincount(place, minlength=len(edges) + 1)
        tensors = _bounded(edges, np.bincount(place, right, len(edges) + 1) / np.maximum(counts, 1), len(right))
        fitted = cls(*tensors, report=_report(data))
        after = mean_nll(fitted(data.outputs).numpy(), data.labels)
        return cls(*tensors, *_judged(fitted.report, after))


def _confidence(data: FitData) -> tuple[Floats, Floats]:
    confidence, predicted = torch.softmax(data.outputs.logits, 1).max(1)
    return confidence.numpy(), (predicted.numpy() == data.labels).astype(np.float64)


def _bounded(edges: Floats, values: Floats, samples: int) -> tuple[Tensor, Tensor]:
    margin = 1 / (samples + 2)
    return torch.from_numpy(edges), torch.from_numpy(np.clip(values, margin, 1 - margin))


def _report(data: FitData) -> Report:
    before = mean_nll(data.logits, data.labels)
    right = separable(data.logits, data.labels)
    note = "every prediction was right: no surer than that many right answers allow" if right else ""
    return Report(True, 1, before, before, note)


def _judged(report: Report, after: float) -> tuple[bool, Report]:
    """Whether the model's own logits are kept, and the report."""
    if after <= report.nll_before:
        return False, report._replace(nll_after=after)
    return True, report._replace(note="kept the model's own logits: the bins were worse")
