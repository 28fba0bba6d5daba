"""Seeds that open claims need: power as tables have it, as simulations count it, and as the judge itself decides."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from rows_examples import made_results, row
from shiftprism import claims
from shiftprism.claims import CLAIMS, Noise, OpenClaim, open_claims, plan_runs
from shiftprism.claims._claim import judge_claim
from shiftprism.cli import app
from shiftprism.rows import RESAMPLES, Effect, Measured, Results, Row

BY_NAME = {claim.name: claim for claim in CLAIMS}
EVERY = BY_NAME["u-best-of-alpha-beta"]


def open_claim(
    *noises: Noise, seeds: dict[str, int], data: str = "cifar10", name: str = "g-sees-covariate"
) -> OpenClaim:
    evidence = tuple(
        claims.Estimate(f"effect {number}", noise.apart, -1, 1, 2, 100, "AUROC") for number, noise in enumerate(noises)
    )
    return OpenClaim(BY_NAME[name], data, evidence, noises, seeds)


def test_power_is_that_of_published_tables() -> None:
    """5 % two-sided, 80 %: for d = 1 ten pairs, or 17 in each of two groups; for d = 0.5 34 and 64 (G*Power, Cohen)."""
    for apart, pairs, group in ((1.0, 10, 17), (0.5, 34, 64)):
        one, two = Noise(apart, 0.0, (("a", 1.0),)), Noise(apart, 0.0, (("a", 1.0), ("b", 1.0)))
        assert one.power({"a": pairs}) >= 0.8 > one.power({"a": pairs - 1})
        assert two.power({"a": group, "b": group}) >= 0.8 > two.power({"a": group - 1, "b": group - 1})


def test_power_is_the_share_of_students_tests_that_find_the_effect() -> None:
    rng = np.random.default_rng(0)
    found = stats.ttest_1samp(rng.normal(0.8, 1.0, (20_000, 6)), 0.0, axis=1)
    share = np.mean((found.pvalue < 0.05) & (found.statistic > 0))
    assert Noise(-0.8, 0.0, (("a", 1.0),)).power({"a": 6}) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("shared", "deviations", "seeds"),
    [(0.0, (1.0, 0.5), (4, 4)), (0.3, (1.0, 1.0), (3, 5)), (0.5, (0.7,), (4,)), (0.8, (0.1,), (2,))],
)
def test_power_is_the_share_of_intervals_that_exclude_the_bound(
    shared: float, deviations: tuple[float, ...], seeds: tuple[int, ...]
) -> None:
    """Effects are simulated with shared image noise and seed noise; their own intervals decide."""
    rng = np.random.default_rng(1)
    apart, trials, above = 1.5, 1500, 0
    for _ in range(trials):
        images, moved = rng.standard_normal(RESAMPLES), shared * rng.standard_normal()
        parts = []
        for model, (deviation, count) in enumerate(zip(deviations, seeds, strict=True)):
            # the first model carries effect and image noise; what is subtracted has mean 0
            values = (model == 0) * (apart + moved) + deviation * rng.standard_normal(count)
            resamples = (model == 0) * shared * images
            parts.append(
                Effect.of(dict(enumerate(values)), {s: values[s] + resamples for s in range(count)}, f"m{model}", 100)
            )
        effect = parts[0] - parts[1] if len(parts) > 1 else parts[0]
        above += effect.low > 0
    over_seeds = tuple((f"m{model}", deviation**2) for model, deviation in enumerate(deviations))
    power = Noise(apart, shared**2, over_seeds).power({f"m{model}": count for model, count in enumerate(seeds)})
    assert above / trials == pytest.approx(power, abs=0.035)


def make_rows(rng: np.random.Generator, seeds: int, gap: float) -> Results:
    """g and h of vanilla on two corruptions, with seed noise in both and image noise that both share."""
    rows: list[Row] = []
    resamples = []
    shared, images = rng.standard_normal(), rng.standard_normal(RESAMPLES)
    for seed in range(seeds):
        for shift in ("fog", "snow"):
            for score, value, error in (("g", 0.7, 0.0), ("h", 0.7 + gap + 0.004 * shared, 0.004)):
                made = value + 0.01 * rng.standard_normal()
                rows.append(row("vanilla", shift, 1, score, value=made, seed=seed, error=error))
                resamples.append(made + error * images)
    return Results(rows, np.array(resamples, np.float32))


def test_a_claim_is_settled_as_often_as_its_power_says() -> None:
    """The judge decides about rows drawn anew with the seeds required; the gap and noise are known, not estimated."""
    gap, variance = 0.015, 2 * 0.01**2 / 2  # g and h of one seed; the mean of two corruptions
    claim = BY_NAME["vanilla-prefers-concept-corrupted"]
    noise = Noise(gap, 0.004**2, (("vanilla", variance),))
    required = open_claim(noise, seeds={"vanilla": 2}, name=claim.name).required_seeds
    assert required is not None
    rng = np.random.default_rng(2)
    for seeds in (required - 1, required):
        held = 0
        for _ in range(600):
            (measured,) = Measured.split(make_rows(rng, seeds, gap))
            held += judge_claim(claim, measured).judgement == "holds"
        assert held / 600 == pytest.approx(noise.power({"vanilla": seeds}), abs=0.05)


def test_noise_is_that_of_the_rows() -> None:
    (one,) = open_claims(make_rows(np.random.default_rng(6), 4, 0.002))
    values: dict[str, list[float]] = {"g": [], "h": []}
    results = make_rows(np.random.default_rng(6), 4, 0.002)
    for made in results.rows:
        values[made.subject].append(made.value)
    gaps = np.reshape(np.array(values["h"]) - np.array(values["g"]), (4, 2)).mean(1)
    (noise,) = one.noises
    assert noise.apart == pytest.approx(gaps.mean())
    assert dict(noise.over_seeds) == pytest.approx({"vanilla": gaps.var(ddof=1)})
    assert noise.shared == pytest.approx(0.004**2, rel=0.3)  # over 200 resamples
    effect = one.evidence[0]
    half = stats.t.ppf(0.975, 1e9) * np.sqrt(noise.shared + gaps.var(ddof=1) / 4)
    assert effect.high - effect.value > half  # Student's interval of few degrees of freedom is wider


def test_a_claim_of_many_effects_needs_each_and_is_contradicted_by_one() -> None:
    easy, hard, below = (Noise(apart, 0.0, (("a", 1.0),)) for apart in (3.0, 1.5, -1.5))
    at = {"a": 6}
    both = open_claim(easy, hard, seeds={"a": 2}, name=EVERY.name)
    assert both.outcome == "holds"
    assert both.power(at) == pytest.approx(easy.power(at) + hard.power(at) - 1)
    assert both.hardest.name == "effect 1"
    against = open_claim(easy, below, seeds={"a": 2}, name=EVERY.name)
    assert against.outcome == "contradicted"
    assert against.power(at) == pytest.approx(below.power(at, 0.0125))  # Holm's first step of two, each side
    assert against.hardest.name == "effect 1"
    assert below.power(at, 0.0125) < below.power(at)


def test_an_effect_of_nothing_stays_undecided_at_this_size() -> None:
    one = open_claim(Noise(1e-6, 0.0, (("a", 1.0),)), seeds={"a": 2})
    assert (one.required_seeds, one.required_text) == (None, "more than 10")
    sure = Noise(0.5, 0.0, (("a", 0.0),))
    assert (sure.power({"a": 2}), sure._replace(apart=0.0).power({"a": 2})) == (1.0, 0.0)
    assert Noise(0.5, 0.1, (("a", 1e-12),)).power({"a": 2}) == pytest.approx(
        stats.norm.sf(1.96 - 0.5 / 0.1**0.5), abs=1e-4
    )
    assert Noise(9.0, 0.1, (("a", 1.0),)).power({"a": 1}) == 0  # one seed decides nothing


def test_the_cheapest_claims_come_first_and_share_their_runs() -> None:
    noise = Noise(1.5, 0.0, (("a", 1.0),))
    required = open_claim(noise, seeds={"a": 2}).required_seeds
    assert required == 6  # Cohen: d = 1.5
    first = open_claim(noise, seeds={"a": 2})
    same = open_claim(noise._replace(apart=1.6), seeds={"a": 2}, name="h-sees-concept")
    dear = open_claim(Noise(2.0, 0.0, (("a", 0.5), ("ensemble", 0.5))), seeds={"a": 2, "ensemble": 1}, name="clean-ece")
    other = open_claim(noise, seeds={"a": 4}, data="cifar100")
    never = open_claim(noise._replace(apart=0.01), seeds={"a": 2}, name="h-sees-splits")
    steps = plan_runs([first, same, dear, other, never], minutes=30)
    assert [(step.text, step.runs, step.minutes) for step in steps[:2]] == [
        ("cifar10 a +4", 4, 120.0),  # two claims for four runs
        ("cifar100 a +2", 2, 60.0),
    ]
    assert [one.claim.name for one in steps[0].claims] == [first.claim.name, same.claim.name]
    assert [one.claim.name for step in steps[1:] for one in step.claims] == [other.claim.name, dear.claim.name]
    assert steps[2].seeds.keys() == {("cifar10", "ensemble")}  # six seeds of a are there by then
    assert steps[2].runs == 5 * steps[2].seeds["cifar10", "ensemble"]


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_a_run_takes_time(minutes: float) -> None:
    with pytest.raises(ValueError, match="Expected `minutes` to be positive but got"):
        plan_runs([], minutes)


def lines(values: dict[str, Sequence[float]], model: str = "vanilla") -> list[Row]:
    return [
        row(model, "fog", 1, score, value=value, seed=seed, error=0.001)
        for score, own in values.items()
        for seed, value in enumerate(own)
    ]


def test_what_seeds_do_not_settle_is_said() -> None:
    pixels = [
        row("pixels", shift, 0, "histogram", "distance", value, 0, kind, error=0.1, protocol="")
        for shift, kind, value in (("cifar100", "concept", 0.1), ("svhn", "both", 0.2))
    ]
    single = lines({"g": [0.7], "h": [0.7]})
    ladder = [
        row("alpha", "snow", step, score, value=0.7 + (-1) ** step * 0.01, seed=seed, error=0.01)
        for step in range(1, 6)
        for score in ("g", "h", "u")
        for seed in range(2)
    ]
    found = {one.claim.name: one for one in open_claims(Results.without_resamples(pixels + single + ladder))}
    assert "seeds will not" in found["pixel-histograms"].note
    assert found["vanilla-prefers-concept-corrupted"].note == "no estimate: no model has two seeds"
    assert "rank correlation" in found["grows-with-corruption"].note
    assert {one.required_text for one in found.values()} == {"–"}
    assert plan_runs(list(found.values())) == []
    text = claims.seeds_to_markdown(list(found.values()))
    assert "undecided" not in text
    assert text.count("| – | – |") == 3
    with pytest.raises(ValueError, match="Expected `results` to be rows of a benchmark but got none"):
        open_claims(Results.without_resamples([]))


def test_the_noise_of_a_single_seed_is_taken_from_the_other_models() -> None:
    ours = lines({"u": [0.8, 0.9, 0.85], "g": [0.75, 0.9, 0.8]}, "alpha-beta")
    pooled = [row(one.model, "corrupted", 0, one.subject, value=one.value, seed=one.seed, error=0.001) for one in ours]
    duq = [row("duq", "corrupted", 0, "kernel", value=0.6, error=0.001)]
    (one,) = (o for o in open_claims(Results.without_resamples(pooled + duq)) if o.claim.name == "u-best-corrupted")
    assert one.seeds == {"alpha-beta": 3, "duq": 1}
    assert "for want of a second seed of duq" in one.note
    known = [np.var([0.05, 0.0, 0.05], ddof=1), np.var([0.8, 0.9, 0.85], ddof=1)]  # u − g, and u in u − kernel
    (guess,) = [variance for noise in one.noises for model, variance in noise.over_seeds if model == "duq"]
    assert guess == pytest.approx(np.median(known))


def test_the_command_prints_tables_and_json(tmp_path: Path) -> None:
    Results.without_resamples(lines({"g": [0.70, 0.75, 0.74], "h": [0.75, 0.76, 0.78]})).write(tmp_path)
    words = ["claims", str(tmp_path), "--seeds-needed", "--run-minutes", "30"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "6 (holds)" in done.output
    assert "cifar10 vanilla +3: 1.5 core-hours settle cifar10 vanilla-prefers-concept-corrupted" in done.output
    found = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).output)
    assert [one["required_seeds"] for one in found["claims"]] == [6]
    assert found["runs"][0]["added"] == [{"data": "cifar10", "model": "vanilla", "seeds": 3}]
    assert found["runs"][0]["core_minutes"] == 90
    text = CliRunner().invoke(app, [*words, "--format", "md"]).output
    assert "| 1 | cifar10 vanilla +3 | 3 | 1.5 | 1.5 | cifar10 vanilla-prefers-concept-corrupted |" in text
    made_results().write(tmp_path)
    assert "No claim is open." in CliRunner().invoke(app, words).output
