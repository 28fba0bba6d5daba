"""docs/findings.md is short, and each of its numbers is that of the published rows."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from lengths import length_gains
from shift_goals import read_networks
from shiftprism import claims
from shiftprism.claims import Finding
from shiftprism.report._tables import rank_scores, whole_sets
from shiftprism.rows import Effect, Measured, Results

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
EFFECTS = [
    # (ID data, claim, start of the effect's name, its sign in the text, what the page says)
    ("cifar10", "g-sees-covariate", "mean", 1, "by 6.2 points [5.2, 7.1]"),
    ("cifar10", "h-sees-concept", "cifar100", 1, "by 8.0 [7.1, 8.9]"),
    ("cifar100", "h-sees-concept", "cifar10", 1, "15.3 [14.4, 16.3]"),
    ("cifar10", "beats-vanilla-energy", "mean", 1, "1.3 points [1.0, 1.7]"),
    ("cifar10", "beats-vanilla-energy", "cifar100", -1, "0.9 points [0.6, 1.3]"),
    ("cifar10", "variants-beat-vanilla-splits", "alpha-beta", -1, "1.0 [0.6, 1.3] below U of vanilla"),
    ("cifar100", "variants-beat-vanilla-splits", "alpha-beta", -1, "2.7 [1.5, 4.0]"),
    ("cifar10", "h-best-of-alpha", "mean of 4 sets: h − u", -1, "1.8 points [0.9, 2.6]"),
    ("cifar10", "g-sees-covariate", "impulse noise", -1, "13.0 points [4.5, 21.4] below h"),
    ("cifar10", "noise-lowers-norm", "mean", 1, "35 % [32, 37]"),
]


@pytest.fixture(scope="module")
def findings(published_findings: list[Finding]) -> dict[tuple[str, str], Finding]:
    return {(one.data, one.claim.name): one for one in published_findings}


def test_the_page_is_short_and_has_four_figures() -> None:
    assert len([word for word in TEXT.split() if re.search(r"\w", word)]) <= 600  # bars of a table are no words
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert len(figures) == len(set(figures)) == 4
    assert all((ROOT / "docs" / figure).is_file() for figure in figures)


@pytest.mark.parametrize(("data", "claim", "effect", "sign", "said"), EFFECTS)
def test_an_effect_is_that_of_the_rows(
    findings: dict[tuple[str, str], Finding], data: str, claim: str, effect: str, sign: int, said: str
) -> None:
    one = next(one for one in findings[data, claim].evidence if one.name.startswith(effect))
    value, low, high = (float(text) for text in re.findall(r"\d+\.?\d*", said)[:3])
    digits = len(said.split()[-1].strip("]").partition(".")[2]) if "%" in said else 1
    ends = sorted((100 * sign * one.low, 100 * sign * one.high))
    assert [round(100 * sign * one.value, digits), *(round(end, digits) for end in ends)] == [value, low, high]
    assert said in WORDS


def test_judgements_are_those_that_the_page_implies(findings: dict[tuple[str, str], Finding]) -> None:
    held = ("g-sees-covariate", "h-sees-concept", "grows-with-corruption", "noise-lowers-norm", "beats-vanilla-energy")
    for name in (*held, "calibration-keeps-predictions", "calibration-keeps-scores"):
        assert findings["cifar10", name].judgement == "holds", name
    motion = findings["cifar10", "beats-beta-motion-blur"]
    assert motion.judgement == "holds"
    assert motion.deciding[0].value > 0
    assert findings["cifar10", "beats-alpha-vanilla-corrupted"].judgement == "holds"
    assert findings["cifar100", "g-sees-covariate"].judgement == "not shown"
    for data, name in (("cifar10", "h-best-of-alpha"), ("cifar10", "variants-beat-vanilla-splits")):
        assert findings[data, name].judgement == "contradicted"


def test_ranks_and_calibration_errors_are_those_of_the_rows(held_out_rows: Results) -> None:
    (measured,) = (one for one in Measured.split(held_out_rows) if one.data == "cifar10")
    ranking = rank_scores(measured, whole_sets(measured))
    place = next(number for number, one in enumerate(ranking) if one.pair == ("alpha-beta", "u"))
    behind = 100 * (ranking[0].effect.value - ranking[place].effect.value)
    assert f"Of {len(ranking)} pairs of model and score" in WORDS
    assert ranking[0].pair == ("alpha-beta-mirrored", "spectrum")
    assert f"number {place + 1}, {behind:.1f} points below the first, `spectrum` of α-β on mirror images" in WORDS
    other = next(one for one in ranking if one.pair[1] != "spectrum")
    assert other.pair == ("alpha-beta-mirrored", "prism")
    assert f"{100 * (other.effect.value - ranking[place].effect.value):.1f} below the best other" in WORDS
    for shift, said in (("clean", "ECE 0.0317 on clean images, vanilla 0.0211"), ("corrupted", "0.1621 and 0.1457")):
        found = [measured.effect(model, shift, 0, "none", "ece") for model in ("alpha-beta", "vanilla")]
        assert re.findall(r"0\.\d{4}", said) == [f"{one.value:.4f}" for one in found if isinstance(one, Effect)]
        assert said in WORDS


def test_numbers_of_spectrum_and_shift_aware_are_those_of_the_rows(held_out_rows: Results) -> None:
    """Means over the networks that have rows of both, vanilla first."""
    networks = [list(read_networks(held_out_rows, [model]).values()) for model in ("vanilla", "alpha-beta")]
    assert f"In {len(networks[0])} vanilla and {len(networks[1])} α-β networks `spectrum`" in WORDS

    def percents(score: str, shift: str = "") -> str:
        """On one set, or the mean of the four."""
        values = [[one(shift, score, "auroc") if shift else one.mean(score) for one in own] for own in networks]
        return " and ".join(f"{100 * fmean(own):.1f}" for own in values)

    def errors(calibrator: str) -> str:
        found = [fmean(one("corrupted", calibrator, "ece") for one in own) for own in networks]
        return " and ".join(f"{one:.3f}".removeprefix("0") for one in found)

    assert f"a mean AUROC of {percents('spectrum')}, U {percents('u')}" in WORDS
    for shift in ("corrupted", "cifar100"):
        assert f"({percents('spectrum', shift)} against {percents('u', shift)})" in WORDS
    assert f"{errors('shift-aware')} on corrupted images, temperature scaling {errors('temperature')}" in WORDS


def test_the_leads_after_twelve_and_sixty_epochs_are_those_of_the_rows(held_out_rows: Results) -> None:
    longer = Results.read(ROOT / "results" / "long")
    gains = length_gains(Results.concat([held_out_rows, longer])).splitlines()

    def leads(scores: str, shift: str) -> tuple[str, str]:
        """After 12 and after 60 epochs, with intervals; without signs of positive ends."""
        line = next(one for one in gains if f"{scores} | {shift}" in one)
        *_, short, long, _, _ = (cell.strip().replace("[+", "[").replace(", +", ", ") for cell in line.split("|"))
        return short, long

    mean, unseen, gen = leads("vanilla u", "mean"), leads("vanilla u", "cifar100"), leads("vanilla gen", "cifar100")
    corrupted = leads("vanilla u", "corrupted")
    value, _, interval = mean[1].removeprefix("+").partition(" ")
    assert f"{value} points {interval} above U of vanilla in the mean" in WORDS
    assert f"after 12 epochs {mean[0].removeprefix('+')}" in WORDS
    assert f"On unseen classes it is {unseen[1]} in place of {unseen[0].partition(' ')[0]}" in WORDS
    assert f"with `gen` {gen[1]} in place of {gen[0].partition(' ')[0]}" in WORDS
    assert f"on corrupted images {corrupted[1]} in place of {corrupted[0].partition(' ')[0]}" in WORDS


@pytest.mark.slow
def test_how_many_open_claims_ten_seeds_would_settle(held_out_rows: Results) -> None:
    opened = claims.open_claims(held_out_rows)
    numbers = {5: "five"}
    settled = sum(one.required_seeds is not None for one in opened)
    assert f"would settle {numbers[settled]} of {len(opened)} open claims" in WORDS
