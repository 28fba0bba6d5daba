"""A score of covariate shift, read from style alone: the contrast between clean data and its shifted copies."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, check_width, finite_scores, widen

Shifted = Outputs | Mapping[str, Outputs]
"""Shifted copies of clean data: all in one, or by the name of what was done to them, such as a corruption."""
MAKE_SHIFTED = "make copies with shifts.make_shifted_copies(images) and predict them with the same classifier"
_PENALTY = 0.01
"""Of the squared weights, beside a mean loss; chosen by leaving out one family of extras at a time (docs/style.md)."""
_CLIP = 8.0
"""z-scores stay within ± this: far outside the usual range says no more than outside."""
_BLOCK = 1 << 14
"""Rows that are worked on at a time: 130 MB in float64 for 500 statistics."""
_KEPT = 1 << 16
"""Up to so many rows of all sets are kept in float64; more are standardised again in each step, and take no memory."""


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
        """Clean data has half of the weight; the named sets of `shifted` share the other half."""
        if shifted is None or (not isinstance(shifted, Outputs) and not shifted):
            raise wrong("shifted", "Outputs of shifted copies", "none", MAKE_SHIFTED)
        if not 0 < penalty < np.inf:
            raise wrong("penalty", "positive and finite", penalty, f"{_PENALTY} is the default")
        copies = [shifted] if isinstance(shifted, Outputs) else list(shifted.values())
        sets = [read_fields(one, "style")[0].detach() for one in (outputs, *copies)]
        centre, spread = _mean_and_spread(sets[0])
        # a statistic that never varies, such as the chroma of grey images, has weight 0
        scale = torch.where(spread > 1e-6 * centre.abs().clamp_min(1e-3), spread, torch.inf)
        empty = Contrast(centre, scale, centre, centre.sum())
        read: Callable[[], Iterable[_Block]] = partial(_read_blocks, sets, empty)
        if sum(map(len, sets)) <= _KEPT:
            read = partial(iter, [_join_blocks(read())])
        weight, bias = _fit_logistic(read, 2 * len(centre), penalty)
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


def _mean_and_spread(style: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each statistic, (S,) in float64, from blocks of rows."""
    blocks = style.split(_BLOCK)
    total = sum((_to_double(block).sum(0) for block in blocks), start=torch.zeros(style.shape[1], dtype=torch.float64))
    centre = total / len(style)
    squares = sum(((_to_double(block) - centre).square().sum(0) for block in blocks), start=torch.zeros_like(centre))
    return centre, (squares / len(style)).sqrt()


def _to_double(style: Tensor) -> Tensor:
    return style.to("cpu", torch.float64)


def _terms(z: Tensor) -> Tensor:
    return torch.cat([z, z.abs()], 1)


class _Block(NamedTuple):
    """Some rows of the logistic regression."""

    rows: Floats
    """(n, 2 S)."""
    share: Floats
    """(n,): the weight of each row in the mean loss."""
    sign: Floats
    """(n,): 1 for clean rows, −1 for shifted ones."""


def _read_blocks(sets: list[Tensor], contrast: Contrast) -> Iterator[_Block]:
    """All rows, some at a time. The first set has half of the weight, and the others share the rest."""
    for number, style in enumerate(sets):
        share = 0.5 / len(style) if number == 0 else 0.5 / (len(sets) - 1) / len(style)
        for part in style.split(_BLOCK):
            rows = _terms(contrast._standardise(_to_double(part))).numpy()
            yield _Block(rows, np.full(len(rows), share), np.full(len(rows), 1.0 if number == 0 else -1.0))


def _join_blocks(blocks: Iterable[_Block]) -> _Block:
    return _Block(*map(np.concatenate, zip(*blocks, strict=True)))


def _fit_logistic(read: Callable[[], Iterable[_Block]], width: int, penalty: float) -> tuple[Floats, float]:
    """Weights and bias of clean rows against shifted ones, by L-BFGS on a convex objective.

    The objective is the mean loss plus penalty/2 · |w|². The search runs in coordinates in which its Hessian at 0 is
    the identity: statistics are strongly correlated, and the search takes tens of steps there in place of hundreds.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import minimize

    hessian = sum(((block.rows.T * (block.share / 4)) @ block.rows for block in read()), start=np.zeros((width, width)))
    curvature = np.linalg.cholesky(hessian + penalty * np.eye(width))

    def weights(point: Floats) -> Floats:
        return np.asarray(solve_triangular(curvature, point[:-1], lower=True, trans="T"))

    def objective(point: Any) -> tuple[float, Floats]:
        weight, bias = weights(point), point[-1]
        loss, along, slopes = 0.0, np.zeros(width), 0.0
        for block in read():
            margins = block.sign * (block.rows @ weight + bias)
            slope = -block.share * block.sign / (1 + np.exp(np.minimum(margins, 700)))
            loss += float(block.share @ np.logaddexp(0, -margins))
            along += slope @ block.rows
            slopes += float(slope.sum())
        gradient = solve_triangular(curvature, along + penalty * weight, lower=True)
        return loss + penalty / 2 * float(weight @ weight), np.append(gradient, slopes)

    options: Any = {"maxiter": 2000, "maxcor": 20, "gtol": 1e-7, "ftol": 1e-12}
    found = minimize(objective, np.zeros(width + 1), jac=True, method="L-BFGS-B", options=options).x
    return weights(found), float(found[-1])
