"""Each claim compares what its sentence names: its effects are computed a second time, from a table made by hand."""

from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from rows_examples import row
from shiftprism.claims import CLAIMS, Estimate, Finding, judge
from shiftprism.rows import Results, Row

Pair = tuple[str, str]
VANILLA_G, VANILLA_H, VANILLA_U = ("vanilla", "g"), ("vanilla", "h"), ("vanilla", "u")
ALPHA_G, ALPHA_H, ALPHA_U = ("alpha", "g"), ("alpha", "h"), ("alpha", "u")
BETA_G, BETA_U = ("beta", "g"), ("beta", "u")
G, H, U = ("alpha-beta", "g"), ("alpha-beta", "h"), ("alpha-beta", "u")
MSP, ENERGY = ("vanilla", "msp"), ("vanilla", "energy")
TABLE_1: tuple[Pair, ...] = (
    *(MSP, ENERGY, ("vanilla", "mahalanobis_logits"), ("vanilla", "gmm"), ("duq", "kernel"), ("sngp", "entropy")),
    *(("ddu", "gmm"), ("odin", "max_cosine"), ("hyper-free", "max_cosine"), ("ensemble", "entropy"), ALPHA_H, H, G),
)
CORRUPTIONS, SPLITS = ("motion_blur", "fog"), ("concept-splits",)
WHOLE = {"cifar100": "concept", "corrupted": "covariate", "svhn": "both", "tiny-imagenet": "both"}
BY_LADDER: dict[str, tuple[tuple[str, ...], list[tuple[Pair, Pair]]]] = {
    "g-sees-covariate": (CORRUPTIONS, [(G, H)]),
    "h-sees-splits": (SPLITS, [(H, G)]),
    "vanilla-prefers-concept-corrupted": (CORRUPTIONS, [(VANILLA_H, VANILLA_G)]),
    "vanilla-prefers-concept-splits": (SPLITS, [(VANILLA_H, VANILLA_G)]),
    "beta-raises-g": (CORRUPTIONS, [(G, ALPHA_G)]),
    "beta-alone-raises-g": (CORRUPTIONS, [(BETA_G, VANILLA_G)]),
    "alpha-raises-h": (SPLITS, [(ALPHA_H, VANILLA_H)]),
    "beats-beta-motion-blur": (("motion_blur",), [(U, BETA_U)]),
    "variants-beat-vanilla-splits": (SPLITS, [(U, VANILLA_U), (ALPHA_U, VANILLA_U), (BETA_U, VANILLA_U)]),
}
BY_SET: dict[str, tuple[tuple[str, ...], list[tuple[Pair, Pair]]]] = {
    "h-sees-concept": (("cifar100",), [(H, G)]),
    "u-best-corrupted": (("corrupted",), [(U, rival) for rival in TABLE_1]),
    "u-best-far": (("svhn",), [(U, rival) for rival in TABLE_1]),
    "u-best-concept": (("cifar100",), [(U, rival) for rival in TABLE_1]),
    "beats-vanilla-msp": (tuple(WHOLE), [(U, MSP)]),
    "beats-vanilla-energy": (tuple(WHOLE), [(U, ENERGY)]),
    "beta-helps-far": (("svhn", "tiny-imagenet"), [(U, ALPHA_H)]),
}
MEANS: dict[str, tuple[tuple[str, ...], list[tuple[Pair, Pair]]]] = {
    "beats-alpha-vanilla-corrupted": (CORRUPTIONS, [(U, ALPHA_U), (U, VANILLA_U)]),
    "h-best-of-alpha": (tuple(WHOLE), [(ALPHA_H, ALPHA_G), (ALPHA_H, ALPHA_U)]),
    "u-best-of-alpha-beta": (tuple(WHOLE), [(U, G), (U, H)]),
}
RIVALS = {"temperature": "temperature", "matrix": "matrix", "dirichlet": "dirichlet"}
MARGINS = {"u-best-far": 0.005, "u-best-concept": 0.005, "clean-ece": 0.002, "training-time": 0.05}
MARGINS |= {f"corrupted-ece-{rival}": 0.002 for rival in RIVALS}


