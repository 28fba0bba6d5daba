"""What stands in a README: short tables, where U of α-β stands, how many claims hold."""

from pathlib import Path

import numpy as np
import pytest

from rows_examples import made_results, row
from shiftprism import claims, report
from shiftprism.report import judgement_counts, make_tables, rank_table, short_tables, standing
from shiftprism.report._tables import CHOSEN_ON
from shiftprism.rows import Results


def test_short_tables_have_only_what_was_measured_and_not_the_papers_numbers() -> None:
    tables = short_tables(made_results())
    assert list(tables) == ["cifar10-short-detection", "cifar10-short-calibration"]
    for table in tables.values():
        assert table.body
        assert all(any(cell.seeds for cell in line) for line in table.body)
        assert not any(cell.paper for line in table.body for cell in line)
        assert all(len(line) == len(table.head) for line in table.body)


def with_winner(seeds: int = 1) -> Results:
    """The example, and a score of a model that no short table asks for and that beats everything."""
    places = [("cifar100", "concept"), ("corrupted", "covariate"), ("svhn", "both"), ("fog", "covariate")]
    best = [row("sngp", s, 0, "vim", "auroc", 0.9999, seed, kind) for s, kind in places for seed in range(seeds)]
    return Results.concat([made_results(), Results.without_resamples(best)])


def test_whoever_is_best_of_all_is_in_the_short_table_and_its_rank_with_it() -> None:
    table = short_tables(with_winner())["cifar10-short-detection"]
    pairs = len(make_tables(with_winner())["cifar10-ranking"].body)
    (line,) = [line for line in table.body if (line[0].text, line[1].text) == ("sngp", "vim")]
    assert line[-1].text == f"1 of {pairs}"
    ranks = [int(line[-1].text.split()[0]) for line in table.body]
    means = [line[-2].mean for line in table.body]
    assert sorted(range(len(ranks)), key=lambda i: ranks[i]) == sorted(range(len(means)), key=lambda i: -means[i])


def test_the_standing_names_what_is_significantly_better() -> None:
    alone, beaten = (standing(results, "cifar10").splitlines() for results in (made_results(), with_winner()))
    assert "U of α-β is number 1 of " in alone[0]
    assert "Significantly better: none. Better, but not significantly: none." in alone[0]
    assert "U of α-β is number 2 of " in beaten[0]
    assert "Ahead with one seed, which decides nothing: `vim` of sngp (100.0)." in beaten[0]
    clearly = standing(with_winner(3), "cifar10").splitlines()
    assert "Significantly better: `vim` of sngp (100.0 ± 0.0)." in clearly[0]
    (ece,) = [line for line in alone if "mean ECE, corrupted" in line]
    assert "α-β calibrated by α-β is number " in ece
    assert "on which `prism` and `fisher` were not chosen" in alone[1]


def test_a_rank_lies_between_those_significantly_better_and_those_significantly_worse() -> None:
    """Two pairs are ahead of U of α-β, two behind, one cannot be told from it, and one has a single seed."""
    near = {("alpha-beta", "spectrum"): 0.95, ("ddu", "knn"): 0.9, ("alpha-beta", "u"): 0.8, ("gsd", "gen"): 0.7}
    means = near | {("vanilla", "energy"): 0.801, ("sngp", "msp"): 0.6}
    wide = {("vanilla", "energy"): 0.01}
    rows = [
        row(model, "svhn", 0, score, value=mean + wide.get((model, score), 0.001) * (seed - 1), seed=seed, kind="both")
        for (model, score), mean in means.items()
        for seed in range(3)
    ]
    rows.append(row("duq", "svhn", 0, "kernel", value=0.85, kind="both"))
    table = rank_table(Results.without_resamples(rows), "cifar10")
    assert "among 6 with seeds" in table.head
    found = {line[0].text: [cell.text for cell in line[1:6]] for line in table.body}
    assert found == {
        "`spectrum` of α-β": ["alpha-beta", "spectrum", "1 of 7", "1", "1 to 1"],
        "highest score of others, any network": ["ddu", "knn", "2 of 7", "2", "2 to 2"],
        "highest score of others, network of others": ["ddu", "knn", "2 of 7", "2", "2 to 2"],
        "U of α-β": ["alpha-beta", "u", "5 of 7", "4", "3 to 4"],
    }


def test_the_second_ranking_is_over_corruptions_that_no_score_was_chosen_on() -> None:
    results = made_results()
    table = make_tables(results)["cifar10-ranking-corruptions"]
    sets = ("zoom_blur", "fog")
    assert not set(sets) & set(CHOSEN_ON)
    assert ", ".join(name.replace("_", " ") for name in sets) in table.note
    own = results.where(model="alpha", subject="g", metric="auroc", severity=0, shift=sets).rows
    (line,) = [line for line in table.body if (line[1].text, line[2].text) == ("alpha", "g")]
    assert line[3].mean == pytest.approx(np.mean([one.value for one in own]))


def test_every_claim_is_counted_once() -> None:
    found = claims.judge(made_results())
    head, _, line = judgement_counts(found).splitlines()
    counts = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    numbers = [int(text.strip(" |")) for text in list(counts.values())[1:]]
    assert sum(numbers) == len(claims.CLAIMS)
    assert numbers[0] == sum(one.judgement == "holds" for one in found)


def test_findings_as_markdown_have_a_row_each() -> None:
    text = claims.to_markdown(claims.judge(made_results()))
    assert sum(text.count(f"\n| {sign} {name} |") for name, sign in claims.SIGNS.items()) == len(claims.CLAIMS)


def test_publishing_without_a_page_writes_none(tmp_path: Path) -> None:
    made_results(1).where(shift=("clean", "fog", "svhn")).write_brief(tmp_path)
    report.publish(tmp_path, page=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"rows.jsonl", "claims.json", "tables", "figures"} == names


def test_published_rows_say_what_the_whole_results_say(tmp_path: Path) -> None:
    whole = made_results()
    whole.write_brief(tmp_path)
    brief = Results.read(tmp_path)
    assert standing(brief, "cifar10") == standing(whole, "cifar10")
    found = [(one.claim.name, one.judgement) for one in claims.judge(brief)]
    assert found == [(one.claim.name, one.judgement) for one in claims.judge(whole)]
    for name, table in short_tables(whole).items():
        assert report.to_markdown(short_tables(brief)[name]) == report.to_markdown(table)
