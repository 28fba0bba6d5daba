"""Scores that read style: the contrast with shifted copies."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from examples import head_of
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, Style


def photograph(samples: int = 300, seed: int = 0, move: "Tensor | float" = 0.0) -> Outputs:
    """Features and style of random images, whose style is moved."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, 6, dtype=torch.float64, generator=generator).relu()
    style = torch.randn(samples, 5, dtype=torch.float64, generator=generator) * torch.tensor([1, 1, 1, 100, 0.01])
    with torch.no_grad():
        return head_of("vanilla").outputs(features)._replace(style=style + move)


UP, DOWN = torch.tensor([2.0, 0, 0, 0, 0]), torch.tensor([-2.0, 0, 0, 0, 0])


def scaled(clean: Outputs, *others: Outputs) -> list[Any]:
    mean, deviation = clean.style.mean(0), clean.style.std(0, correction=0)
    return [((one.style - mean) / deviation).clamp(-8, 8).numpy() for one in (clean, *others)]


@pytest.mark.parametrize("penalty", [0.3, 0.01])
def test_the_contrast_of_one_set_is_scikit_learns(penalty: float) -> None:
    clean, shifted, new = photograph(), photograph(500, 1, UP), photograph(50, 2, 3 * UP)
    x, y, z = scaled(clean, shifted, new)
    witness = LogisticRegression(C=1 / (penalty * 800), class_weight="balanced", tol=1e-10, max_iter=1000)
    witness.fit(np.concatenate([x, y]), [1] * 300 + [0] * 500)
    score = Style.fit(clean, shifted, penalty=penalty)
    assert score(new).numpy() == pytest.approx(witness.decision_function(z), abs=1e-4)


def test_families_are_contrasted_one_by_one() -> None:
    """Brighter and darker copies cancel out in one logistic regression; each by itself is found."""
    clean, new = photograph(), photograph(seed=9)
    copies = {"brighter": photograph(300, 1, UP), "darker": photograph(300, 2, DOWN)}
    by_family, together = Style.fit(clean, copies), Style.fit(clean, Outputs.concat(list(copies.values())))
    shifted = Outputs.concat([photograph(300, 3, UP), photograph(300, 4, DOWN)])
    assert auroc(by_family(new), by_family(shifted)) > 0.85
    assert auroc(together(new), together(shifted)) < 0.6


def test_the_families_fit_is_the_optimum_of_its_objective() -> None:
    """Scikit-learn's softmax regression penalises the clean class too: with a tiny penalty both are the same."""
    clean, copies = photograph(), {"a": photograph(300, 1, UP / 2), "b": photograph(150, 2, DOWN / 2)}
    x, *y = scaled(clean, *copies.values())
    share = [0.5 / 300] * 300 + [0.25 / 300] * 300 + [0.25 / 150] * 150
    witness = LogisticRegression(C=1e7, tol=1e-10, max_iter=5000)
    witness.fit(np.concatenate([x, *y]), [0] * 300 + [1] * 300 + [2] * 150, sample_weight=share)
    log_odds = witness.predict_log_proba(x)
    expected = log_odds[:, 0] - np.log(np.exp(log_odds[:, 1:]).sum(1))
    assert Style.fit(clean, copies, penalty=1e-7)(clean).numpy() == pytest.approx(expected, abs=1e-3)


def test_a_statistic_that_never_varies_is_left_out() -> None:
    clean, shifted = photograph(), photograph(300, 1, UP)
    for one in (clean, shifted):
        one.style[:, 1] = 0.1
    score = Style.fit(clean, shifted)
    moved = clean._replace(style=clean.style + torch.tensor([0, 9.0, 0, 0, 0]))
    assert torch.equal(score(moved), score(clean))


def test_what_is_missing_is_named() -> None:
    clean = photograph()
    advice = "make copies with shifts.make_shifted_copies"
    for shifted in (None, {}):
        with pytest.raises(
            ValueError, match=f"Expected `shifted` to be Outputs of shifted copies but got none; {advice}"
        ):
            Style.fit(clean, shifted)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"Expected `shifted` to be given for style but got None; {advice}"):
        SCORES["style"].fit(clean)
    with pytest.raises(ValueError, match="made by a classifier from images, with style, but got one without"):
        Style.fit(clean, Outputs.from_logits(torch.zeros(3, 4)))
    with pytest.raises(ValueError, match="to be of 5 style statistics but got 2 style statistics"):
        Style.fit(clean, clean._replace(style=clean.style[:, :2]))
    with pytest.raises(ValueError, match="Expected `penalty` to be positive and finite but got 0"):
        Style.fit(clean, clean, penalty=0)


def test_huge_style_scores_finitely_and_the_dtype_follows() -> None:
    score = Style.fit(photograph(), photograph(300, 1, UP))
    huge = photograph(4, 2, 1e300)
    assert score(huge).isfinite().all()
    single = photograph(20, 3).to(torch.float32)
    assert score(single).dtype == torch.float32


def test_exports_with_a_dynamic_batch() -> None:
    score, outputs = Style.fit(photograph(), photograph(300, 1, UP)), photograph(9, 2)
    shapes: Any = Outputs(*[{0: torch.export.Dim("n")}] * 6)  # type: ignore[arg-type]
    program = torch.export.export(score, (outputs.rows(slice(0, 3)),), dynamic_shapes=(shapes,))
    torch.testing.assert_close(program.module()(outputs), score(outputs))
