"""Rows: what is measured agrees with the metrics, survives a file, and a broken line is named."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftprism import metrics
from shiftprism.benchmark import (
    DIGIT_CORRUPTIONS,
    RESAMPLES,
    Evidence,
    Results,
    Row,
    Summary,
    digits,
    measure,
    read_rows,
    summarise,
    write_rows,
)
from shiftprism.benchmark._measure import READY, Measurement
from shiftprism.scores import KNN, SCORES
from shiftprism.training import PRESETS

Study = tuple[list[Row], list[Evidence]]


@pytest.fixture(scope="module")
def study() -> Study:
    return digits(("alpha-beta",), (0, 1), replace(PRESETS["smoke"], epochs=3))


def value(rows: list[Row], *key: object) -> float:
    (found,) = [row.value for row in rows if (row.shift, row.severity, row.subject, row.metric, row.seed) == key]
    return found


def test_rows_cover_the_whole_grid(study: Study) -> None:
    rows, evidence = study
    found = {(row.seed, row.shift, row.severity, row.subject) for row in rows if row.metric == "auroc"}
    places = {("unseen digits", 0), ("corrupted", 0)}
    places |= {(name, severity) for name in DIGIT_CORRUPTIONS for severity in range(6)}
    assert found == {(seed, *place, score) for seed in (0, 1) for place in places for score in READY}
    calibrated = {(row.shift, row.severity, row.subject) for row in rows if row.metric == "ece"}
    assert len(calibrated) == (1 + 15 + 1) * 3
    assert len({row.weights for row in rows}) == len(evidence) == 2
    assert {row.severity for row in rows if row.metric == "tnr_at_tpr95"} == {0}
    keys = [replace(row, value=0.0, error=0.0) for row in rows]
    assert len(set(keys)) == len(keys)


def test_rows_are_what_the_metrics_say(study: Study) -> None:
    rows, evidence = study
    one = evidence[1]
    inside = SCORES["h"](one.clean)
    parts = [SCORES["h"](outputs) for shift, outputs, _ in one.shifted if shift.name == "motion_blur"]
    assert value(rows, "motion_blur", 3, "h", "auroc", 1) == metrics.auroc(inside, parts[2])
    assert value(rows, "motion_blur", 0, "h", "auroc", 1) == metrics.auroc(inside, torch.cat(parts))
    everything = torch.cat([SCORES["h"](outputs) for shift, outputs, _ in one.shifted if shift.kind == "covariate"])
    assert value(rows, "corrupted", 0, "h", "auroc", 1) == metrics.auroc(inside, everything)
    expected = metrics.tnr_at_tpr(inside, everything)
    assert value(rows, "corrupted", 0, "h", "tnr_at_tpr95", 1) == pytest.approx(expected, abs=1e-12)
    probabilities = torch.softmax(one.calibrators["temperature"](one.clean).double(), 1)
    assert value(rows, "clean", 0, "temperature", "ece", 1) == metrics.ece(probabilities, one.labels)
    assert value(rows, "clean", 0, "temperature", "brier", 1) == metrics.brier(probabilities, one.labels)
    assert value(rows, "clean", 0, "norm", "median", 1) == float(np.median(one.clean.norms.double()))


def test_corrupted_calibration_is_the_mean_over_conditions(study: Study) -> None:
    rows = study[0]
    found = [
        row.value
        for row in rows
        if (row.kind, row.subject, row.metric, row.seed) == ("covariate", "none", "nll", 0) and row.severity
    ]
    assert len(found) == 15
    assert value(rows, "corrupted", 0, "none", "nll", 0) == pytest.approx(sum(found) / 15)


def test_calibration_changes_no_accuracy_prediction_or_score(study: Study) -> None:
    found: dict[tuple[int, str, int], set[float]] = {}
    for row in study[0]:
        if row.metric == "accuracy":
            found.setdefault((row.seed, row.shift, row.severity), set()).add(round(row.value, 12))
    assert all(len(values) == 1 for values in found.values())
    changed = [row for row in study[0] if row.metric in ("predictions_changed", "scores_changed")]
    assert {(row.shift, row.subject) for row in changed} == {
        (shift, name) for shift in ("clean", "corrupted") for name in ("temperature", "alpha-beta")
    }
    assert {row.value for row in changed} == {0.0}


def test_the_same_evidence_gives_the_same_resamples_and_other_models_share_their_draws(study: Study) -> None:
    first, again = measure(study[1][0]), measure(study[1][0])
    assert np.array_equal(first.resamples, again.resamples)
    assert first.resamples.shape == (len(first.rows), RESAMPLES)
    other = measure(study[1][1])
    pair = [part.where(shift="unseen digits", subject="g", metric="auroc").resamples[0] for part in (first, other)]
    assert np.corrcoef(pair[0], pair[1])[0, 1] > 0.3  # the same images were drawn


def test_errors_are_those_of_the_resamples(study: Study) -> None:
    found = measure(study[1][0])
    for row, drawn in zip(found.rows, found.resamples, strict=True):
        assert row.error == pytest.approx(drawn.std(ddof=1), rel=0.02, abs=1e-6)
        # resampled bins differ by chance more than the bins themselves do: ECE is biased upwards
        assert abs(row.value - drawn.mean()) < (3 if row.metric == "ece" else 0.5) * row.error + 1e-6


def test_a_file_gives_the_rows_back(study: Study, tmp_path: Path) -> None:
    rows, _ = study
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_results_survive_a_folder(study: Study, tmp_path: Path) -> None:
    found = measure(study[1][0])
    found.write(tmp_path)
    back = Results.read(tmp_path)
    assert back.rows == found.rows
    assert np.array_equal(back.resamples, found.resamples)
    few = back.where(metric="auroc", subject=["g", "u"], severity=0)
    assert {row.subject for row in few.rows} == {"g", "u"}
    assert len(few.rows) == len(few.resamples) == 2 * (2 + len(DIGIT_CORRUPTIONS))
    with pytest.raises(ValueError, match=r"Expected `conditions` to be one of .*model.* but got 'colour'"):
        back.where(colour="red")


def test_resamples_of_other_rows_are_not_taken(study: Study, tmp_path: Path) -> None:
    found = measure(study[1][0])
    found.write(tmp_path)
    write_rows(tmp_path / "rows.jsonl", found.rows[:10])
    drawn = Results.read(tmp_path)
    assert len(drawn.rows) == len(drawn.resamples) == 10
    assert not np.array_equal(drawn.resamples, found.resamples[:10])
    assert drawn.resamples.std(1, ddof=1) == pytest.approx([row.error for row in drawn.rows], rel=0.25, abs=1e-7)


def sample(seed: int = 0, value: float = 0.5) -> Row:
    about = ("m", "d", "b", "h", seed, "held-out", "s", "covariate", 1, "g", "auroc", value, 0.01, 10)
    return Row(*about, "abc", "v", "c")


@pytest.mark.parametrize(
    "line",
    [
        '{"model": "m"',
        json.dumps({**asdict(sample()), "value": "high"}),
        json.dumps({**asdict(sample()), "n": 1.5}),
        json.dumps({**asdict(sample()), "seed": True}),
        json.dumps({**asdict(sample()), "colour": 1}),
        json.dumps({**asdict(sample()), "kind": "style"}),
        json.dumps({"model": "m"}),
        "[1, 2]",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(asdict(sample())) + "\n" + line + "\n")
    with pytest.raises(ValueError, match="Expected `path` to be a file of benchmark rows but got line 2"):
        read_rows(tmp_path / "rows.jsonl")


def test_brief_lines_give_the_same_rows_and_the_resamples_that_are_compared(study: Study, tmp_path: Path) -> None:
    rows, _ = study
    results = Results.concat(measure(one) for one in study[1])
    results.write(tmp_path / "full")
    results.write_brief(tmp_path / "brief")
    found = {replace(row, value=0.0): row.value for row in read_rows(tmp_path / "brief/rows.jsonl")}
    assert found == pytest.approx({replace(row, value=0.0): row.value for row in rows}, rel=1e-5, abs=1e-12)
    full, brief = (tmp_path / name / "rows.jsonl" for name in ("full", "brief"))
    assert brief.stat().st_size < full.stat().st_size / 3
    back, before = Results.read(tmp_path / "brief"), results.where(metric=("auroc", "ece"), severity=0)
    assert back.resamples.shape == (len(rows), RESAMPLES)
    back = back.where(metric=("auroc", "ece"), severity=0)
    place = {(row.weights, row.shift, row.subject, row.metric): number for number, row in enumerate(back.rows)}
    for row, drawn in zip(before.rows, before.resamples, strict=True):
        ours = back.resamples[place[row.weights, row.shift, row.subject, row.metric]]
        apart = np.clip(drawn - drawn.mean(), -4 * row.error, 31 / 8 * row.error)  # there the letters end
        assert ours - row.value == pytest.approx(apart, abs=row.error / 15 + 1e-6)


def test_letters_that_are_cut_off_are_noticed(study: Study, tmp_path: Path) -> None:
    measure(study[1][0]).write_brief(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_text(re.sub(r'"z":"..', '"z":"', file.read_text(), count=1))
    with pytest.raises(ValueError, match=r"brief rows with 200 letters as z but got alpha-beta .* with z = "):
        Results.read(tmp_path)


def test_brief_rows_take_the_place_of_rows_with_resamples(tmp_path: Path) -> None:
    Results.without_resamples([sample(0), sample(1)]).write(tmp_path)
    Results.without_resamples([sample(0), sample(2)]).write_brief(tmp_path)
    assert [row.seed for row in Results.read(tmp_path).rows] == [0, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("line", ['{"value": "high"}', '{"colour": 1}', "[1]", '{"seed"'])
def test_a_broken_brief_line_is_named(tmp_path: Path, line: str) -> None:
    Results.without_resamples([sample(0), sample(1)]).write_brief(tmp_path)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="Expected `path` to be a file of benchmark rows but got line 4"):
        read_rows(tmp_path / "rows.jsonl")


def test_only_a_file_that_says_so_may_leave_fields_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(asdict(sample())) + '\n{"seed": 1}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_rows(tmp_path / "rows.jsonl")


def test_summaries_are_over_seeds() -> None:
    found = summarise([sample(0, 0.2), sample(1, 0.4), sample(2, 0.6)])
    assert found["m", "s", 1, "g", "auroc"] == pytest.approx(Summary(0.4, 0.2, 3))
    assert summarise([sample()])["m", "s", 1, "g", "auroc"].std == 0


def test_prism_beside_knn_is_prism_alone(study: Study) -> None:
    one = study[1][0]
    fitted = {name: SCORES[name].fit(one.clean, one.labels, reference=one.clean) for name in ("knn", "prism")}
    other = fitted | {"knn": KNN.fit(one.clean, k=3)}  # another search: prism must not take its distances
    alone = {"prism": fitted["prism"]}
    rows = []
    for scores in (fitted, other, alone):
        found = Measurement(one.source, one.clean, one.labels, scores, {})
        found.add(*one.shifted[0])
        rows.append(found.results().where(subject="prism"))
    for more in rows[:2]:
        assert more.rows == rows[2].rows
        assert np.array_equal(more.resamples, rows[2].resamples)
