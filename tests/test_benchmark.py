"""Rows: what is measured agrees with the metrics, survives a file, and a broken line is named."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from shiftprism import metrics
from shiftprism.benchmark import (
    DIGIT_CORRUPTIONS,
    Evidence,
    Row,
    Summary,
    digits,
    read_rows,
    summarise,
    write_rows,
)
from shiftprism.benchmark._rows import READY
from shiftprism.scores import SCORES
from shiftprism.training import PRESETS


@pytest.fixture(scope="module")
def study() -> tuple[list[Row], list[Evidence]]:
    return digits(("alpha-beta",), (0, 1), replace(PRESETS["smoke"], epochs=3))


def test_rows_cover_the_whole_grid(study: tuple[list[Row], list[Evidence]]) -> None:
    rows, evidence = study
    found = {(row.seed, row.shift, row.severity, row.subject) for row in rows if row.metric == "auroc"}
    places = {("unseen digits", 0)} | {(name, severity) for name in DIGIT_CORRUPTIONS for severity in range(6)}
    assert found == {(seed, *place, score) for seed in (0, 1) for place in places for score in READY}
    calibrated = {(row.shift, row.severity, row.subject) for row in rows if row.metric == "ece"}
    assert len(calibrated) == (1 + 15) * 3
    assert len({row.weights for row in rows}) == len(evidence) == 2


def test_rows_are_what_the_metrics_say(study: tuple[list[Row], list[Evidence]]) -> None:
    rows, evidence = study
    one = evidence[1]
    pooled = torch.cat([SCORES["h"](outputs) for shift, outputs, _ in one.shifted if shift.name == "motion_blur"])
    expected = metrics.auroc(SCORES["h"](one.clean), pooled)
    key = ("motion_blur", 0, "h", "auroc", 1)
    (value,) = [row.value for row in rows if (row.shift, row.severity, row.subject, row.metric, row.seed) == key]
    assert value == expected
    logits = one.calibrators["temperature"](one.clean)
    expected = metrics.ece(torch.softmax(logits.double(), 1), one.labels)
    key = ("clean", 0, "temperature", "ece", 1)
    (value,) = [row.value for row in rows if (row.shift, row.severity, row.subject, row.metric, row.seed) == key]
    assert value == expected


def test_calibration_changes_no_accuracy(study: tuple[list[Row], list[Evidence]]) -> None:
    found: dict[tuple[int, str, int], set[float]] = {}
    for row in study[0]:
        if row.metric == "accuracy":
            found.setdefault((row.seed, row.shift, row.severity), set()).add(row.value)
    assert all(len(values) == 1 for values in found.values())


def test_a_file_gives_the_rows_back(study: tuple[list[Row], list[Evidence]], tmp_path: Path) -> None:
    rows, _ = study
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows


def sample(seed: int = 0, value: float = 0.5) -> Row:
    return Row("m", seed, "s", "covariate", 1, "g", "auroc", value, 10, "abc", "v", "c")


@pytest.mark.parametrize(
    "line",
    [
        '{"model": "m"',
        json.dumps({**asdict(sample()), "value": "high"}),
        json.dumps({**asdict(sample()), "colour": 1}),
        json.dumps({"model": "m"}),
        "[1, 2]",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(asdict(sample())) + "\n" + line + "\n")
    with pytest.raises(ValueError, match="Expected `path` to be a file of benchmark rows but got line 2"):
        read_rows(tmp_path / "rows.jsonl")


def test_summaries_are_over_seeds() -> None:
    found = summarise([sample(0, 0.2), sample(1, 0.4), sample(2, 0.6)])
    assert found["m", "s", 1, "g", "auroc"] == pytest.approx(Summary(0.4, 0.2, 3))
    assert summarise([sample()])["m", "s", 1, "g", "auroc"].std == 0