class Drawn:
    """Rows with random values, so that no two contrasts are equal."""

    def __init__(self) -> None:
        self.rng, self.rows = np.random.default_rng(0), list[Row]()
        self.values: dict[tuple[str, str, int, str], float] = {}
        pairs = {*TABLE_1, U, *((model, score) for model in ("vanilla", "alpha", "beta") for score in "ghu")}
        for model, score in sorted(pairs):
            for shift in (*CORRUPTIONS, *SPLITS):
                kind = "concept" if shift in SPLITS else "covariate"
                for severity in range(6):  # 0 is the whole ladder, which no claim may take for a set or a step
                    self.add(model, shift, severity, score, "auroc", kind)
            for shift, kind in WHOLE.items():
                self.add(model, shift, 0, score, "auroc", kind)
        for model in ("vanilla", "alpha", "alpha-beta"):
            for shift, kind in (("clean", "none"), ("corrupted", "covariate")):
                for subject in ("none", *RIVALS, "alpha-beta"):
                    self.add(model, shift, 0, subject, "ece", kind)
            for seed in range(2):
                self.add(model, "clean", 0, "training", "seconds", "none", seed)
            self.add(model, "clean", 0, "norm", "median", "none")
            for shift in CORRUPTIONS:
                for severity in (1, 5):
                    self.add(model, shift, severity, "norm", "median", "covariate")
        for shift, kind in WHOLE.items():
            self.add("pixels", shift, 0, "histogram", "distance", kind)

    def add(self, model: str, shift: str, severity: int, subject: str, metric: str, kind: str, seed: int = 0) -> None:
        value = self.rng.uniform(0.5, 1)
        self.rows.append(row(model, shift, severity, subject, metric, value, seed, kind))
        self.values[model, shift, severity, subject] = value

    def contrast(self, shift: str, pairs: tuple[Pair, Pair]) -> float:
        """On a whole set, or the mean over the steps of a ladder."""
        steps = [0] if shift in WHOLE else range(1, 6)
        better, worse = ([self.values[model, shift, step, score] for step in steps] for model, score in pairs)
        return fmean(better) - fmean(worse)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn()


@pytest.fixture(scope="module")
def found(drawn: Drawn) -> dict[str, Finding]:
    return {one.claim.name: one for one in judge(Results.without_resamples(drawn.rows))}


def effects(finding: Finding) -> list[float]:
    """The members of a family without their mean, in order of size."""
    mean = finding.claim.rule == "mean" and len(finding.evidence) > 1
    return sorted(one.value for one in finding.evidence[mean:])


@pytest.mark.parametrize("name", [*BY_LADDER, *BY_SET])
def test_a_claim_compares_the_pairs_and_sets_that_it_names(drawn: Drawn, found: dict[str, Finding], name: str) -> None:
    shifts, pairs = (BY_LADDER | BY_SET)[name]
    assert effects(found[name]) == pytest.approx(sorted(drawn.contrast(s, pair) for s in shifts for pair in pairs))


@pytest.mark.parametrize("name", MEANS)
def test_a_claim_about_a_mean_takes_it_over_what_it_names(drawn: Drawn, found: dict[str, Finding], name: str) -> None:
    shifts, pairs = MEANS[name]
    assert effects(found[name]) == pytest.approx(
        sorted(fmean(drawn.contrast(s, pair) for s in shifts) for pair in pairs)
    )


def test_growth_is_the_rank_correlation_with_severity(drawn: Drawn, found: dict[str, Finding]) -> None:
    def growth(model: str, shift: str) -> list[float]:
        there = [score for score in "ghu" if (model, shift, 1, score) in drawn.values]
        ladders = [[drawn.values[model, shift, step, score] for step in range(1, 6)] for score in there]
        return [float(stats.spearmanr(range(5), ladder).statistic) for ladder in ladders]

    models = ("vanilla", "alpha", "beta", "alpha-beta")
    expected = [fmean(value for model in models for value in growth(model, shift)) for shift in CORRUPTIONS]
    assert effects(found["grows-with-corruption"]) == pytest.approx(sorted(expected))
    expected = [fmean(growth(model, "concept-splits")) for model in models]
    assert effects(found["grows-with-concept"]) == pytest.approx(sorted(expected))


def test_calibration_norms_pixels_and_time_are_compared_as_their_claims_say(
    drawn: Drawn, found: dict[str, Finding]
) -> None:
    v = drawn.values
    for name, shift, rival in (("clean-ece", "clean", "temperature"), *_corrupted_ece()):
        ours, theirs = v["alpha-beta", shift, 0, "alpha-beta"], v["vanilla", shift, 0, rival]
        assert effects(found[name]) == pytest.approx([theirs - ours])
    clean = v["alpha-beta", "clean", 0, "norm"]
    shorter = sorted(1 - fmean(v["alpha-beta", s, step, "norm"] for step in (1, 5)) / clean for s in CORRUPTIONS)
    assert effects(found["noise-lowers-norm"]) == pytest.approx(shorter)
    near, far = (v["pixels", shift, 0, "histogram"] for shift in ("cifar100", "svhn"))
    assert effects(found["pixel-histograms"]) == pytest.approx([far - 2 * near])
    times = {
        model: fmean(one.value for one in drawn.rows if (one.model, one.metric) == (model, "seconds"))
        for model in ("vanilla", "alpha-beta")
    }
    assert effects(found["training-time"]) == pytest.approx([1 - times["alpha-beta"] / times["vanilla"]])


def _corrupted_ece() -> list[tuple[str, str, str]]:
    return [(f"corrupted-ece-{rival}", "corrupted", rival) for rival in RIVALS]


def test_every_claim_is_computed_a_second_time() -> None:
    tried = {*BY_LADDER, *BY_SET, *MEANS, "grows-with-corruption", "grows-with-concept", "noise-lowers-norm"}
    tried |= {"pixel-histograms", "training-time", "clean-ece", *(name for name, _, _ in _corrupted_ece())}
    assert {claim.name for claim in CLAIMS} - tried == {"calibration-keeps-predictions", "calibration-keeps-scores"}


