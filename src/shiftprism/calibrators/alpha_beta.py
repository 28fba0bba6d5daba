"""α-β calibration: the paper's input-dependent scale, re-tuned on validation data with the network frozen."""

import math
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Report, fit_data, mean_nll
from shiftprism.calibrators._multiplier import OFF, Problem, Solution, fit_maps
from shiftprism.calibrators._schedule import schedule
from shiftprism.heads import multiplier
from shiftprism.outputs import Outputs

Inputs = Literal["logits", "features"]
Method = Literal["lbfgs", "sgd"]


class AlphaBeta(Calibrator):
    """m(x) · raw with m = c (1/α + β/(α |f|)), α = sigmoid(a·x + a₀), β = softplus(b·x + b₀) (Tian et al., eq. 9).

    x is the raw logits (`inputs="logits"`, K + 1 numbers each for α and β) or the features. m > 0 multiplies all logits
    of an input, so the class predicted keeps the largest one. The paper's form has c = 1 and can only sharpen (m > 1);
    a smaller c lets it soften too, as an over-confident vanilla network needs.

    >>> from shiftprism.heads import Linear
    >>> outputs = Linear(4, 3).outputs(torch.rand(100, 4))
    >>> fitted = AlphaBeta.fit(outputs, outputs.predictions)
    >>> fitted.report.nll_after < fitted.report.nll_before
    True
    """

    settings: ClassVar[tuple[str, ...]] = ("inputs",)
    weight: Tensor
    offset: Tensor
    scale: Tensor
    unchanged: Tensor

    def __init__(
        self,
        weight: Tensor,
        offset: Tensor,
        scale: float | Tensor = 1.0,
        inputs: Inputs = "logits",
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        """`weight` (2, P) and `offset` (2,) are the rows (a, b) and (a₀, b₀); `unchanged` is the identity."""
        super().__init__()
        choice("inputs", inputs, ("logits", "features"))
        if weight.ndim != 2 or len(weight) != 2 or offset.shape != (2,):
            got = f"shapes {tuple(weight.shape)} and {tuple(offset.shape)}"
            raise wrong("weight", "of shape (2, P), with an offset of shape (2,)", got, "row 0 is α's, row 1 is β's")
        _check_scale(float(scale))
        kept = torch.tensor(float(scale)), torch.tensor(bool(unchanged))
        self._hold(report, weight=weight, offset=offset, scale=kept[0], unchanged=kept[1])
        self.inputs = inputs

    @staticmethod
    def identity(size: int, inputs: Inputs = "logits", report: Report = UNFITTED) -> "AlphaBeta":
        """The one that gives the model's own logits back, for P = `size` inputs."""
        return AlphaBeta(torch.zeros(2, size), torch.tensor([-OFF, OFF]), 1.0, inputs, True, report)

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        inputs: Inputs = "logits",
        method: Method = "lbfgs",
        scale: float | None = None,
        seed: int = 0,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> "AlphaBeta":
        """Minimise the cross entropy over α and β. It needs |f|: bare `logits=` or `probabilities=` are refused.

        `method="lbfgs"` runs to a gap of 1e-9 from the best temperature, with a light ridge on the two linear
        maps, and keeps the temperature when α-β is not better on a held-out fifth of the data. `method="sgd"` is the
        paper's schedule to the letter: 20 epochs, batches of 128, rate 0.1 with cosine decay, momentum 0.9, decay 5e-4.
        `scale` is c; None takes 1 for "sgd" and min(1, 1/T*)/4 for "lbfgs", T* the best temperature of the raw logits.
        `seed` draws the initial maps and the order of batches ("sgd") and the held-out fifth ("lbfgs").
        """
        choice("inputs", inputs, ("logits", "features"))
        choice("method", method, ("lbfgs", "sgd"))
        _check_scale(scale)
        data = fit_data(outputs, labels, logits, probabilities)
        norms, features = data.outputs.norms.numpy(), data.outputs.features.numpy()
        problem = Problem(data.raw if inputs == "logits" else features, norms, data.raw, data.labels)
        solution = fit_maps(problem, scale, seed) if method == "lbfgs" else _scheduled(problem, scale, seed)
        before = mean_nll(data.logits, data.labels)
        report = Report(solution.converged, solution.iterations, before, math.inf, solution.note)
        weight, offset = torch.from_numpy(solution.weight), torch.from_numpy(solution.offset)
        fitted = cls(weight, offset, solution.scale, inputs, report=report)
        after = mean_nll(fitted(data.outputs).numpy(), data.labels)
        if not after <= before:
            note = "kept the model's own logits: the fit was worse"
            return cls.identity(problem.x.shape[1], inputs, report._replace(nll_after=before, note=note))
        fitted.report = report._replace(nll_after=after)
        return fitted

    def forward(self, outputs: Outputs) -> Tensor:
        x = outputs.raw if self.inputs == "logits" else outputs.features
        if x.shape[1] != self.weight.shape[1]:
            expected = f"with {self.weight.shape[1]} {self.inputs}"
            raise wrong("outputs", expected, f"{x.shape[1]}", "this calibrator was fitted to another model")
        a, b = F.linear(x, self.weight.to(x.dtype), self.offset.to(x.dtype)).unbind(1)
        m = self.scale.to(x.dtype) * multiplier(outputs.norms, torch.sigmoid(a), F.softplus(b))
        return torch.where(self.unchanged, outputs.logits, m[:, None] * outputs.raw)


def _check_scale(scale: float | None) -> None:
    if scale is not None and not 0 < scale <= 1:
        raise wrong("scale", "in (0, 1]", scale, "1 is the paper's form, None chooses from the data")


def _scheduled(problem: Problem, scale: float | None, seed: int) -> Solution:
    """The paper's schedule, from fresh linear maps."""
    c = 1.0 if scale is None else scale
    x, norms, raw = (torch.from_numpy(field).float() for field in problem[:3])
    labels = torch.from_numpy(problem.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        maps = nn.Linear(x.shape[1], 2)

        def loss(index: Tensor) -> Tensor:
            a, b = maps(x[index]).unbind(1)
            m = c * multiplier(norms[index], torch.sigmoid(a), F.softplus(b))
            return F.cross_entropy(m[:, None] * raw[index], labels[index])

        steps = schedule(maps, loss, len(x))
    weight, offset = (np.asarray(part.detach().double().numpy()) for part in (maps.weight, maps.bias))
    return Solution(weight, offset, c, True, steps, "a fixed schedule: convergence is not checked")
