"""Who saw which images: networks, scores and calibrators are fitted to their own split, and nothing to a test set."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism._files import read_json, write_tensors
from shiftprism.benchmark import Plan
from shiftprism.benchmark._cells import run_cell
from shiftprism.benchmark._grid import Cell, list_cells
from shiftprism.calibrators import Calibrator
from shiftprism.datasets import Dataset
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES
from shiftprism.scores._entry import Entry
from shiftprism.training import _runs

MARKS = {"train": 40, "test": 90, "far": 200}
"""The value of the first pixel of each image of a split."""
SCORES_TRIED = ("g", "knn", "mahalanobis", "kl_matching", "fisher", "g_two_sided", "prism")
CALIBRATORS_TRIED = ("temperature", "vector")


class Fit(NamedTuple):
    """What one fit was given."""

    name: str
    outputs: Outputs
    labels: Tensor
    reference: Outputs | None


class Spy:
    """What networks, scores and calibrators were fitted to since the last cell."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clear()
        train, fit_score, fit_calibrator = _runs.train, Entry.fit, Calibrator.fit.__func__  # type: ignore[attr-defined]

        def train_network(classifier: Classifier, data: Dataset, *rest: Any, **options: Any) -> Any:
            self.learned.append(data.images)
            return train(classifier, data, *rest, **options)

        def fit(entry: Entry, outputs: Outputs, labels: Tensor, **options: Any) -> Any:
            self.scores.append(Fit(entry.name, outputs, labels, options["reference"]))
            return fit_score(entry, outputs, labels, **options)

        def calibrate(cls: type[Calibrator], /, outputs: Outputs, labels: Tensor, **options: Any) -> Calibrator:
            self.calibrators.append(Fit(cls.__name__, outputs, labels, None))
            fitted: Calibrator = fit_calibrator(cls, outputs, labels, **options)
            return fitted

        patch.setattr(_runs, "train", train_network)
        patch.setattr(Entry, "fit", fit)
        patch.setattr(Calibrator, "fit", classmethod(calibrate))

    def clear(self) -> None:
        self.learned: list[Tensor] = []
        self.scores: list[Fit] = []
        self.calibrators: list[Fit] = []


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def marked(split: str, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """So many images of each class; the first pixel tells the split, the others are noise around the class's grey."""
    rng = np.random.default_rng(MARKS[split])
    labels = np.arange(classes).repeat(count)
    images = rng.integers(0, 120, (len(labels), 1, 8, 8)) + 30 * labels[:, None, None, None]
    images[:, 0, 0, 0] = MARKS[split]
    return torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels)


def plan_of(folder: Path, mirror_tests: bool = False, **changes: Any) -> Plan:
    """Four classes, one of them never learned, and far images, each split with its mark."""
    folder.mkdir(exist_ok=True)
    files = {name: folder / f"{name}.safetensors" for name in ("mine", "far")}
    tensors = {}
    for split, count in (("train", 40), ("test", 15)):
        tensors[f"{split}_images"], tensors[f"{split}_labels"] = marked(split, count, 4)
    if mirror_tests:
        tensors["test_images"] = tensors["test_images"].flip(3)
    write_tensors(files["mine"], tensors, {"names": '["a", "b", "c", "d"]'})
    images, labels = marked("far", 10, 1)
    write_tensors(files["far"], {"images": images, "labels": labels}, {"names": '["x"]'})
    options: dict[str, Any] = {
        "models": ("vanilla:2", "ensemble"),
        "hold_out": ("d",),
        "scores": SCORES_TRIED,
        "calibrators": CALIBRATORS_TRIED,
        "corruptions": ("contrast",),
        "backbone": "digits",
        "preset": "smoke",
        "settings": {"epochs": 1, "held_out": 0.25},
    }
    return Plan(data=str(files["mine"]), far=str(files["far"]), **(options | changes)).resolve()


def stored(cell: Cell) -> dict[str, tuple[Outputs, Tensor]]:
    """The Outputs and labels of every set that the cell forwarded, by the name of its file."""
    found = {}
    for path in (cell.folder.path / "outputs").iterdir():
        outputs, labels = Outputs.load(path)
        assert labels is not None
        found[path.stem] = outputs, labels
    return found


def who(outputs: Outputs, labels: Tensor | None, sets: dict[str, tuple[Outputs, Tensor]]) -> set[tuple[str, int]]:
    """(set, row) of each of these rows; each row of each set is its own, so that a row tells where it is from."""
    origin = {row.numpy().tobytes(): (name, i) for name, (all_, _) in sets.items() for i, row in enumerate(all_.logits)}
    assert len(origin) == sum(all_.N for all_, _ in sets.values())
    rows = [origin[row.numpy().tobytes()] for row in outputs.logits]
    if labels is not None:
        assert labels.tolist() == [int(sets[name][1][i]) for name, i in rows]
    return set(rows)


