"""The results inside the package: a whole folder, small, without images, that shows the effect of the paper."""

from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shiftprism import metrics
from shiftprism.corruptions import COMMON
from shiftprism.plots import read_model_outputs
from shiftprism.rows import Results, ResultsFolder
from shiftprism.scores import SCORES

FOLDER = ResultsFolder(Path(str(files("shiftprism.benchmark").joinpath("cifar10"))))


@pytest.fixture(scope="module")
def results() -> Results:
    return FOLDER.collect()


def test_the_folder_is_small_and_has_no_images() -> None:
    paths = [path for path in FOLDER.path.rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} == {".json", ".jsonl", ".safetensors"}
    assert sum(path.stat().st_size for path in paths) < 3_000_000
    tensors = [tensor for path in paths if path.suffix == ".safetensors" for tensor in load_file(path).values()]
    assert len(tensors) > 100
    assert all(tensor.ndim < 3 for tensor in tensors)


def test_every_cell_is_whole(results: Results) -> None:
    assert [cell.path.name for cell in FOLDER.cells()] == ["cifar10-alpha-beta-0", "cifar10-vanilla-0"]
    assert [cell.find_fault() for cell in FOLDER.cells()] == ["", ""]
    assert {(row.model, row.data, row.seed) for row in results.rows} == {
        ("vanilla", "cifar10", 0),
        ("alpha-beta", "cifar10", 0),
    }
    subjects = {row.subject for row in results.rows if row.metric == "auroc"}
    assert {"g", "h", "u", "msp", "energy"} <= subjects
    assert {row.subject for row in results.rows if row.metric == "ece"} == {"none", "temperature", "alpha-beta"}
    assert FOLDER.commands()[-1].startswith("shiftprism ")


@pytest.mark.parametrize("model", ["vanilla", "alpha-beta"])
def test_stored_outputs_say_what_the_rows_say(results: Results, model: str) -> None:
    """A sample in half precision: within a few standard errors of the AUROC of all images."""
    one = read_model_outputs(FOLDER.path, model)
    assert one.clean.check().N == 1000
    assert {condition.kind for condition, _, _ in one.shifted} == {"concept", "both", "covariate"}
    severities = {name: [where.severity for where, _, _ in one.shifted if where.shift == name] for name in COMMON}
    assert all({1, 3, 5} <= set(steps) for steps in severities.values())
    assert set(one.calibrators) == {"temperature", "alpha-beta"}
    assert (one.clean.predictions == one.labels).float().mean() > 0.89
    for condition, outputs, labels in one.shifted:
        assert outputs.check().N == len(labels) == (200 if condition.kind == "covariate" else 1000)
        for score in ("g", "h", "u", "msp"):
            (row,) = results.where(model=model, **condition._asdict(), subject=score, metric="auroc").rows
            auroc = metrics.auroc(SCORES[score](one.clean), SCORES[score](outputs))
            assert auroc == pytest.approx(row.value, abs=0.1 if condition.kind == "covariate" else 0.04)
    logits = one.calibrators["alpha-beta"](one.clean)
    assert torch.equal(logits.argmax(1), one.clean.predictions)


def test_the_alpha_beta_model_shows_the_effect_of_the_paper(results: Results) -> None:
    """One network of each head: g detects the corrupted, h the unseen classes, and U of α-β detects SVHN best."""
    rows = results.where(metric="auroc", severity=0).rows
    found = {(row.model, row.shift, row.subject): row.value for row in rows}
    assert found["alpha-beta", "corrupted", "g"] > found["alpha-beta", "corrupted", "h"]
    assert found["alpha-beta", "cifar100", "h"] > found["alpha-beta", "cifar100", "g"]
    best = max(value for (model, shift, _), value in found.items() if (model, shift) == ("vanilla", "svhn"))
    assert found["alpha-beta", "svhn", "u"] > best
