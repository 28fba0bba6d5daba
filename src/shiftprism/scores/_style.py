"""A score of covariate shift, read from style alone: the contrast between clean data and its shifted copies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, check_width, finite_scores, widen

Shifted = Outputs | Mapping[str, Outputs]
"""Shifted copies of clean data: all in one, or by the name of what was done to them, such as a family of extras."""
PENALTY = 0.01
"""Of the squared weights, beside a mean loss; chosen by leaving out one family of extras at a time (docs/style.md)."""
CLIP = 8.0
"""z-scores are kept within ± this: a statistic far outside its usual range says no more than one well outside it."""


class Style(Fitted):
    """−ln Σ_f exp(w_f · z + b_f), (N,): the log odds of clean data against its shifted copies, from style alone.

    z are the style statistics, scaled by clean data and clipped at ± 8. The weights are those of an L2-regularised
    softmax regression: clean against each family f of shifted copies, or one logistic regression where the copies have
    no names. Clean data has half of the weight; the families share the other half. Concept is no part of it: unseen
    classes in the usual style score like clean data.

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
    """(F, S)."""
    bias: Tensor
    """(F,)."""

    @classmethod
    def fit(cls, outputs: Outputs, shifted: Shifted, *, penalty: float = PENALTY) -> "Style":
        """Clean Outputs against `shifted` copies of the same images, which `shifts.make_shifted_copies` makes."""
        return cls(fit_contrast(outputs, shifted, penalty))

    def forward(self, outputs: Outputs) -> Tensor:
        return finite_scores(contrast(outputs, self), outputs)


def fit_contrast(outputs: Outputs, shifted: Shifted, penalty: float = PENALTY) -> dict[str, Tensor]:
    """The buffers `centre`, `scale`, `weight` and `bias` of a contrast."""
    groups = check_shifted(shifted)
    if not 0 < penalty < np.inf:
        raise wrong("penalty", "positive and finite", penalty, f"{PENALTY} is the default")
    clean = _read_style(outputs)
    others = [check_width(_read_style(group), clean.shape[1], "style statistics") for group in groups.values()]
    centre = clean.mean(0)
    # a statistic without any spread, such as the chroma of grey images, would blow up rounding errors
    spread = clean.std(0, correction=0)
    scale = torch.where(spread > 1e-6 * centre.abs().clamp_min(1e-3), spread, torch.inf)
    sets = [_scale(values, centre, scale).numpy() for values in (clean, *others)]
    weight, bias = _fit_softmax(sets, penalty)
    found = {"centre": centre, "scale": scale, "weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
    dtype, device = torch.promote_types(outputs[5].dtype, torch.float32), outputs[5].device
    return {name: tensor.to(device, dtype) for name, tensor in found.items()}


def contrast(outputs: Outputs, fitted: Any) -> Tensor:
    """The score by the buffers of `fitted`, (N,)."""
    (style,) = read_fields(outputs, "style")
    style = widen(check_width(style, len(fitted.centre), "style statistics"))
    z = _scale(style, fitted.centre.to(style), fitted.scale.to(style))
    return -torch.logsumexp(z @ fitted.weight.to(style).T + fitted.bias.to(style), 1)


def check_shifted(shifted: Shifted | None) -> dict[str, Outputs]:
    """The shifted copies by name, or an error that says how to make some."""
    if shifted is None or (not isinstance(shifted, Outputs) and not shifted):
        raise wrong("shifted", "Outputs of shifted copies", "none", MAKE_SHIFTED)
    return {"": shifted} if isinstance(shifted, Outputs) else dict(shifted)


MAKE_SHIFTED = "make copies with shifts.make_shifted_copies(images) and predict them with the same classifier"


def _read_style(outputs: Outputs) -> Tensor:
    return read_fields(outputs, "style")[0].detach().to("cpu", torch.float64)


def _scale(style: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    return ((style - centre) / scale).clamp(-CLIP, CLIP)


def _fit_softmax(sets: Sequence[Floats], penalty: float) -> tuple[Floats, Floats]:
    """Weights (F, S) and biases (F,) of the sets after the first, against the first, whose logit is 0.

    The objective is the mean loss, where the first set and all others together have half of the weight each, plus
    penalty/2 · |W|². It is convex.
    """
    from scipy.optimize import minimize

    rows = np.concatenate(sets)
    number = np.repeat(np.arange(len(sets)), [len(part) for part in sets])
    shares = [0.5 / len(sets[0])] + [0.5 / (len(sets) - 1) / len(part) for part in sets[1:]]
    share = np.repeat(shares, [len(part) for part in sets])
    families, width = len(sets) - 1, rows.shape[1]
    truth = number[:, None] == np.arange(1, len(sets))

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(families, width + 1)
        logits = rows @ weights[:, :-1].T + weights[:, -1]
        most = np.maximum(logits.max(1), 0)
        powers = np.exp(logits - most[:, None])
        total = np.exp(-most) + powers.sum(1)
        loss = share @ (most + np.log(total) - (logits * truth).sum(1))
        slope = (powers / total[:, None] - truth) * share[:, None]
        gradient = np.concatenate([slope.T @ rows + penalty * weights[:, :-1], slope.sum(0)[:, None]], 1)
        return float(loss + penalty / 2 * np.square(weights[:, :-1]).sum()), gradient.ravel()

    start = np.zeros(families * (width + 1))
    options = {"maxiter": 2000, "maxcor": 20, "gtol": 1e-7, "ftol": 1e-12}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x.reshape(families, width + 1)
    return found[:, :-1].copy(), found[:, -1].copy()
