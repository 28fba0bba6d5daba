"""The hierarchical bootstrap against closed forms: image noise, seed noise, both, and what pairing takes away."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from interval_coverage import cover
from rows_examples import made_results, row
from shiftprism.rows import RESAMPLES, Effect, Measured, Results, adjust_p_values
from shiftprism.rows._effect import DRAWS


def images(seed: int = 0) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Image noise whose 2.5 % and 97.5 % quantiles are those of a standard normal."""
    return np.random.default_rng(seed).permutation(stats.norm.ppf((np.arange(RESAMPLES) + 0.5) / RESAMPLES))


def effect_of(values: dict[int, float], model: str = "m") -> Effect:
    """An effect without image noise."""
    return Effect.of(values, {seed: np.full(RESAMPLES, value) for seed, value in values.items()}, model, 1)


def known(effect: Effect | None) -> Effect:
    assert effect is not None
    return effect


def coverage(trials: int, seeds: int, noise: dict[str, float], against: int = 0) -> float:
    """The share of 95 % intervals that hold the truth, by the simulation that docs/rows.md shows in full."""
    return cover(trials, seeds, noise, against=against, rng=np.random.default_rng(0))


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


def test_two_seeds_have_students_interval() -> None:
    """Of the t distribution with one degree of freedom: 12.7 standard errors."""
    effect = effect_of({0: 0.4, 1: 0.6})
    assert effect.error == pytest.approx(0.1)
    assert effect.freedom == pytest.approx(1)
    assert effect.high - effect.value == pytest.approx(stats.t.ppf(0.975, 1) * 0.1)


def test_two_models_have_welchs_interval_and_p_value() -> None:
    one, two = {0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.1, 1: 0.3, 2: 0.35, 3: 0.2, 4: 0.0}
    apart = effect_of(one, "one") - effect_of(two, "two")
    witness = stats.ttest_ind(list(one.values()), list(two.values()), equal_var=False)
    low, high = witness.confidence_interval()
    assert (apart.low, apart.high) == pytest.approx((low, high))
    assert apart.p_value() == pytest.approx(witness.pvalue)
    assert apart.freedom == pytest.approx(witness.df)
    assert apart.p_value(apart.value) == 1


def test_image_noise_does_not_average_out_over_seeds_that_share_the_images() -> None:
    noise = images()
    effect = Effect.of(dict.fromkeys(range(5), 0.5), dict.fromkeys(range(5), 0.5 + noise), "m", 1)
    assert effect.high - effect.low == pytest.approx(2 * 1.96, rel=0.06)


def test_own_image_noise_is_counted_once() -> None:
    """It is in the deviation over seeds already; the resamples must not add it again."""
    rng = np.random.default_rng(3)
    own = {seed: rng.standard_normal(RESAMPLES) for seed in range(5)}
    effect = Effect.of(dict.fromkeys(range(5), 0.5), {seed: 0.5 + noise for seed, noise in own.items()}, "m", 1)
    assert effect.error == 0  # the five values are equal: no seed noise, no own image noise was seen
    noise = images()
    both = Effect.of(dict.fromkeys(range(5), 0.5), {s: 0.5 + noise + own[s] for s in range(5)}, "m", 1)
    assert both.error == pytest.approx(1, rel=0.15)