def every(name: str, sets: dict[str, tuple[Outputs, Tensor]]) -> set[tuple[str, int]]:
    return {(name, i) for i in range(sets[name][0].N)}


def test_each_part_of_the_held_out_protocol_sees_its_own_split(spy: Spy, tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    for cell in list_cells(plan, tmp_path / "out"):
        spy.clear()
        rows = run_cell(cell, device="cpu").rows
        if cell.model == "pixels":
            continue
        assert {row.protocol for row in rows} == {"held-out"}
        sets = stored(cell)
        corrupted = {f"contrast-{severity}" for severity in range(1, 6)}
        assert set(sets) == {"train", "held-out", "clean-0", "far.safetensors-0", "unseen-classes-0", *corrupted}
        assert [fit.name for fit in spy.scores] == list(SCORES_TRIED)
        for fit in spy.scores:
            assert who(fit.outputs, fit.labels, sets) == every("train", sets)
            assert fit.reference is not None
            assert who(fit.reference, None, sets) == every("held-out", sets)
        assert len(spy.calibrators) == len(CALIBRATORS_TRIED)
        for fit in spy.calibrators:
            assert who(fit.outputs, fit.labels, sets) == every("held-out", sets)
        if cell.model == "vanilla":
            check_images_of_the_sets(cell, spy, sets)


def check_images_of_the_sets(cell: Cell, spy: Spy, sets: dict[str, tuple[Outputs, Tensor]]) -> None:
    """The sets are of the images that their names promise: those learned, the rest of the split, the test split."""
    classifier = Classifier.load(cell.folder.run)
    (learned,) = spy.learned
    images = {split: marked(split, count, 3)[0] for split, count in (("train", 40), ("test", 15))}
    known = {image.numpy().tobytes() for image in learned}
    held_out = torch.stack([image for image in images["train"] if image.numpy().tobytes() not in known])
    assert len(learned) + len(held_out) == len(images["train"])
    assert sets["held-out"][1].bincount().tolist() == [10, 10, 10]
    for name, expected in (("train", learned), ("held-out", held_out), ("clean-0", images["test"])):
        found = predict(classifier, expected)[0]
        assert torch.equal(found.logits, sets[name][0].logits)


def test_the_papers_protocol_judges_no_image_by_a_fit_that_saw_it(spy: Spy, tmp_path: Path) -> None:
    """It holds nothing out: calibrators see the test set, but for clean rows never the images they calibrate."""
    plan = plan_of(tmp_path, models=("vanilla:1",), settings={"epochs": 1, "held_out": 0.0})
    cell = list_cells(plan, tmp_path / "out")[-1]
    results = run_cell(cell, device="cpu")
    assert {row.protocol for row in results.rows} == {"paper"}
    sets = stored(cell)
    assert "held-out" not in sets
    for fit in spy.scores:
        assert who(fit.outputs, fit.labels, sets) == every("train", sets)
        assert fit.reference is not None
        assert who(fit.reference, None, sets) == every("clean-0", sets)
    clean = every("clean-0", sets)
    for name in ("Temperature", "Vector"):
        whole, *folds = [who(fit.outputs, fit.labels, sets) for fit in spy.calibrators if fit.name == name]
        assert whole == clean
        left_out = [clean - fold for fold in folds]
        assert len(folds) == 5
        assert set.union(*left_out) == clean
        assert sum(map(len, left_out)) == len(clean)


def test_what_was_fitted_does_not_depend_on_test_images(tmp_path: Path) -> None:
    """Other test and corrupted images: the same network and the same calibrators, bit for bit."""
    measured = []
    for name in ("one", "other"):
        plan = plan_of(tmp_path / name, models=("vanilla:1",), mirror_tests=name == "other")
        cell = list_cells(plan, tmp_path / name / "out")[-1]
        measured.append((run_cell(cell, device="cpu"), cell.folder))
    (one, folder), (other, again) = measured
    assert one.rows[0].weights == other.rows[0].weights
    for name in CALIBRATORS_TRIED:
        about = [read_json(each.calibrator(name) / "calibrator.json", "", "") for each in (folder, again)]
        assert about[0]["weights"]  # the fingerprint of what was fitted
        assert about[0] == about[1]
    nll = [results.where(shift="clean", subject="none", metric="nll").rows[0].value for results in (one, other)]
    assert nll[0] != nll[1]


def test_the_spied_scores_take_what_they_need() -> None:
    """Some of the scores tried learn from labels, and some from held-out data."""
    needs = [SCORES[name].needs for name in SCORES_TRIED]
    assert any("labels" in need for need in needs)
    assert any("reference" in need for need in needs)
