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
from shiftprism.scores import KNN, SCORES, Spectrum, Style, attribute, gen, p_value
from shiftprism.scores._neighbours import draw_rows


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


def test_of_very_many_rows_a_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 clean rows, and 600 shifted ones: 300 of each of two sets, one of which has no more than 200."""
    clean, up, down = photograph(4000), photograph(5000, 1, UP), photograph(200, 2, DOWN)
    whole = Style.fit(clean, {"up": up, "down": down})
    monkeypatch.setattr("shiftprism.scores._style._MOST", 600)
    rows = {one.N: draw_rows(one.N, most, 0) for one, most in ((clean, 600), (up, 300), (down, 300))}
    assert [len(rows[n]) for n in (4000, 5000, 200)] == [600, 300, 200]
    part = Style.fit(clean, {"up": up, "down": down})
    by_hand = Style.fit(clean.rows(rows[4000]), {"up": up.rows(rows[5000]), "down": down})
    new = photograph(300, 3, UP)
    torch.testing.assert_close(part(new), by_hand(new))
    assert not torch.allclose(part(new), whole(new), atol=1e-3)
    assert auroc(part(clean), part(new)) == pytest.approx(auroc(whole(clean), whole(new)), abs=0.02)


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


def test_spectrum_is_a_sum_of_ranks_in_which_usual_style_does_not_count() -> None:
    known, held_out = photograph(200), photograph(100, 1)
    new = Outputs.concat([photograph(30, 2, UP), photograph(30, 4)])
    copies = photograph(200, 3, UP)
    score = Spectrum.fit(known, reference=held_out, shifted=copies, k=3)
    parts = (gen, KNN.fit(known, k=3), Style.fit(known, copies))
    p_gen, p_knn, p_style = (p_value(part(held_out).sort().values, part(new)) for part in parts)
    counts = p_style < 0.15
    assert 0 < int(counts.sum()) < 60
    style = torch.where(counts, (p_style / 0.15).log(), 0)
    torch.testing.assert_close(score(new), p_gen.log() + p_knn.log() / 2 + style)
    assert SCORES["spectrum"].needs == ("reference", "shifted")
    fisher = Spectrum.fit(known, reference=held_out, shifted=copies, k=3, near=1, unusual=1)
    torch.testing.assert_close(fisher(new), p_gen.log() + p_knn.log() + p_style.log())
    older = Spectrum(dict(score.named_buffers()), k=3)  # as a file of an older version is read
    torch.testing.assert_close(older(new), fisher(new))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reference": None}, "Expected `reference` to be held-out ID Outputs but got None"),
        ({"near": -1}, "Expected `near` to be a finite number of at least 0 but got -1"),
        ({"unusual": 0}, r"Expected `unusual` to be a share in \(0, 1\] but got 0"),
    ],
)
def test_spectrum_refuses_what_it_cannot_be_made_of(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Spectrum.fit(photograph(20), **{"reference": photograph(20, 1), "shifted": photograph(20, 2, UP), **options})


def test_spectrum_sees_covariate_and_concept_shift() -> None:
    known, held_out, new = photograph(300), photograph(200, 1), photograph(200, 4)
    score = Spectrum.fit(known, reference=held_out, shifted=photograph(300, 3, UP))
    unseen = photograph(200, 5)
    unseen = unseen._replace(features=-unseen.features - 1, logits=unseen.logits * 0)
    for shifted in (photograph(200, 6, UP), unseen):
        assert auroc(score(new), score(shifted)) > 0.7


def test_ranks_of_the_sum_need_data_of_their_own() -> None:
    """What the docs claim: among the reference of its parts, fresh ID data fall below the 5 % point too often."""
    p = torch.rand(3, 400, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # 400 draws of 20 reference values, 20 more for the sum, and 20 fresh ones, of three independent scores
    reference, others, fresh = p.split(20, 2)

    def total(values: Tensor) -> Any:
        counts = (reference[..., None, :] <= values[..., None]).sum(-1)
        return ((1 + counts) / 21).log().sum(0)

    def rate(among: Tensor) -> float:
        ranks = (1 + (total(among)[:, None, :] <= total(fresh)[..., None]).sum(-1)) / 21
        return float((ranks <= 0.05).double().mean())

    assert rate(others) <= 0.055
    assert rate(reference) > 0.055


def test_attribution_follows_style_where_it_has_evidence() -> None:
    p_combined = torch.tensor([0.04, 0.04, 0.06, 0.05, 1.0])
    p_covariate = torch.tensor([0.01, 0.06, 0.01, 0.05, 1.0])
    assert attribute(p_combined, p_covariate).tolist() == [1, 2, 0, 1, 0]
    assert attribute(p_combined, p_covariate, 0.045).tolist() == [1, 2, 0, 0, 0]
    with pytest.raises(ValueError, match="Expected `false_alarm` to be between 0 and 1 but got 5"):
        attribute(p_combined, p_covariate, 5)
    with pytest.raises(ValueError, match=r"of the shape of p_combined but got shapes \(5,\) and \(2,\)"):
        attribute(p_combined, p_covariate[:2])
