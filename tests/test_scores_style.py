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


def terms(clean: Outputs, *others: Outputs) -> list[Any]:
    """The z-scores and their sizes, written out once more."""
    mean, deviation = clean.style.mean(0), clean.style.std(0, correction=0)
    scaled = [((one.style - mean) / deviation).clamp(-8, 8).numpy() for one in (clean, *others)]
    return [np.concatenate([z, np.abs(z)], 1) for z in scaled]


@pytest.mark.parametrize("penalty", [0.3, 0.01])
def test_the_contrast_is_scikit_learns_logistic_regression(penalty: float) -> None:
    clean, shifted, new = photograph(), photograph(500, 1, UP), photograph(50, 2, 3 * UP)
    x, y, z = terms(clean, shifted, new)
    witness = LogisticRegression(C=1 / (penalty * 800), class_weight="balanced", tol=1e-10, max_iter=1000)
    witness.fit(np.concatenate([x, y]), [1] * 300 + [0] * 500)
    score = Style.fit(clean, shifted, penalty=penalty)
    assert score(new).numpy() == pytest.approx(witness.decision_function(z), abs=1e-4)


def test_named_sets_share_their_half_of_the_weight_whatever_their_size() -> None:
    clean, up, down = photograph(), photograph(300, 1, UP), photograph(100, 2, DOWN)
    twice = {"up": Outputs.concat([up, up]), "down": down}
    torch.testing.assert_close(Style.fit(clean, twice)(clean), Style.fit(clean, {"up": up, "down": down})(clean))
    x, y, z = terms(clean, up, down)
    share = [0.5 / 300] * 300 + [0.25 / 300] * 300 + [0.25 / 100] * 100
    witness = LogisticRegression(C=1 / 0.03, tol=1e-10, max_iter=1000)
    witness.fit(np.concatenate([x, y, z]), [1] * 300 + [0] * 400, sample_weight=share)
    fitted = Style.fit(clean, twice, penalty=0.03)
    assert fitted(clean).numpy() == pytest.approx(witness.decision_function(x), abs=1e-4)


def test_shift_either_way_is_seen() -> None:
    """Brighter and darker copies cancel out in the z-scores; the sizes see both."""
    clean, new = photograph(), photograph(seed=9)
    score = Style.fit(clean, Outputs.concat([photograph(300, 1, UP), photograph(300, 2, DOWN)]))
    for move in (UP, DOWN):
        assert auroc(score(new), score(photograph(300, 3, move))) > 0.75


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
    nothing: tuple[Any, ...] = (None, {})
    for shifted in nothing:
        with pytest.raises(
            ValueError, match=f"Expected `shifted` to be Outputs of shifted copies but got none; {advice}"
        ):
            Style.fit(clean, shifted)
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
