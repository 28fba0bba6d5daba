"""Claims: what was made true holds, what was made false is contradicted, what is not there is not measured."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rows_examples import made_results, paper_results, row
from shiftprism import claims
from shiftprism.claims import CLAIMS, JUDGEMENTS, PAPER, Finding, judge
from shiftprism.cli import app
from shiftprism.rows import Results, Row

RIVALS = list(dict.fromkeys((one.model, one.subject) for one in PAPER if one.table == 1))
RIVALS.remove(("alpha-beta", "u"))


def by_name(results: Results) -> dict[str, Finding]:
    return {one.claim.name: one for one in judge(results)}


def changed(results: Results, change: "dict[tuple[str, str, str], float]", shifts: str = "") -> Results:
    """Other values for (model, subject, metric), on the shifts named or on all, with the resamples moved along."""
    rows, resamples = list[Row](), results.resamples.copy()
    for i, one in enumerate(results.rows):
        value = change.get((one.model, one.subject, one.metric))
        if value is not None and shifts in ("", one.shift):
            resamples[i] += np.float32(value - one.value)
            one = replace(one, value=value)
        rows.append(one)
    return Results(rows, resamples)


def test_names_are_distinct_and_every_claim_has_its_place() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 28
    assert all(claim.place and claim.sentence.endswith((".", ".)")) for claim in CLAIMS)


@pytest.mark.parametrize(
    "names", [("cifar10", "cifar100", "svhn"), ("digits", "unseen digits", "photographs"), ("mine", "new", "factory")]
)
def test_all_that_was_made_to_hold_holds_whatever_the_data_are_called(names: tuple[str, str, str]) -> None:
    found = judge(made_results(3, *names))
    assert {one.claim.name: one.judgement for one in found} == {claim.name: "holds" for claim in CLAIMS}
    assert all(one.data == names[0] for one in found)
    assert "few seeds (3)" in found[0].note


def test_no_claim_contradicts_the_numbers_of_the_paper_itself() -> None:
    found = judge(paper_results())
    assert [f"{one.data} {one.claim.name}: {one.note}" for one in found if one.judgement == "contradicted"] == []
    held = {(one.data, one.claim.name) for one in found if one.judgement == "holds"}
    detection = {"grows-with-corruption", "grows-with-concept", "g-sees-covariate", "h-sees-concept", "h-sees-splits"}
    models = {"beta-raises-g", "alpha-raises-h", "u-best-far", "beats-vanilla-msp", "u-best-of-alpha-beta"}
    assert {("cifar10", name) for name in detection | models | {"clean-ece"}} <= held
    assert ("cifar100", "clean-ece") in held


def test_the_papers_exception_is_mentioned() -> None:
    (found,) = [one for one in judge(paper_results()) if (one.data, one.claim.name) == ("cifar10", "g-sees-covariate")]
    assert found.judgement == "holds"
    assert "2 of 3 hold on their own, against it: shot noise −1.1" in found.note
    assert [line.name for line in found.evidence] == ["mean of 3", "motion blur", "zoom blur", "shot noise"]
    g, h = [64.78, 73.21, 87.01, 90.63, 94.55], [68.62, 76.47, 87.26, 90.00, 93.42]  # Table 7, α-β
    assert found.evidence[3].value == pytest.approx((sum(g) - sum(h)) / 500)


def test_what_points_the_other_way_is_contradicted() -> None:
    found = by_name(changed(made_results(), {("alpha-beta", "g", "auroc"): 0.55}))
    assert found["g-sees-covariate"].judgement == "contradicted"
    assert found["g-sees-covariate"].note.startswith("mean of 4 −")
    assert found["beta-raises-g"].judgement == "contradicted"
    assert found["h-sees-concept"].judgement == "holds"


def test_what_is_within_noise_is_not_shown_and_not_contradicted() -> None:
    alike = [
        row(model, "motion_blur", severity, "u", value=0.8 + 0.001 * seed, seed=seed, error=0.01)
        for model in ("beta", "alpha-beta")
        for severity in range(1, 6)
        for seed in range(5)
    ]
    found = by_name(Results.without_resamples(alike))["beats-beta-motion-blur"]
    assert (found.judgement, found.note) == ("not shown", "the interval includes 0")


def test_a_claim_of_not_worse_has_a_margin() -> None:
    ours, theirs = ("alpha-beta", "alpha-beta", "ece"), ("vanilla", "temperature", "ece")
    for by, judgement in ((0.0015, "holds"), (0.002, "not shown"), (0.004, "contradicted"), (-0.004, "holds")):
        found = by_name(changed(made_results(), {ours: 0.01 + by, theirs: 0.01}, "clean"))["clean-ece"]
        assert found.judgement == judgement
        assert found.evidence[0].value == pytest.approx(-by)


def test_time_is_compared_as_a_share() -> None:
    seconds = {"vanilla": 100.0, "alpha-beta": 120.0}
    rows = [
        row(model, "clean", 0, "training", "seconds", value + seed, seed, "none")
        for model, value in seconds.items()
        for seed in range(3)
    ]
    found = by_name(Results.without_resamples(rows))["training-time"]
    assert found.judgement == "contradicted"
    assert found.evidence[0].value == pytest.approx(-20 / 101)
    single = by_name(Results.without_resamples([one for one in rows if one.seed == 0]))["training-time"]
    assert (single.judgement, single.note) == ("not measured", "no rows of training times of two seeds")
    mixed = [one for one in rows if one.seed == 0 or one.model == "vanilla"]  # each needs two
    assert by_name(Results.without_resamples(mixed))["training-time"].judgement == "not measured"
    for model in seconds:  # the other was not trained
        alone = by_name(Results.without_resamples([one for one in rows if one.model == model]))["training-time"]
        assert (alone.judgement, alone.note) == ("not measured", "no rows of training times of vanilla and alpha-beta")


def test_one_changed_prediction_is_one_too_many() -> None:
    found = by_name(changed(made_results(), {("alpha-beta", "alpha-beta", "predictions_changed"): 1e-4}, "corrupted"))
    assert found["calibration-keeps-predictions"].judgement == "contradicted"
    assert found["calibration-keeps-scores"].judgement == "holds"


def test_best_means_better_than_each_rival() -> None:
    results = made_results()
    rival = [
        replace(one, model="odin", subject="max_cosine", value=min(one.value + 0.02, 1.0))
        for one in results.where(model="alpha-beta", subject="u", metric="auroc", severity=0).rows
    ]
    with_rival = Results.concat(
        [results, Results.without_resamples([replace(one, weights=one.model) for one in rival])]
    )
    found = by_name(with_rival)
    assert found["u-best-corrupted"].judgement == "contradicted"
    assert found["u-best-corrupted"].note.startswith("corrupted: over odin max_cosine −2.0")
    assert found["u-best-corrupted"].deciding[0].name == "corrupted: over odin max_cosine"
    assert "vanilla gmm" in found["u-best-far"].note  # a rival that was not measured


def test_a_rival_of_one_seed_neither_beats_nor_is_beaten() -> None:
    """However far ahead it is: another run of it may be far behind."""
    results = made_results(5)
    for ahead in (0.02, -0.2):
        rival = [
            replace(one, model="odin", subject="max_cosine", value=one.value + ahead, weights="odin")
            for one in results.where(model="alpha-beta", subject="u", metric="auroc", severity=0, seed=0).rows
        ]
        found = by_name(Results.concat([results, Results.without_resamples(rival)]))["u-best-corrupted"]
        assert found.judgement == "not shown"
        assert found.note.startswith("one seed decides nothing for corrupted: over odin max_cosine")


def test_a_contradiction_by_one_of_many_rivals_needs_holms_correction() -> None:
    """A rival ahead at 3 % alone is no contradiction among twelve; alone it is one."""
    ours, rivals = ("alpha-beta", "u"), [pair for pair in RIVALS if pair[0] != "hyper-free"]
    luck = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # standard error √.5 a model: t = −2.8 with 8 degrees of freedom

    def rows_of(pair: tuple[str, str], mean: float) -> list[Row]:
        return [row(pair[0], "corrupted", 0, pair[1], value=mean + 1e-3 * z, seed=s) for s, z in enumerate(luck)]

    def judgement(against: "list[tuple[str, str]]") -> Finding:
        ahead = {("odin", "max_cosine"): 0.8028}
        rows = rows_of(ours, 0.8) + [one for pair in against for one in rows_of(pair, ahead.get(pair, 0.8))]
        return by_name(Results.without_resamples(rows))["u-best-corrupted"]

    assert judgement([("odin", "max_cosine")]).judgement == "contradicted"
    among = judgement(rivals)
    assert among.judgement == "not shown"
    assert "below 0, but not with Holm's correction, for corrupted: over odin max_cosine" in among.note


def test_features_shorter_at_the_highest_severity_alone_are_not_shorter() -> None:
    rows = [row("alpha-beta", "clean", 0, "norm", "median", 2 + 0.01 * s, s, "none") for s in range(5)] + [
        row("alpha-beta", "fog", step, "norm", "median", 1.9 if step == 5 else 2.2, s)
        for s in range(5)
        for step in range(1, 6)
    ]
    found = by_name(Results.without_resamples(rows))["noise-lowers-norm"]
    assert found.judgement == "contradicted"


def test_a_part_that_is_missing_is_not_taken_for_granted() -> None:
    found = by_name(made_results().where(model=("vanilla", "alpha", "alpha-beta")))
    assert found["variants-beat-vanilla-splits"].judgement == "not measured"
    assert found["variants-beat-vanilla-splits"].note.startswith(
        "what was measured agrees, but there are no rows of beta; "
    )
    assert len(found["variants-beat-vanilla-splits"].evidence) == 2
    assert found["beats-beta-motion-blur"] == Finding(
        found["beats-beta-motion-blur"].claim, "not measured", [], "no rows of beta u", "cifar10"
    )


def test_one_seed_is_said_to_be_one() -> None:
    found = by_name(made_results(1))
    assert "one seed" in found["g-sees-covariate"].note
    assert found["pixel-histograms"].note == "distances: cifar100 0.050, svhn 0.300"  # no training in it


def test_one_seed_shows_no_claim_that_training_is_in() -> None:
    """Its interval is over images alone. Nor does it contradict one."""
    held = {name for name, one in by_name(made_results(1)).items() if one.judgement == "holds"}
    assert held == {"pixel-histograms", "calibration-keeps-predictions", "calibration-keeps-scores"}
    found = by_name(changed(made_results(1), {("alpha-beta", "g", "auroc"): 0.55}))
    assert found["g-sees-covariate"].judgement == "not shown"
    assert found["beta-alone-raises-g"].judgement == "not shown"
    note = "one seed decides nothing; 0 of 4 hold on their own; one seed: another training run may differ"
    assert found["beta-alone-raises-g"].note == note


def test_a_rival_of_one_seed_leaves_the_noise_of_our_seeds() -> None:
    three, one = made_results(), made_results(1)
    mixed = Results.concat([three.where(model=("alpha", "beta", "alpha-beta", "pixels")), one.where(model="vanilla")])
    found = by_name(mixed)
    assert found["u-best-of-alpha-beta"].judgement == "holds"  # α-β alone, three seeds
    assert found["beats-vanilla-msp"].judgement == "not shown"  # every contrast is with a network of one seed


def test_scope_follows_what_the_paper_can_support() -> None:
    found = by_name(made_results(3, "cifar100", "cifar10", "svhn"))
    assert found["u-best-concept"].note == "the paper makes no such claim for cifar100"
    assert "without cifar10" in found["beats-vanilla-msp"].note
    assert [line.name.split(":")[0] for line in found["beats-vanilla-msp"].evidence[1:]] == ["corrupted", "svhn"]


def test_findings_of_two_protocols_are_kept_apart() -> None:
    results = made_results(1)
    paper = Results([replace(one, protocol="paper") for one in results.rows], results.resamples)
    found = judge(Results.concat([results, paper]))
    assert list(dict.fromkeys(one.data for one in found)) == ["cifar10", "cifar10 (paper protocol)"]
    assert len(found) == 2 * len(CLAIMS)


def test_findings_survive_the_file(tmp_path: Path) -> None:
    found = judge(made_results(2))
    claims.write_findings(tmp_path / "claims.json", found)
    assert claims.read_findings(tmp_path / "claims.json") == found
    stored = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert {"claim", "sentence", "place", "data", "judgement", "note", "evidence"} == set(stored[0])
    wrong = ({"claim": "no-such-claim"}, stored[0] | {"judgement": "perhaps"}, {"judgement": "holds"})
    for text in (*(json.dumps([one]) for one in wrong), "[" * 100_000):
        (tmp_path / "claims.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"Expected `path` to be a file of findings but got .*claims\.json \("):
            claims.read_findings(tmp_path / "claims.json")


def test_judgements_are_counted() -> None:
    found = judge(made_results(2).where(model=("vanilla", "alpha-beta")))
    counts = {name: sum(one.judgement == name for one in found) for name in JUDGEMENTS}
    assert sum(counts.values()) == len(CLAIMS)
    assert min(counts["holds"], counts["not measured"]) > 0
    text = f"{counts['holds']} hold, {counts['contradicted']} contradicted, {counts['not shown']} not shown, "
    assert claims.count_judgements(found) == f"{text}{counts['not measured']} not measured"


def test_no_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match="Expected `results` to be rows of a benchmark"):
        judge(Results.without_resamples([]))


def test_the_command_prints_them(tmp_path: Path) -> None:
    made_results(2).where(model=("vanilla", "alpha-beta")).write(tmp_path)
    run = CliRunner().invoke(app, ["claims", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "✓ holds" in run.output
    assert "· not measured: beats-beta-motion-blur (no rows of beta u)" in run.output
    run = CliRunner().invoke(app, ["claims", str(tmp_path / "rows.jsonl"), "--format", "json"])
    assert [one["judgement"] for one in json.loads(run.output)] == [
        one.judgement for one in judge(Results.read(tmp_path / "rows.jsonl"))
    ]
    run = CliRunner().invoke(app, ["claims", str(tmp_path), "--format", "md"])
    lines = [line for line in run.output.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(CLAIMS)
    assert {line.count(" | ") for line in lines} == {3}
    every = CliRunner().invoke(app, ["claims", str(tmp_path), "--evidence"]).output
    assert every.count("zoom blur") > 3


def test_the_command_judges_other_data_only_when_asked(tmp_path: Path) -> None:
    made_results(2, "mine", "new", "factory").where(model=("vanilla", "alpha-beta")).write(tmp_path)
    refused = CliRunner().invoke(app, ["claims", str(tmp_path)])
    message = "the data that the paper's claims are about (cifar10, cifar100, digits) but got rows of mine; judge them"
    assert message in str(refused.exception)
    judged = CliRunner().invoke(app, ["claims", str(tmp_path), "--any-data"])
    assert judged.exit_code == 0
    assert "✓ holds" in judged.output


def test_the_command_runs_without_torch(tmp_path: Path) -> None:
    made_results(2).where(model=("vanilla", "alpha-beta")).write(tmp_path)
    code = f"""
