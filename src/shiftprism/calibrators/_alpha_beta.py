"""α-β calibration: the paper's input-dependent scale, tuned again on validation data with the network frozen."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism.calibrators._alpha_beta_maps import OFF, Problem, constant_maps, fit_maps
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._paper_schedule import NOTE, train_linear
from shiftprism.heads import multiplier
from shiftprism.outputs import Outputs

Inputs = Literal["logits", "features"]
Method = Literal["lbfgs", "sgd"]


class AlphaBeta(Calibrator):
    """c (1/α + β/(α|f|)) · raw, with α and β functions of the input (Tian et al., eq. 9).

    α = sigmoid(a·x + a₀), β = softplus(b·x + b₀), where x is the raw logits or the features. The paper's form has c = 1
    and can only sharpen; a smaller c lets it soften too, as an over-confident vanilla network needs. Options of `fit`:
    - `inputs="logits"` or `"features"` is x;
    - `method="lbfgs"` runs from the best temperature to a gap of 1e-9, with a light ridge on the two linear maps, and
      keeps the temperature when α-β is not better on a held-out fifth of the data. `method="sgd"` is the paper's
      schedule: 20 epochs, batches of 128, rate 0.1 with cosine decay, momentum 0.9, decay 5e-4;
    - `scale` is c; None takes 1 for "sgd" and min(1, 1/T*)/4 for "lbfgs", T* the best temperature of the raw logits;
    - `seed` draws the held-out fifth ("lbfgs"), or the initial maps and the order of batches ("sgd").

    >>> from shiftprism.heads import Linear
    >>> outputs = Linear(4, 3).outputs(torch.rand(100, 4))
    >>> fitted = AlphaBeta.fit(outputs, outputs.predictions)
    >>> fitted.report.nll_after <= fitted.report.nll_before
    True
    """

    keeps_predictions = includes_temperature = needs_norms = True
    settings: ClassVar[tuple[str, ...]] = ("inputs",)
    weight: Tensor
    offset: Tensor
    scale: Tensor

    def __init__(
        self,
        weight: Tensor,
        offset: Tensor,
        scale: float | Tensor = 1.0,
        inputs: Inputs = "logits",
        *,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        """`weight` (2, P) and `offset` (2,) are the rows (a, b) and (a₀, b₀)."""
        choice("inputs", inputs, ("logits", "features"))
        if weight.ndim != 2 or len(weight) != 2 or offset.shape != (2,):
            got = f"shapes {tuple(weight.shape)} and {tuple(offset.shape)}"
            raise wrong("weight", "of shape (2, P), with an offset of shape (2,)", got, "row 0 is α's, row 1 is β's")
        _check_scale(float(scale))
        super().__init__(report, unchanged, weight=weight, offset=offset, scale=float(scale))
        self.inputs = inputs

    @staticmethod
    def identity(size: int, inputs: Inputs = "logits") -> "AlphaBeta":
        """The one that gives the model's own logits back, for P = `size` inputs."""
        return AlphaBeta(torch.zeros(2, size), torch.tensor([-OFF, OFF]), 1.0, inputs, unchanged=True)

    @classmethod
    def _fit(
        cls,
        data: FitData,
        *,
        inputs: Inputs = "logits",
        method: Method = "lbfgs",
        scale: float | None = None,
        seed: int = 0,
    ) -> list[Candidate]:
        choice("inputs", inputs, ("logits", "features"))
        choice("method", method, ("lbfgs", "sgd"))
        _check_scale(scale)
        norms, features = data.outputs.norms.numpy(), data.outputs.features.numpy()
        problem = Problem(data.raw if inputs == "logits" else features, norms, data.raw, data.labels)
        if method == "sgd":
            return [cls._follow_paper(problem, 1.0 if scale is None else scale, inputs, seed)]
        maps, constant = fit_maps(problem, scale, seed), constant_maps(problem, scale)
        fitted, scaled = (
            cls(torch.from_numpy(each.weight), torch.from_numpy(each.offset), each.scale, inputs)
            for each in (maps, constant)
        )
        if reason := maps.kept_temperature:
            return [Candidate(scaled, maps.converged, maps.iterations, reason, "temperature")]
        fall_back = Candidate(scaled, constant.converged, maps.iterations, "the fit was no better", "temperature")
        return [Candidate(fitted, maps.converged, maps.iterations), fall_back]

    @classmethod
    def _follow_paper(cls, problem: Problem, scale: float, inputs: Inputs, seed: int) -> Candidate:
        """The paper's schedule, from fresh linear maps."""
        x, norms, raw = (torch.from_numpy(field).float() for field in problem[:3])
        labels = torch.from_numpy(problem.labels)

        def loss(maps: nn.Linear, index: Tensor) -> Tensor:
            a, b = maps(x[index]).unbind(1)
            m = scale * multiplier(norms[index], torch.sigmoid(a), F.softplus(b))
            return F.cross_entropy(m[:, None] * raw[index], labels[index])

        weight, offset, steps = train_linear((x.shape[1], 2), loss, len(x), seed=seed)
        fitted = cls(torch.from_numpy(weight), torch.from_numpy(offset), scale, inputs)
        return Candidate(fitted, True, steps, NOTE)

    def _calibrate(self, outputs: Outputs) -> Tensor:
        x = outputs.raw if self.inputs == "logits" else outputs.features
        if x.shape[1] != self.weight.shape[1]:
            expected = f"with {self.weight.shape[1]} {self.inputs}"
            raise wrong("outputs", expected, f"{x.shape[1]}", "this calibrator was fitted to another model")
        a, b = F.linear(x, self.weight.to(x.dtype), self.offset.to(x.dtype)).unbind(1)
        m = self.scale.to(x.dtype) * multiplier(outputs.norms, torch.sigmoid(a), F.softplus(b))
        return m[:, None] * outputs.raw


def _check_scale(scale: float | None) -> None:
    if scale is not None and not 0 < scale <= 1:
        raise wrong("scale", "in (0, 1]", scale, "1 is the paper's form, None chooses from the data")
