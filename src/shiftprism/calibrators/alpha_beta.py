"""α-β calibration: the paper's input-dependent scale, re-tuned on validation data with the network frozen."""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from torch import Tensor, nn

from shiftprism._checks import Floats, choice, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Report, fit_data, mean_nll
from shiftprism.calibrators.temperature import optimal_temperature, separable
from shiftprism.heads import SMALLEST_ALPHA, SMALLEST_NORM, multiplier
from shiftprism.outputs import Outputs

Inputs = Literal["logits", "features"]
Method = Literal["lbfgs", "sgd"]

RIDGE = 1e-3
"""Weight of the squared length of the two linear maps on standardised inputs, beside the mean NLL: lightly."""
FEWEST = 50
"""With fewer validation samples than this the fit cannot be judged on held-out ones, and the temperature is taken."""
_OFF = -40.0
"""softplus of this is 4e-18: β is switched off."""


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

    def __init__(
        self, weight: Tensor, offset: Tensor, scale: float = 1.0, inputs: Inputs = "logits", report: Report = UNFITTED
    ) -> None:
        """`weight` (2, P) and `offset` (2,) are the rows (a, b) and (a₀, b₀)."""
        super().__init__()
        choice("inputs", inputs, ("logits", "features"))
        if weight.ndim != 2 or len(weight) != 2 or offset.shape != (2,):
            got = f"shapes {tuple(weight.shape)} and {tuple(offset.shape)}"
            raise wrong("weight", "of shape (2, P), with an offset of shape (2,)", got, "row 0 is α's, row 1 is β's")
        _check_scale(scale)
        self.register_buffer("weight", weight.detach().float().clone())
        self.register_buffer("offset", offset.detach().float().clone())
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.register_buffer("unchanged", torch.tensor(False))
        self.weight: Tensor
        self.offset: Tensor
        self.scale: Tensor
        self.unchanged: Tensor
        self.inputs = inputs
        self.report = report

    @staticmethod
    def identity(size: int, inputs: Inputs = "logits", report: Report = UNFITTED) -> "AlphaBeta":
        """The one that gives the model's own logits back, for P = `size` inputs."""
        same = AlphaBeta(torch.zeros(2, size), torch.tensor([-_OFF, _OFF]), 1.0, inputs, report)
        same.unchanged.fill_(True)
        return same

    @classmethod
    def fit(
        cls,
        outputs: Outputs,
        labels: ArrayLike,
        inputs: Inputs = "logits",
        method: Method = "lbfgs",
        scale: float | None = None,
        seed: int = 0,
    ) -> "AlphaBeta":
        """Minimise the cross entropy over α and β.

        `method="lbfgs"` runs to a gradient tolerance from the best temperature, with a light ridge on the two linear
        maps, and keeps the temperature when α-β is not better on held-out fifths of the data. `method="sgd"` is the
        paper's schedule to the letter: 20 epochs, batches of 128, rate 0.1 with cosine decay, momentum 0.9, decay 5e-4.
        `scale` is c; None takes 1 for "sgd" and min(1, 1/T*)/4 for "lbfgs", T* the best temperature of the raw logits.
        `seed` draws the initial maps and the order of batches ("sgd") and the held-out fifths ("lbfgs").
        """
        choice("inputs", inputs, ("logits", "features"))
        choice("method", method, ("lbfgs", "sgd"))
        _check_scale(scale)
        double, targets = fit_data(outputs, labels)
        problem = _Problem(double.raw if inputs == "logits" else double.features, double.norms, double.raw, targets)
        solution = _lbfgs(problem, scale, seed) if method == "lbfgs" else _sgd(problem, scale, seed)
        before = mean_nll(double.logits, targets)
        report = Report(solution.converged, solution.iterations, before, math.inf, solution.note)
        fitted = cls(solution.weight, solution.offset, solution.scale, inputs, report)
        after = mean_nll(fitted(double), targets)
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


class _Problem(NamedTuple):
    """What a fit sees, in float64: inputs of the maps (N, P), |f| (N,), raw logits (N, K), labels (N,)."""

    x: Tensor
    norms: Tensor
    raw: Tensor
    labels: Tensor

    def rows(self, index: Tensor) -> "_Problem":
        return _Problem(*(field[index] for field in self))


class _Solution(NamedTuple):
    weight: Tensor
    offset: Tensor
    scale: float
    converged: bool
    iterations: int
    note: str = ""

    def nll(self, problem: _Problem) -> float:
        a, b = F.linear(problem.x, self.weight, self.offset).unbind(1)
        m = self.scale * multiplier(problem.norms, torch.sigmoid(a), F.softplus(b))
        return mean_nll(m[:, None] * problem.raw, problem.labels)


