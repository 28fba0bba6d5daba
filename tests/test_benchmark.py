"""The rows of a study: they cover the whole grid, and are what the metrics say about the stored outputs."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from examples import features_of, head_of
from shiftprism import Classifier, benchmark, metrics
from shiftprism.benchmark import Plan, take_evenly
from shiftprism.benchmark._cells import run_cell
from shiftprism.benchmark._grid import list_cells
from shiftprism.benchmark._measure import Measurement
from shiftprism.datasets import Dataset
from shiftprism.plots import ModelOutputs, read_model_outputs
from shiftprism.recommend import Labelled
from shiftprism.rows import RESAMPLES, Condition, Results, Row, Source
from shiftprism.scores import KNN, SCORES

CORRUPTIONS = ("gaussian_noise", "motion_blur", "contrast")
READY = tuple(name for name, entry in SCORES.items() if entry.ready)


class Study(NamedTuple):
    """Two seeds of one model: their rows, and what they were measured from."""

    results: Results
    models: list[ModelOutputs]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    out = tmp_path_factory.mktemp("study")
    plan = Plan(
        suite="digits",
        models=("alpha-beta:2",),
        scores=READY,
        calibrators=("temperature", "alpha-beta"),
        corruptions=CORRUPTIONS,
        settings={"epochs": 3},
    )
    outcome = benchmark.study(plan, out)
    assert outcome.failed == {}
    models = [read_model_outputs(out, "alpha-beta", seed, most=10_000) for seed in (0, 1)]
    return Study(outcome.results.where(model="alpha-beta"), models)


def value(rows: list[Row], *key: object) -> float:
    (found,) = [row.value for row in rows if (row.shift, row.severity, row.subject, row.metric, row.seed) == key]
    return found


def measure(one: ModelOutputs) -> Results:
    """The rows of stored outputs, by scores that need no fit."""
    measurement = Measurement(
        one.source, Labelled(one.clean, one.labels), {name: SCORES[name] for name in READY}, one.calibrators
    )
    for condition, outputs, labels in one.shifted:
        measurement.add(condition, Labelled(outputs, labels))
    return measurement.results()


def test_rows_cover_the_whole_grid(study: Study) -> None:
    rows = study.results.rows
    found = {(row.seed, row.shift, row.severity, row.subject) for row in rows if row.metric == "auroc"}
    places = {("unseen digits", 0), ("photographs", 0), ("corrupted", 0)}
    places |= {("concept-splits", severity) for severity in range(4)}
    places |= {(name, severity) for name in CORRUPTIONS for severity in range(6)}
    assert found == {(seed, *place, score) for seed in (0, 1) for place in places for score in READY}
    calibrated = {(row.shift, row.severity, row.subject) for row in rows if row.metric == "ece"}
    assert len(calibrated) == (1 + 15 + 1) * 3
    assert len({row.weights for row in rows}) == 2
    assert {row.severity for row in rows if row.metric == "tnr_at_tpr95"} == {0}
    keys = [replace(row, value=0.0, error=0.0) for row in rows]
    assert len(set(keys)) == len(keys)


def test_rows_are_what_the_metrics_say(study: Study) -> None:
    rows, one = study.results.rows, study.models[1]
    inside = SCORES["h"](one.clean)
    parts = [SCORES["h"](outputs) for condition, outputs, _ in one.shifted if condition.shift == "motion_blur"]
    assert value(rows, "motion_blur", 3, "h", "auroc", 1) == metrics.auroc(inside, parts[2])
    assert value(rows, "motion_blur", 0, "h", "auroc", 1) == metrics.auroc(inside, torch.cat(parts))
    corrupted = torch.cat([SCORES["h"](o) for condition, o, _ in one.shifted if condition.kind == "covariate"])
    assert value(rows, "corrupted", 0, "h", "auroc", 1) == metrics.auroc(inside, corrupted)
    expected = metrics.tnr_at_tpr(inside, corrupted)
    assert value(rows, "corrupted", 0, "h", "tnr_at_tpr95", 1) == pytest.approx(expected, abs=1e-12)
    probabilities = torch.softmax(one.calibrators["temperature"](one.clean).double(), 1)
    assert value(rows, "clean", 0, "temperature", "ece", 1) == metrics.ece(probabilities, one.labels)
    assert value(rows, "clean", 0, "temperature", "brier", 1) == metrics.brier(probabilities, one.labels)
    assert value(rows, "clean", 0, "norm", "median", 1) == float(np.median(one.clean.norms.double()))


def test_corrupted_calibration_is_the_mean_over_conditions(study: Study) -> None:
    rows = study.results.rows
    found = [
        row.value
        for row in rows
        if (row.kind, row.subject, row.metric, row.seed) == ("covariate", "none", "nll", 0) and row.severity
    ]
    assert len(found) == 15
    assert value(rows, "corrupted", 0, "none", "nll", 0) == pytest.approx(sum(found) / 15)


def test_calibration_changes_no_accuracy_prediction_or_score(study: Study) -> None:
    rows = study.results.rows
    found: dict[tuple[int, str, int], set[float]] = {}
    for row in rows:
        if row.metric == "accuracy":
            found.setdefault((row.seed, row.shift, row.severity), set()).add(round(row.value, 12))
    assert all(len(values) == 1 for values in found.values())
    changed = [row for row in rows if row.metric in ("predictions_changed", "scores_changed")]
    assert {(row.shift, row.subject) for row in changed} == {
        (shift, name) for shift in ("clean", "corrupted") for name in ("temperature", "alpha-beta")
    }
    assert {row.value for row in changed} == {0.0}


def test_the_stored_outputs_give_the_same_rows_and_resamples_again(study: Study) -> None:
    for one in study.models:
        again = measure(one)
        assert again.resamples.shape == (len(again.rows), RESAMPLES)
        stored = {replace(row, value=0.0): i for i, row in enumerate(study.results.rows)}
        numbers = [stored[replace(row, value=0.0)] for row in again.rows]
        assert [study.results.rows[i].value for i in numbers] == [row.value for row in again.rows]
        # one product serves all calibrators, and their order changes its rounding
        np.testing.assert_allclose(study.results.resamples[numbers], again.resamples, rtol=2e-6, atol=1e-6)
        assert np.array_equal(measure(one).resamples, again.resamples)


def test_models_share_the_resampled_images(study: Study) -> None:
    found = study.results.where(shift="unseen digits", subject="g", metric="auroc")
    assert [row.seed for row in found.rows] == [0, 1]
    assert np.corrcoef(found.resamples[0], found.resamples[1])[0, 1] > 0.3


def test_errors_are_those_of_the_resamples(study: Study) -> None:
    for row, resampled in zip(study.results.rows, study.results.resamples, strict=True):
        assert row.error == pytest.approx(resampled.std(ddof=1), rel=0.02, abs=1e-6)
        # resampled bins differ by chance more than the bins themselves do: ECE is biased upwards; and a threshold that
        # falls between a few images moves with the resample
        tolerance = {"ece": 3, "tnr_at_tpr95": 1}.get(row.metric, 0.5) * row.error + 1e-6 * max(1, row.value)
        assert abs(row.value - resampled.mean()) < tolerance


def test_prism_beside_knn_is_prism_alone(study: Study) -> None:
    one = study.models[0]
    fitted = {name: SCORES[name].fit(one.clean, one.labels, reference=one.clean) for name in ("knn", "prism")}
    other = fitted | {"knn": KNN.fit(one.clean, k=3)}  # another search: prism must not take its distances
    alone = {"prism": fitted["prism"]}
    condition, outputs, labels = one.shifted[0]
    rows = []
    for scores in (fitted, other, alone):
        measurement = Measurement(one.source, Labelled(one.clean, one.labels), scores, {})
        measurement.add(condition, Labelled(outputs, labels))
        rows.append(measurement.results().where(subject="prism"))
    for more in rows[:2]:
        assert more.rows == rows[2].rows
        assert np.array_equal(more.resamples, rows[2].resamples)


def test_sets_that_are_pooled_are_measured_as_one() -> None:
    """The steps of a ladder, and all corruptions: counts of lost pairs and rejected images add up."""
    sizes = ((60, 2.0), (30, 1.0), (50, 0.5), (40, 1.0))
    with torch.no_grad():
        clean, *parts = (head_of("vanilla").outputs(features_of(n, seed=n, scale=scale)) for n, scale in sizes)
    conditions = [Condition("fog", "covariate", 1), Condition("fog", "covariate", 2), Condition("snow", "covariate", 1)]
    source = Source("m", "d", "b", "h", 0, "held-out", "w")
    measurement = Measurement(source, Labelled(clean, torch.arange(60) % 4), {"g": SCORES["g"]}, {})
    for condition, part in zip(conditions, parts, strict=True):
        measurement.add(condition, Labelled(part, torch.arange(part.N) % 4))
    rows = measurement.results().rows
    scored = [SCORES["g"](part) for part in parts]
    for shift, severity, pooled in (("fog", 2, scored[1:2]), ("fog", 0, scored[:2]), ("corrupted", 0, scored)):
        expected = metrics.auroc(SCORES["g"](clean), torch.cat(pooled))
        assert value(rows, shift, severity, "g", "auroc", 0) == pytest.approx(expected)
        counts = [row.n for row in rows if (row.shift, row.severity, row.metric) == (shift, severity, "auroc")]
        assert counts == [sum(map(len, pooled))]
        if not severity:
            expected = metrics.tnr_at_tpr(SCORES["g"](clean), torch.cat(pooled))
            assert value(rows, shift, severity, "g", "tnr_at_tpr95", 0) == pytest.approx(expected)


def test_few_images_are_taken_evenly() -> None:
    data = Dataset(torch.zeros(10, 1, 2, 2, dtype=torch.uint8), torch.arange(10), tuple("abcdefghij"))
    assert take_evenly(data, 4).labels.tolist() == [0, 3, 6, 9]
    for most in (0, 10, 99):
        assert take_evenly(data, most) is data


def test_a_score_that_is_added_gets_rows_and_no_other_row_is_doubled(tmp_path: Path) -> None:
    """Medians of norms and rows of "none" are measured again with it: adding those too would count them twice."""
    Classifier.build("digits", "alpha-beta", tuple("0123456"), channels=1).save(tmp_path / "run")
    asked = Plan(
        suite="digits",
        runs=(str(tmp_path / "run"),),
        held_out=0.2,
        scores=("g",),
        calibrators=("temperature",),
        corruptions=("contrast",),
        images=20,
    ).resolve()
    rows = []
    for plan in (asked, replace(asked, scores=("g", "msp"))):
        (cell,) = (one for one in list_cells(plan, tmp_path / "out") if one.model == "run")
        rows.append(run_cell(cell).rows)
    before, after = rows
    assert after[: len(before)] == before
    assert {row.subject for row in after[len(before) :]} == {"msp"}
    assert max(Counter((row.shift, row.severity, row.subject, row.metric) for row in after).values()) == 1


@pytest.mark.parametrize(
    ("names", "channels", "message"),
    [
        ("0123456", 3, "Expected `runs` to be models of such images but got .*; choose the data it was trained on"),
        ("01234", 1, "Expected `runs` to be models of 0, 1, .* with 0, 1, 2, 3, 4; choose"),
        ("abcdefg", 1, "Expected `runs` to be models of 0, 1, .* with a, b, c, d, e, f, g; choose"),
    ],
)
def test_a_run_of_other_classes_or_channels_is_refused_before_any_work(
    names: str, channels: int, message: str, tmp_path: Path
) -> None:
    Classifier.build("digits", "vanilla", tuple(names), channels=channels).save(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        benchmark.study(Plan(suite="digits", runs=(str(tmp_path / "run"),)), tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()