import sys
sys.argv = ["shiftprism", "claims", {str(tmp_path)!r}]
from shiftprism.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✓ holds" in done.stdout


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["claims", str(tmp_path)])
    assert isinstance(run.exception, ValueError)
    assert "a folder with rows.jsonl" in str(run.exception)
    (tmp_path / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    run = CliRunner().invoke(app, ["claims", str(tmp_path)])
    assert "line 1" in str(run.exception)


def test_a_ladder_of_three_steps_has_a_correlation_and_one_of_two_has_none() -> None:
    for steps, judgement in ((3, "holds"), (2, "not measured")):
        rows = [
            row("vanilla", "fog", step, "g", value=0.6 + 0.1 * step + 0.001 * seed, seed=seed)
            for step in range(1, steps + 1)
            for seed in range(5)
        ]
        assert by_name(Results.without_resamples(rows))["grows-with-corruption"].judgement == judgement


def test_a_rival_without_rows_is_named() -> None:
    """What was measured agrees; the claim is about both rivals."""
    found = by_name(made_results().where(model=("vanilla", "alpha-beta")))["beats-alpha-vanilla-corrupted"]
    assert found.judgement == "not measured"
    assert found.note.startswith("what was measured agrees, but there are no rows of alpha u")


def test_an_interval_above_a_margin_is_not_called_below_it() -> None:
    """Of a claim of "not worse" within half a point: half a point ahead, with an interval on both sides."""
    luck = np.array([-8.0, -4.0, 0.0, 4.0, 8.0]) * 2e-3
    pairs = {("alpha-beta", "u"): 0.8, **dict.fromkeys(RIVALS, 0.795)}
    rows = [
        row(model, "svhn", 0, score, value=mean + z, seed=seed, kind="both")
        for (model, score), mean in pairs.items()
        for seed, z in enumerate(luck)
    ]
    found = by_name(Results.without_resamples(rows))["u-best-far"]
    assert found.judgement == "not shown"
    assert found.note.startswith("the interval includes −0.5 points of AUROC for svhn: over ")
