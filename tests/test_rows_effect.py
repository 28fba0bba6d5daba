"""The hierarchical bootstrap against closed forms: image noise, seed noise, both, and what pairing takes away."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rows_examples import made_results, row
from shiftprism.rows import DRAWS, RESAMPLES, Effect, Measured, Results


def images(seed: int = 0) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Image noise whose 2.5 % and 97.5 % quantiles are those of a standard normal."""
    return np.random.default_rng(seed).permutation(stats.norm.ppf((np.arange(RESAMPLES) + 0.5) / RESAMPLES))


def test_one_seed_has_the_interval_of_its_images() -> None:
    effect = Effect.of({0: 0.8}, {0: 0.8 + 0.02 * images()}, "vanilla", 500)
    assert effect.value == 0.8
    assert effect.low == pytest.approx(0.8 - 1.96 * 0.02, abs=0.004)
    assert effect.high == pytest.approx(0.8 + 1.96 * 0.02, abs=0.004)
    assert (effect.seeds, effect.n) == (1, 500)


def test_many_seeds_have_the_interval_of_a_mean() -> None:
    values = dict(enumerate(np.random.default_rng(1).permutation(stats.norm.ppf((np.arange(40) + 0.5) / 40))))
    effect = Effect.of(values, {seed: np.full(RESAMPLES, value) for seed, value in values.items()}, "m", 1)
    spread = float(np.std(list(values.values()), ddof=1))
    half = stats.t.ppf(0.975, 39) * spread / np.sqrt(40)
    assert effect.high - effect.low == pytest.approx(2 * half, rel=0.05)


def test_image_noise_does_not_average_out_over_seeds_that_share_the_images() -> None:
    noise = images()
    effect = Effect.of(dict.fromkeys(range(5), 0.5), dict.fromkeys(range(5), 0.5 + noise), "m", 1)
    assert effect.high - effect.low == pytest.approx(2 * 1.96, rel=0.06)


@pytest.mark.parametrize(("seeds", "seed_noise", "image_noise"), [(3, 1.0, 0.01), (5, 1.0, 0.5), (5, 0.1, 1.0)])
def test_intervals_cover_the_truth(seeds: int, seed_noise: float, image_noise: float) -> None:
    """95 % of intervals should hold it. Without Student's t, three seeds give 80 %."""
    rng, held, trials = np.random.default_rng(0), 0, 400
    for trial in range(trials):
        draw = image_noise * rng.standard_normal()
        values = {seed: draw + seed_noise * rng.standard_normal() for seed in range(seeds)}
        common = image_noise * rng.standard_normal(RESAMPLES)
        resamples = {seed: value + common for seed, value in values.items()}
        effect = Effect.of(values, resamples, f"model {trial}", 1)
        held += effect.low <= 0 <= effect.high
    assert 0.90 <= held / trials <= 0.99


def test_scores_of_a_model_are_paired_by_seed_and_image() -> None:
    rng = np.random.default_rng(2)
    luck = {seed: float(rng.standard_normal()) for seed in range(4)}
    noise = images()
    first = Effect.of(luck, {seed: value + noise for seed, value in luck.items()}, "m", 1)
    better = {seed: value + 0.1 for seed, value in luck.items()}
    second = Effect.of(better, {seed: value + noise for seed, value in better.items()}, "m", 1)
    apart = second - first
    assert first.high - first.low > 3
    assert apart.low == pytest.approx(0.1)
    assert apart.high == pytest.approx(0.1)


def test_models_share_images_but_not_seeds() -> None:
    noise, luck = images(), {0: -1.0, 1: 0.0, 2: 1.0}
    still = dict.fromkeys(range(3), 0.0)
    one = Effect.of(still, {s: v + noise for s, v in still.items()}, "one", 1)
    two = Effect.of(still, {s: v + noise for s, v in still.items()}, "two", 1)
    assert (one - two).high == pytest.approx(0.0)
    one, two = (Effect.of(luck, {s: np.full(RESAMPLES, v) for s, v in luck.items()}, name, 1) for name in ("1", "2"))
    assert abs(np.corrcoef(one.draws, two.draws)[0, 1]) < 0.1
    assert (one - two).low < -1


def test_resamples_that_are_too_large_on_average_are_centred() -> None:
    """ECE on a resample is larger than on the sample."""
    effect = Effect.of({0: 0.01}, {0: 0.02 + 0.001 * images()}, "m", 1)
    assert effect.low < 0.01 < effect.high < 0.013


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(3)
    ladder = [Effect(float(v), rng.standard_normal(DRAWS).round(1), 2, 10) for v in (0.5, 0.7, 0.6, 0.9)]
    found = Effect.rank_correlation(ladder)
    assert found.value == pytest.approx(stats.spearmanr([1, 2, 3, 4], [0.5, 0.7, 0.6, 0.9]).statistic)
    for draw in (0, 1, 2):
        values = [one.draws[draw] for one in ladder]
        assert found.draws[draw] == pytest.approx(stats.spearmanr([1, 2, 3, 4], values).statistic)
    flat = [Effect(0.5, np.full(DRAWS, 0.5), 1, 1)] * 3
    assert Effect.rank_correlation(flat).value == 0


def test_the_same_rows_give_the_same_draws() -> None:
    first, second = (Measured.split(made_results(2))[0].effect("vanilla", "svhn", 0, "g", "auroc") for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.draws == second.draws).all()


def test_rows_are_split_by_data_and_protocol_and_pixels_belong_to_both() -> None:
    rows = [
        row(data="a", subject="g", shift="fog", severity=1),
        row(data="a", subject="g", shift="fog", severity=0),
        row(data="a", subject="g", shift="fog", protocol="paper"),
        row(data="b", shift="far", kind="both"),
        row("pixels", "far", 0, "histogram", "distance", data="a", kind="both", protocol=""),
    ]
    parts = Measured.split(Results.without_resamples(rows))
    assert [(part.data, part.protocol, len(part.results.rows)) for part in parts] == [
        ("a", "held-out", 3),
        ("a", "paper", 2),
        ("b", "held-out", 1),
    ]
    assert parts[0].shifts("covariate", ladder=True) == ["fog"]
    assert parts[0].shifts("covariate", ladder=False) == []
    assert parts[0].steps["fog"] == [1]
    assert parts[2].shifts("both", ladder=False) == ["far"]
    assert parts[2].effect("vanilla", "far", 0, "g", "auroc") is None


def test_two_networks_under_one_name_are_refused() -> None:
    rows = [row(shift="fog"), replace(row(shift="fog"), backbone="large", weights="other")]
    with pytest.raises(ValueError, match=r"one network for each model and seed.*vanilla, seed 0, of small"):
        Measured.split(Results.without_resamples(rows))[0].effect("vanilla", "fog", 0, "u", "auroc")
