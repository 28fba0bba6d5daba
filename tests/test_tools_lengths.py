"""tools/lengths.py: what longer training changes, beside hand-worked differences and the judgements of claims."""

from dataclasses import replace

import numpy as np
from scipy import stats

from lengths import CONTRASTS, LONG, SETS, length_claims, length_gains, length_ranking
from rows_examples import made_results, row
from shiftprism import claims
from shiftprism.rows import RESAMPLES, Results, Row


def planted(seeds: int) -> Results:
    """α-β leads by 1 point after 12 epochs and by 4 after 60, on every set and with every score."""
    lead = {"vanilla": 0.0, "alpha-beta": 0.01, "vanilla-long": 0.05, "alpha-beta-long": 0.09}
    subjects = {score for pair in CONTRASTS for _, score in pair}
    made = [
        row(model, one, subject=score, value=0.8 + more + 0.001 * (-1) ** seed, seed=seed)
        for model, more in lead.items()
        for one in SETS
        for score in sorted(subjects)
        for seed in range(seeds)
    ]
    values = np.array([one.value for one in made], np.float32)
    return Results(made, np.repeat(values[:, None], RESAMPLES, 1))


def test_leads_and_their_growth_are_differences_of_means() -> None:
    _, _, *lines = length_gains(planted(4)).splitlines()
    assert len(lines) == len(CONTRASTS) * (len(SETS) + 1)
    for line in lines:
        *_, short, long, growth, _ = (cell.strip() for cell in line.split("|"))
        assert [text.partition(" ")[0] for text in (short, long, growth)] == ["+1.0", "+4.0", "+3.0"]
        assert "[+2." in growth  # the interval: seeds differ by a tenth of a point either way


def test_one_seed_has_no_interval() -> None:
    lines = length_gains(planted(1)).splitlines()
    assert "| +1.0 (one seed) | +4.0 (one seed) | +3.0 (one seed) |" in lines[2]


def test_both_lengths_are_judged_by_the_same_rules() -> None:
    """Shifted copies of the same rows as the longer networks: the same judgements, those of claims.judge."""
    short = made_results(3).where(model=("vanilla", "alpha-beta"))
    longer: list[Row] = [replace(one, model=one.model + LONG) for one in short.rows]
    both = Results([*short.rows, *longer], np.concatenate([short.resamples] * 2))
    _, _, *lines = length_claims(both).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(twelve == sixty for _, twelve, sixty in cells)
    found = [one for one in claims.judge(short) if one.judgement != "not measured"]
    assert [(sentence, twelve.partition(";")[0]) for sentence, twelve, _ in cells] == [
        (one.claim.sentence, one.judgement) for one in found
    ]
    assert len(found) > 5


def test_the_best_scores_and_u_are_shown() -> None:
    made = [
        row("vanilla", one, subject=score, value=0.7 + 0.01 * place, kind="both")
        for one in SETS
        for place, score in enumerate(("u", "g", "gen", "knn", "style"))
    ]
    _, _, *lines = length_ranking(Results.without_resamples(made)).splitlines()
    assert [line.split(" | ")[2] for line in lines] == ["style", "knn", "gen", "u"]
    assert lines[0] == "| vanilla | 1 | style | 74.0 | 74.0 | 74.0 | 74.0 | 74.0 | one seed |"


def test_the_interval_of_a_mean_is_over_its_own_seeds() -> None:
    """Seeds that are a fifth of a point apart: ± t · s / √4, without image noise, as `planted` has none."""
    line = next(one for one in length_ranking(planted(4)).splitlines() if "vanilla-long | 4 | u" in one)
    half = stats.t.ppf(0.975, 3) * np.std([0.1, -0.1, 0.1, -0.1], ddof=1) / 2
    assert line.endswith(f"| 85.0 | {85 - half:.1f} to {85 + half:.1f} |")