def _lbfgs(problem: _Problem, scale: float | None, seed: int) -> _Solution:
    whole = _constant(problem, scale)
    if len(problem.x) < FEWEST:
        return whole._replace(note=f"kept the temperature: fewer than {FEWEST} samples")
    if separable(problem.raw, problem.labels):
        return whole._replace(note="kept the temperature: every prediction was right, so α-β has no optimum")
    order = torch.randperm(len(problem.x), generator=torch.Generator().manual_seed(seed))
    held, kept = problem.rows(order[::5]), torch.ones(len(order), dtype=torch.bool)
    kept[order[::5]] = False
    part = problem.rows(kept.nonzero().squeeze(1))
    constant = _constant(part, scale)
    trial = _descend(part, constant)
    if not trial.nll(held) < constant.nll(held):
        return whole._replace(
            iterations=trial.iterations, note="kept the temperature: α-β was no better on held-out data"
        )
    final = _descend(problem, whole, start=trial)
    return final._replace(iterations=trial.iterations + final.iterations)


def _constant(problem: _Problem, scale: float | None) -> _Solution:
    """The temperature optimum of the raw logits as a member of the family: α = c T*, β off."""
    best = optimal_temperature(problem.raw, problem.labels)
    c = min(1.0, 1 / best.temperature) / 4 if scale is None else scale
    alpha = c * best.temperature
    # With c = 1 the family has no temperature above 1: it ends where α does.
    offset = math.log(alpha / (1 - alpha)) if alpha < 1 - 1e-12 else -_OFF
    weight = problem.x.new_zeros(2, problem.x.shape[1])
    return _Solution(weight, weight.new_tensor([offset, _OFF]), c, best.converged, best.iterations)


def _descend(problem: _Problem, constant: _Solution, start: _Solution | None = None) -> _Solution:
    """L-BFGS on standardised inputs, from the temperature (β small but with a slope) or from an earlier solution."""
    x, norms, raw, labels = problem
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread = torch.where(spread > 1e-12 * x.abs().max(), spread, torch.ones_like(spread))
    z = (x - mean) / spread
    size, c = x.shape[1], constant.scale
    inverse = 1 / norms.clamp_min(SMALLEST_NORM)
    picked = raw.gather(1, labels[:, None]).squeeze(1)

    def objective(theta: Floats) -> tuple[float, Floats]:
        maps = torch.from_numpy(theta).reshape(2, size + 1)
        a, b = F.linear(z, maps[:, :size], maps[:, size]).unbind(1)
        alpha, beta = torch.sigmoid(a), F.softplus(b)
        m = c * (1 + beta * inverse) / alpha.clamp_min(SMALLEST_ALPHA)
        logits = m[:, None] * raw
        total = torch.logsumexp(logits, 1)
        by_m = (torch.linalg.vecdot((logits - total[:, None]).exp_(), raw) - picked) / len(x)
        by_a = by_m * -m * (1 - alpha) * (alpha > SMALLEST_ALPHA)
        by_b = by_m * c * inverse * torch.sigmoid(b) / alpha.clamp_min(SMALLEST_ALPHA)
        slopes = torch.stack([by_a, by_b])
        gradient = torch.cat([slopes @ z + RIDGE * maps[:, :size], slopes.sum(1, keepdim=True)], 1)
        loss = (total - m * picked).mean() + RIDGE / 2 * maps[:, :size].square().sum()
        return float(loss), gradient.flatten().numpy()

    first = torch.zeros(2, size + 1, dtype=torch.float64)
    if start is None:
        # a tenth of the typical norm: enough for β to have a slope to move along, in either direction
        tenth = float(0.1 * norms.median().clamp_min(SMALLEST_NORM))
        first[:, size] = torch.tensor([min(float(constant.offset[0]), 4.0), math.log(math.expm1(min(tenth, 30.0)))])
    else:
        first[:, :size] = start.weight * spread
        first[:, size] = start.offset + start.weight @ mean
    found = minimize(
        objective,
        first.flatten().numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "gtol": 1e-6, "ftol": 1e-12},
    )
    maps = torch.from_numpy(found.x).reshape(2, size + 1)
    weight = maps[:, :size] / spread
    return _Solution(weight, maps[:, size] - weight @ mean, c, bool(found.success), int(found.nit))


def _sgd(problem: _Problem, scale: float | None, seed: int, epochs: int = 20, batch: int = 128) -> _Solution:
    """The paper's schedule, from fresh linear maps."""
    scale = 1.0 if scale is None else scale
    x, norms, raw, labels = (field.float() if field.is_floating_point() else field for field in problem)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        maps = nn.Linear(x.shape[1], 2)
        optimizer = torch.optim.SGD(maps.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for _ in range(epochs):
            for index in torch.randperm(len(x)).split(batch):
                a, b = maps(x[index]).unbind(1)
                m = scale * multiplier(norms[index], torch.sigmoid(a), F.softplus(b))
                optimizer.zero_grad()
                F.cross_entropy(m[:, None] * raw[index], labels[index]).backward()
                optimizer.step()
            schedule.step()
    weight, offset = maps.weight.detach().double(), maps.bias.detach().double()
    steps = epochs * math.ceil(len(x) / batch)
    return _Solution(weight, offset, scale, True, steps, "a fixed schedule: convergence is not checked")