def test_what_calibration_changes_is_named_by_its_set_and_severity() -> None:
    """Two severities of one shift would otherwise read the same, and 0 is no severity."""
    places = [("clean", 0), ("motion_blur", 2), ("motion_blur", 5)]
    rows = [row("alpha-beta", *place, "alpha-beta", "predictions_changed", 0.01 * place[1]) for place in places]
    (finding,) = [f for f in judge(Results.without_resamples(rows)) if f.claim.name == "calibration-keeps-predictions"]
    assert [one.name for one in finding.evidence] == ["clean", "motion blur 2", "motion blur 5"]
    assert [one.value for one in finding.evidence] == [0, 0.02, 0.05]


@pytest.mark.parametrize(("count", "end"), [(1, "%"), (3, "%"), (4, " % and 1 more"), (5, " % and 2 more")])
def test_three_exceptions_are_listed_and_the_others_counted(count: int, end: str) -> None:
    rows = [row("alpha-beta", "fog", i, "alpha-beta", "predictions_changed", 0.01) for i in range(1, count + 1)]
    (finding,) = [f for f in judge(Results.without_resamples(rows)) if f.claim.name == "calibration-keeps-predictions"]
    assert finding.judgement == "contradicted"
    assert finding.note.startswith("fog 1 +1.0 [")
    assert finding.note.count(";") == min(count, 3) - 1
    assert finding.note.endswith(end)


def test_a_model_is_named_once_where_it_is_compared_with_itself(found: dict[str, Finding]) -> None:
    assert [one.name for one in found["h-sees-concept"].evidence] == ["cifar100: h − g"]
    assert found["beats-vanilla-msp"].evidence[1].name == "cifar100: alpha-beta u − vanilla msp"


def test_a_mean_over_one_set_has_the_name_of_the_set(drawn: Drawn, found: dict[str, Finding]) -> None:
    assert found["u-best-of-alpha-beta"].evidence[0].name == "mean of 4 sets: u − g"
    rows = [one for one in drawn.rows if one.shift == "cifar100"]
    (alone,) = [f for f in judge(Results.without_resamples(rows)) if f.claim.name == "u-best-of-alpha-beta"]
    assert [one.name for one in alone.evidence] == ["cifar100: u − g", "cifar100: u − h"]


def test_margins_are_those_that_the_page_of_results_states() -> None:
    assert {claim.name: claim.margin for claim in CLAIMS if claim.margin} == MARGINS


def test_which_claims_are_about_a_mean() -> None:
    """Of the others each effect must hold, or, for what calibration keeps, be 0."""
    about_sets = {"h-sees-concept", "beats-vanilla-msp", "beats-vanilla-energy", "beta-helps-far", "pixel-histograms"}
    about_corruptions = {
        "g-sees-covariate",
        "vanilla-prefers-concept-corrupted",
        "beta-raises-g",
        "beta-alone-raises-g",
    }
    growth = {"grows-with-corruption", "grows-with-concept", "noise-lowers-norm"}
    means = {claim.name for claim in CLAIMS if claim.rule == "mean"}
    assert means == about_sets | about_corruptions | growth
    assert {claim.name[:17] for claim in CLAIMS if claim.rule == "zero"} == {"calibration-keeps"}


def blurred(values: list[float]) -> Finding:
    """U of α-β on motion blur beside β alone, five seeds each: the seeds of α-β have these values, those of β .8."""
    rows = [
        row(model, "motion_blur", severity, "u", value=value, seed=seed, error=0.001)
        for model, seeds in (("beta", [0.8] * len(values)), ("alpha-beta", values))
        for severity in range(1, 6)
        for seed, value in enumerate(seeds)
    ]
    return next(f for f in judge(Results.without_resamples(rows)) if f.claim.name == "beats-beta-motion-blur")


@pytest.mark.parametrize(
    ("by", "judgement"), [(0.1, "holds"), (-0.1, "contradicted"), (0.01, "not shown"), (-0.01, "not shown")]
)
def test_the_ends_of_the_interval_decide_and_not_the_value(by: float, judgement: str) -> None:
    """Five seeds with a standard deviation of .016 about their mean: ±.01 is within their noise, ±.1 is not."""
    finding = blurred([0.8 + by + step for step in (-0.02, -0.01, 0.0, 0.01, 0.02)])
    assert finding.judgement == judgement
    (effect,) = finding.evidence
    assert effect.value == pytest.approx(by)
    assert effect.low < effect.value < effect.high


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("AUROC", "+1.2 [−0.1, +2.6] points of AUROC"),
        ("ECE", "+0.0123 [−0.0012, +0.0256] ECE"),
        ("rank correlation", "+0.01 [−0.00, +0.03] rank correlation"),
        ("share", "+1.2 [−0.1, +2.6] %"),
        ("distance", "+0.012 [−0.001, +0.026] distance"),
    ],
)
def test_an_estimate_has_the_digits_of_its_unit(unit: str, text: str) -> None:
    assert Estimate("name", 0.0123, -0.0012, 0.0256, 3, 1000, unit).text == text
