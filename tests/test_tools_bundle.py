"""tools/bundle.py: a bundle is a small results folder that says what its models said."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from outputs_examples import made_outputs
from rows_examples import row
from shiftprism.metrics import auroc
from shiftprism.plots import read_model_outputs
from shiftprism.rows import CellFolder, Results
from shiftprism.scores import SCORES


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle", Path(__file__).parents[1] / "tools/bundle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bundle_says_what_the_model_said(bundle: ModuleType, tmp_path: Path) -> None:
    cell, target = CellFolder(tmp_path / "cells/from"), CellFolder(tmp_path / "bundle/cells/to")
    one = made_outputs("alpha-beta", images=1500)
    measured = [("none", "ece"), ("matrix", "ece"), ("alpha-beta", "predictions_changed")]
    rows = [row("alpha-beta", "clean", 0, *names, data="digits", kind="none", error=0.01) for names in measured]
    one.clean.save(cell.outputs("clean", 0), one.labels)
    for condition, outputs, labels in one.shifted:
        outputs.save(cell.outputs(condition.shift, condition.severity), labels)
        rows += [
            row(
                "alpha-beta", condition.shift, condition.severity, score, data="digits", kind=condition.kind, error=0.01
            )
            for score in ("u", "knn")
        ]
    for name, calibrator in one.calibrators.items():
        calibrator.save(cell.calibrator(name), "")
    Results.without_resamples(rows).write(cell.path)
    bundle.copy_cell(cell, target)

    assert target.find_fault() == ""
    kept = Results.read(target.path).rows
    assert {(one.subject, one.metric) for one in kept} == {("none", "ece"), ("u", "auroc")}
    again = read_model_outputs(tmp_path / "bundle", "alpha-beta", most=10_000)
    assert again.clean.N == 1000
    assert again.clean.features.shape == (1000, 1)
    taken = np.linspace(0, 1499, 1000).round().astype(int)
    assert torch.equal(again.labels, one.labels[taken])
    before = {condition: outputs for condition, outputs, _ in one.shifted}
    assert [condition for condition, _, _ in again.shifted] == list(before)
    for condition, outputs, labels in again.shifted:
        assert outputs.N == len(labels) == (200 if condition.kind == "covariate" else 1000)
        few = before[condition].rows(torch.linspace(0, 1499, outputs.N).round().long())
        for score in ("g", "h", "u", "msp"):
            torch.testing.assert_close(SCORES[score](outputs).double(), SCORES[score](few), rtol=5e-3, atol=5e-3)
        inside, outside = SCORES["u"](one.clean.rows(torch.from_numpy(taken))), SCORES["u"](few)
        half = auroc(SCORES["u"](again.clean), SCORES["u"](outputs))
        assert half == pytest.approx(auroc(inside, outside), abs=2e-3)
    exact = one.calibrators["alpha-beta"](one.clean.rows(torch.from_numpy(taken)))
    torch.testing.assert_close(again.calibrators["alpha-beta"](again.clean).double(), exact, rtol=5e-3, atol=5e-3)


def test_a_bias_is_refused(bundle: ModuleType, tmp_path: Path) -> None:
    one = made_outputs("vanilla")
    one.clean._replace(raw=one.clean.raw + 1).save(tmp_path / "biased", one.labels)
    with pytest.raises(SystemExit, match="biased is of a head with a bias"):
        bundle.copy_outputs(tmp_path / "biased", tmp_path / "target", 100)
    assert not (tmp_path / "target").exists()