def test_the_shared_image_noise_is_what_own_noise_leaves_of_it() -> None:
    """Two seeds move by a + b and a − b, uncorrelated: their mean by a, of which Var b is chance of the two."""
    a, b = np.tile([1.0, -1.0], RESAMPLES // 2), 0.5 * np.tile([1.0, 1.0, -1.0, -1.0], RESAMPLES // 4)
    effect = Effect.of({0: 0.7, 1: 0.9}, {0: 0.7 + a + b, 1: 0.9 + a - b}, "m", 1)
    shared, over_seeds = effect.variances
    assert shared == pytest.approx(np.var(a, ddof=1) - np.var(b, ddof=1))
    assert over_seeds[0] == pytest.approx((0.01, 1))


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(
    "noise", [{"shared": 1.0}, {"own": 1.0}, {"seed": 1.0}, {"shared": 1.0, "own": 1.0, "seed": 1.0}]
)
def test_intervals_cover_the_truth(seeds: int, noise: dict[str, float]) -> None:
    """Of 400 intervals 92 to 97 % should hold it, give or take a point and a half of chance."""
    assert 0.90 <= coverage(400, seeds, noise) <= 0.985


@pytest.mark.parametrize("noise", [{"shared": 1.0}, {"own": 1.0}, {"seed": 1.0}])
def test_intervals_of_differences_cover_the_truth(noise: dict[str, float]) -> None:
    assert 0.90 <= coverage(400, 5, noise, against=3) <= 0.985


def test_one_seed_decides_nothing_beside_another_model() -> None:
    five = effect_of({seed: 0.9 + 0.001 * seed for seed in range(5)}, "five")
    one = effect_of({0: 0.5}, "one")
    assert five.decides
    assert not (five - one).decides
    assert (effect_of({0: 0.6}, "one") - one).decides  # two scores of one network


def test_holms_p_values_control_the_family() -> None:
    """Under no effect, 5 % of families have a member below 5 %; without the correction 64 % of twenty."""
    p_values = np.random.default_rng(0).uniform(size=(2000, 20))
    false = np.mean([min(adjust_p_values(list(family))) < 0.05 for family in p_values])
    assert 0.035 < false < 0.065
    assert np.mean(p_values.min(1) < 0.05) > 0.6
    assert adjust_p_values([0.04, 0.001, 0.03, 0.5]) == pytest.approx([0.09, 0.004, 0.09, 0.5])


def test_rows_without_resamples_share_their_draws_within_a_model_and_score() -> None:
    """A mean over 75 sets and five seeds is then no more certain than one of them."""
    rows = [row("m", f"set {i}", 0, "g", value=0.5, seed=seed, error=0.01) for i in range(75) for seed in range(5)] + [
        row("m", f"set {i}", 0, "h", value=0.5, error=0.01) for i in range(75)
    ]
    (measured,) = Measured.split(Results.without_resamples(rows))
    g, h = (Effect.mean([known(measured.effect("m", f"set {i}", 0, s, "auroc")) for i in range(75)]) for s in "gh")
    assert g.error == pytest.approx(0.01, rel=0.15)
    assert (g - h).error == pytest.approx(0.01 * np.sqrt(2), rel=0.2)  # scores are not paired


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
    assert abs(np.corrcoef(one.draw(), two.draw())[0, 1]) < 0.1
    assert (one - two).low < -1


def test_resamples_that_are_too_large_on_average_are_centred() -> None:
    """ECE on a resample is larger than on the sample."""
    effect = Effect.of({0: 0.01}, {0: 0.02 + 0.001 * images()}, "m", 1)
    assert effect.low < 0.01 < effect.high < 0.013


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(3)
    values = (0.5, 0.7, 0.6, 0.9)
    ladder = [
        Effect.of({0: v, 1: v}, {s: v + 0.1 * rng.standard_normal(RESAMPLES).round(1) for s in (0, 1)}, "m", 9)
        for v in values
    ]
    found = Effect.rank_correlation(ladder)
    assert found.value == pytest.approx(stats.spearmanr([1, 2, 3, 4], values).statistic)
    assert found.draws is not None
    drawn = [one.draw() for one in ladder]
    for draw in (0, 1, 2):
        assert found.draws[draw] == pytest.approx(stats.spearmanr([1, 2, 3, 4], [one[draw] for one in drawn]).statistic)
    assert (found.seeds, found.n) == (2, 9)
    assert Effect.rank_correlation([effect_of({0: 0.5})] * 3).value == 0


def test_the_interval_of_draws_is_their_middle_95_percent_and_holds_the_value() -> None:
    parts, draws = effect_of({0: 0.5}).parts, np.linspace(0, 1, 2001)
    assert Effect(parts, 1, draws, 0.5).ends == pytest.approx((0.025, 0.975))
    assert Effect(parts, 1, draws, 0.99).ends == pytest.approx((0.025, 0.99))
    assert Effect(parts, 1, draws, 0.01).ends == pytest.approx((0.01, 0.975))
    assert Effect(parts, 1, draws, 0.5).p_value(0.025) == pytest.approx(0.05, abs=0.002)
    assert Effect(parts, 1, draws, 0.5).p_value(-1) == 2 / DRAWS  # none beyond: no smaller than draws can tell


def test_draws_have_the_error_of_the_effect() -> None:
    """Seeds by a normal widened by Student's t, images by their resamples."""
    rng, noise = np.random.default_rng(4), images()
    values = {seed: float(value) for seed, value in enumerate(rng.standard_normal(5))}
    effect = Effect.of(values, {seed: value + 0.5 * noise for seed, value in values.items()}, "m", 1)
    shared, ((over_seeds, freedom),) = effect.variances
    assert shared == pytest.approx(0.25, rel=0.05)
    widened = over_seeds * (stats.t.ppf(0.975, freedom) / 1.96) ** 2
    assert effect.draw().std() == pytest.approx(np.sqrt(shared + widened), rel=0.05)
    assert effect.draw().mean() == pytest.approx(effect.value, abs=0.1)


def test_the_same_rows_give_the_same_draws() -> None:
    first, second = (Measured.split(made_results(2))[0].effect("vanilla", "svhn", 0, "g", "auroc") for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.draw() == second.draw()).all()


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
