"""A score of covariate shift, read from style alone: the contrast between clean data and its shifted copies."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, check_width, finite_scores, widen
from shiftprism.scores._neighbours import draw_rows

Shifted = Outputs | Mapping[str, Outputs]
"""Shifted copies of clean data: all in one, or by the name of what was done to them, such as a corruption."""
MAKE_SHIFTED = "make copies with shifts.make_shifted_copies(images) and predict them with the same classifier"
_PENALTY = 0.01
"""Of the squared weights, beside a mean loss; chosen by leaving out one family of extras at a time (docs/style.md)."""
_CLIP = 8.0
"""z-scores stay within ± this: far outside the usual range says no more than outside."""
_MOST = 1 << 15
"""Clean rows that a fit reads, and shifted ones in all; of more, a random part. With 500 statistics both together take
0.5 GB in float64."""


class Contrast(NamedTuple):
    """The log odds of clean data against shifted copies of it: a logistic regression on style, fitted once.

    Each statistic counts with its z-score z and with |z|, since many corruptions move a statistic either way: a gamma
    curve darkens or brightens.
    """

    centre: Tensor
    """(S,)."""
    scale: Tensor
    """(S,)."""
    weight: Tensor
    """(2 S,): of the z-scores, then of their sizes."""
    bias: Tensor
    """()."""

    @staticmethod
    def fit(outputs: Outputs, shifted: Shifted, penalty: float = _PENALTY) -> "Contrast":
        """Clean data has half of the weight; the named sets of `shifted` share the other half.

        Of more than 32,768 clean rows a random part is read, and of more shifted ones an equal part of each set.
        """
        if shifted is None or (not isinstance(shifted, Outputs) and not shifted):
            raise wrong("shifted", "Outputs of shifted copies", "none", MAKE_SHIFTED)
        if not 0 < penalty < np.inf:
            raise wrong("penalty", "positive and finite", penalty, f"{_PENALTY} is the default")
        copies = [shifted] if isinstance(shifted, Outputs) else list(shifted.values())
        mosts = [_MOST, *(max(1, _MOST // len(copies)) for _ in copies)]
        sets = [_draw_style(one, most) for one, most in zip((outputs, *copies), mosts, strict=True)]
        spread, centre = torch.std_mean(sets[0], 0, correction=0)
        # a statistic that never varies, such as the chroma of grey images, has weight 0
        scale = torch.where(spread > 1e-6 * centre.abs().clamp_min(1e-3), spread, torch.inf)
        empty = Contrast(centre, scale, centre, centre.sum())
        rows = np.concatenate([_terms(empty._standardise(one)).numpy() for one in sets])
        # clean data has half of the weight, and the named sets share the rest
        shares = [0.5 / len(sets[0]), *(0.5 / len(copies) / len(one) for one in sets[1:])]
        counts = [len(one) for one in sets]
        sign = np.where(np.arange(len(rows)) < counts[0], 1.0, -1.0)
        weight, bias = _fit_logistic(rows, np.repeat(shares, counts), sign, penalty)
        like = widen(outputs[5][:0])
        found = (centre, scale, torch.from_numpy(weight), torch.tensor(bias))
        return Contrast(*(tensor.to(like) for tensor in found))

    def standardise(self, outputs: Outputs) -> Tensor:
        """(N, S): z-scores of the style, clipped."""
        return self._standardise(widen(read_fields(outputs, "style")[0]))

    def log_odds(self, z: Tensor) -> Tensor:
        """(N,): ln p/(1 − p), p the probability of being clean, for standardised style."""
        return _terms(z) @ self.weight.to(z) + self.bias.to(z)

    def _standardise(self, style: Tensor) -> Tensor:
        check_width(style, len(self.centre), "style statistics")
        return ((style - self.centre.to(style)) / self.scale.to(style)).clamp(-_CLIP, _CLIP)


class Style(Fitted):
    """w · (z, |z|) + b, (N,): the log odds of clean data against its shifted copies, from style alone.

    z are the style statistics, scaled by clean data and clipped at ± 8; the weights are those of an L2-regularised
    logistic regression. Concept is no part of it: unseen classes in the usual style score like clean data.

    >>> from shiftprism.heads import Linear
    >>> def photograph(brightness):
    ...     return Linear(2, 3).outputs(torch.rand(99, 2))._replace(style=brightness + torch.rand(99, 1))
    >>> clean, brighter, new = photograph(0.0), photograph(0.5), photograph(0.6)
    >>> score = Style.fit(clean, brighter)
    >>> bool(score(new).mean() < score(clean).mean())
    True
    """

    centre: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def fit(cls, outputs: Outputs, shifted: Shifted, *, penalty: float = _PENALTY) -> "Style":
        """Clean Outputs against `shifted` copies of the same images, which `shifts.make_shifted_copies` makes."""
        return cls(Contrast.fit(outputs, shifted, penalty)._asdict())

    def forward(self, outputs: Outputs) -> Tensor:
        contrast = Contrast(self.centre, self.scale, self.weight, self.bias)
        return finite_scores(contrast.log_odds(contrast.standardise(outputs)), outputs)


def _draw_style(outputs: Outputs, most: int) -> Tensor:
    """The style of at most so many rows, in float64 on the CPU."""
    (style,) = read_fields(outputs, "style")
    return style.detach()[draw_rows(outputs.N, most, 0).to(style.device)].to("cpu", torch.float64)


def _terms(z: Tensor) -> Tensor:
    return torch.cat([z, z.abs()], 1)


def _fit_logistic(rows: Floats, share: Floats, sign: Floats, penalty: float) -> tuple[Floats, float]:
    """Weights and bias of clean rows (sign 1) against shifted ones (−1), by L-BFGS on a convex objective.

    The objective is the mean loss, with a share of it for each row, plus penalty/2 · |w|². The search runs in
    coordinates in which its Hessian at 0 is the identity: statistics are strongly correlated, and the search takes tens
    of steps there in place of hundreds.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import minimize

    width = rows.shape[1]
    curvature = np.linalg.cholesky((rows.T * (share / 4)) @ rows + penalty * np.eye(width))

    def weights(point: Floats) -> Floats:
        return np.asarray(solve_triangular(curvature, point[:-1], lower=True, trans="T"))

    def objective(point: Any) -> tuple[float, Floats]:
        weight, bias = weights(point), point[-1]
        margins = sign * (rows @ weight + bias)
        slope = -share * sign / (1 + np.exp(np.minimum(margins, 700)))
        loss = float(share @ np.logaddexp(0, -margins)) + penalty / 2 * float(weight @ weight)
        gradient = solve_triangular(curvature, slope @ rows + penalty * weight, lower=True)
        return loss, np.append(gradient, slope.sum())

    options: Any = {"maxiter": 2000, "maxcor": 20, "gtol": 1e-7, "ftol": 1e-12}
    found = minimize(objective, np.zeros(width + 1), jac=True, method="L-BFGS-B", options=options).x
    return weights(found), float(found[-1])
