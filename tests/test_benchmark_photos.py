"""The suite photos: image files of any size, forwarded from the disk, with the numbers that they have one by one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from shiftprism.benchmark import Plan, _photos, study
from shiftprism.benchmark._photos import Photographs, choose_batch, find_photographs, list_photo_shifts
from shiftprism.classifier import Classifier, Preprocessing
from shiftprism.corruptions import CORRUPTIONS
from shiftprism.datasets import ImageFile, load, read_images
from shiftprism.outputs import Outputs
from shiftprism.rows import ResultsFolder
from shiftprism.scores import msp


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as files of different sizes in class folders: 0 to 6 inside, 7 near, 8 and 9 far; and a model of all."""
    folder = tmp_path_factory.mktemp("photos")
    data = load("digits", "train")
    model = Classifier.build("digits", "vanilla", data.names, 1, seed=0)
    model.preprocessing = Preprocessing(size=(8, 8), resize=8, channels=1)
    model.save(folder / "model")
    sizes = np.random.default_rng(0).integers(8, 20, (420, 2)).tolist()
    for number, (width, height) in enumerate(sizes):
        label = int(data.labels[number])
        kind = "id" if label < 7 else "near" if label == 7 else "far"
        # a model of numbered classes: 003 is the class 3
        path = folder / kind / f"{label:03}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(data.images[number, 0].numpy()).resize((width, height))
        (image.convert("RGB") if number % 3 else image).save(path)
    return folder


def make_plan(place: Path, **settings: Any) -> Plan:
    names = {"data": "id", "near": "near", "far": "far"}
    folders = {name: str(place / folder) for name, folder in names.items()}
    some = {"scores": ("msp", "energy"), "calibrators": ("temperature",), "corruptions": ("gaussian_noise", "fog")}
    return Plan(**{"suite": "photos", "runs": (f"net={place / 'model'}",), **folders, **some, **settings})


def predict_alone(place: Path, data: Photographs) -> torch.Tensor:
    """The witness: each file by Pillow's reader, corrupted and resized alone, through the model alone."""
    classifier = Classifier.load(place / "model").eval()
    logits = []
    for path, seed in zip(data.images, data.seeds.tolist(), strict=True):
        (file,) = read_images([path])
        assert file.image is not None
        image = file.image
        if data.corruption:
            image = CORRUPTIONS[data.corruption](image[None], data.severity, [seed])[0]
        with torch.no_grad():
            logits.append(classifier(classifier.prepare(image)[None]))
    return torch.cat(logits)


def test_rows_are_those_of_photographs_one_by_one(place: Path, tmp_path: Path) -> None:
    """Fails if seeds move by one, labels are those of folders in place of the model's, or a grey file is left out."""
    plan = make_plan(place)
    outcome = study(plan, tmp_path)
    assert outcome.failed == {}
    test = find_photographs(plan.resolve(), plan.data).load("test")
    logits = predict_alone(place, test)
    rows = outcome.results.where(subject="none", metric="accuracy", shift="clean").rows
    assert [row.value for row in rows] == [pytest.approx(float((logits.argmax(1) == test.labels).float().mean()))]
    inside = logits.softmax(1).amax(1)
    for shift in list_photo_shifts(plan.resolve(), plan.data):
        if (shift.name, shift.severity) in (("near", 0), ("far", 0), ("fog", 3), ("gaussian_noise", 5)):
            outside = predict_alone(place, shift.make()).softmax(1).amax(1)
            truth = [1] * len(inside) + [0] * len(outside)
            expected = roc_auc_score(truth, torch.cat([inside, outside]))
            (row,) = outcome.results.where(
                subject="msp", metric="auroc", shift=shift.name, severity=shift.severity
            ).rows
            assert row.value == pytest.approx(expected, abs=1e-3)
            assert (row.n, row.kind) == (len(outside), shift.kind)
    kinds = {row.shift: row.kind for row in outcome.results.rows}
    assert (kinds["near"], kinds["far"], kinds["fog"]) == ("concept", "both", "covariate")


def test_the_parts_of_the_photographs_are_disjoint(place: Path) -> None:
    plan = make_plan(place).resolve()
    folder = find_photographs(plan, plan.data)
    test, (learned, held) = folder.load("test"), folder.divide(0.5)
    parts = [set(part.images) for part in (test, learned, held)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(list((place / "id").rglob("*.png")))
    assert len(test.images) / sum(map(len, parts)) == pytest.approx(0.4, abs=0.02)
    assert len(learned.images) == pytest.approx(len(held.images), abs=1)
    for part in (test, learned, held):
        assert [int(path.parent.name) for path in part.images] == part.labels.tolist()


@pytest.mark.slow
def test_scores_of_shifted_copies_are_fitted_to_photographs(place: Path, tmp_path: Path) -> None:
    """`style` needs the copies under the 18 extras. A second command reads all Outputs, and measures no set again."""
    plan = make_plan(place, scores=("style",), corruptions=("fog",), corrupted_images=20)
    outcome = study(plan, tmp_path)
    assert outcome.failed == {}
    assert outcome.results.where(subject="style", metric="auroc", shift="fog").rows
    copies = list((tmp_path / "cells").glob("*/outputs/copies/*.safetensors"))
    assert len(copies) == 54
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").glob("*/outputs/**/*.safetensors")}
    again = study(make_plan(place, scores=("style", "msp"), corruptions=("fog",), corrupted_images=20), tmp_path)
    assert again.results.where(subject="msp", metric="auroc", shift="fog").rows
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert not ResultsFolder(tmp_path).shifted("id").exists()  # shifted photographs are not kept


def test_a_changed_photograph_is_forwarded_again(place: Path, tmp_path: Path) -> None:
    plan = make_plan(place).resolve()
    classifier, data = Classifier.load(place / "model"), find_photographs(plan, plan.data).load("test")
    before = _photos.predict_photographs(classifier, data, tmp_path / "x.safetensors")
    time = (tmp_path / "x.safetensors").stat().st_mtime_ns
    _photos.predict_photographs(classifier, data, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").stat().st_mtime_ns == time
    os.utime(data.images[0], (1, 1))
    after = _photos.predict_photographs(classifier, data, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").stat().st_mtime_ns != time
    assert torch.equal(msp(before), msp(after))


def test_few_photographs_are_in_memory_at_a_time(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if all are read before the first is forwarded: 300 files, batches of 10, and never 60 on their way."""
    monkeypatch.setattr(_photos, "_BATCH", 10)
    plan = make_plan(place).resolve()
    data = find_photographs(plan, plan.data).load("test")
    many = data.rows(torch.arange(300) % len(data.images))
    classifier = Classifier.load(place / "model")
    count = {"read": 0, "forwarded": 0, "most": 0}

    def read_counted(*arguments: Any, **options: Any) -> Iterator[ImageFile]:
        for file in read_images(*arguments, **options):
            count["read"] += 1
            yield file

    def forward(images: torch.Tensor) -> Any:
        count["most"] = max(count["most"], count["read"] - count["forwarded"])
        count["forwarded"] += len(images)
        return whole(images)

    whole = classifier.outputs
    monkeypatch.setattr(_photos, "read_images", read_counted)
    monkeypatch.setattr(classifier, "outputs", forward)
    outputs = _photos.predict_photographs(classifier, many, tmp_path / "x.safetensors")
    assert (outputs.N, count["read"], count["forwarded"]) == (300, 300, 300)
    assert count["most"] <= 30


def test_a_batch_is_sized_by_memory() -> None:
    """16 MB of floats: 2²⁴ / (4 · 3 · 224²) = 27.8. Small images go 128 at a time."""
    model = Classifier.build("digits", "vanilla", ("a", "b"), 3)
    model.preprocessing = Preprocessing(size=(224, 224), resize=256, channels=3)
    assert choose_batch(model) == 27
    model.preprocessing = Preprocessing(size=(32, 32), resize=32, channels=3)
    assert choose_batch(model) == 128


def test_a_broken_photograph_is_an_error_that_names_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "id/000").mkdir(parents=True)
    for number in range(60):
        (tmp_path / f"id/000/{number}.png").write_bytes((next((place / "id/000").iterdir())).read_bytes())
    (tmp_path / "id/000/5.png").write_bytes(b"broken")
    outcome = study(make_plan(place, data=str(tmp_path / "id"), near="", far=""), tmp_path / "out")
    assert "5.png (it is not in an image format we read" in next(iter(outcome.failed.values()))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"data": ""}, "`data` to be a folder of photographs but got nothing"),
        ({"data": "nowhere"}, "`data` to be a folder of photographs but got nowhere"),
        ({"far": "nowhere"}, "`far` to be a folder of photographs but got nowhere"),
        ({"runs": ()}, "`runs` to be given with the suite photos but got nothing"),
        ({"models": ("vanilla",)}, "`models` to be left out with the suite photos"),
        ({"hold_out": ("7",)}, "`hold_out` to be left out with the suite photos"),
        ({"size": 8}, "`size` to be left out with the suite photos"),
        ({"mirror": True}, "`mirror` to be left out with the suite photos"),
        ({"suite": "digits", "data": "", "far": ""}, "`near` to be left out but with the suite photos"),
    ],
)
def test_plans_that_cannot_be_measured(place: Path, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {line}"):
        make_plan(place, **settings).resolve()


def test_models_and_folders_that_do_not_fit(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"images of other classes than .*/near but got 007 in both"):
        study(make_plan(place, data=str(place / "near"), near=str(place / "near"), far=""), tmp_path / "a")
    for name, far in (("clean", ""), ("fog", ""), ("val", str(tmp_path / "other/val"))):
        for folder in (str(tmp_path / name), far):
            if folder:
                shutil.copytree(place / "near", folder)
        with pytest.raises(ValueError, match=rf"`(near|far)` to be a folder with a name of its own but got .*/{name}"):
            study(make_plan(place, near=str(tmp_path / name), far=far), tmp_path / "a")
    (tmp_path / "id/cat").mkdir(parents=True)
    Image.new("L", (9, 9)).save(tmp_path / "id/cat/0.png")
    with pytest.raises(ValueError, match=r"a folder of the model's 10 classes but got .*id with cat"):
        study(make_plan(place, data=str(tmp_path / "id")), tmp_path / "b")
    model = Classifier.load(place / "model")
    model.preprocessing = Preprocessing(size=(8, 8), channels=1)
    model.save(tmp_path / "rigid")
    with pytest.raises(ValueError, match=r"models with a resize rule, for photographs of any size, but got .*rigid"):
        study(make_plan(place, runs=(str(tmp_path / "rigid"),)), tmp_path / "c")
    assert not (tmp_path / "c/suite.json").exists()


def test_parts_on_the_disk_become_one_file(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if a part is joined out of order, or one that is there is forwarded again after a stop."""
    plan = make_plan(place).resolve()
    classifier, data = Classifier.load(place / "model"), find_photographs(plan, plan.data).load("test")
    whole = _photos.predict_photographs(classifier, data, tmp_path / "whole.safetensors")
    monkeypatch.setattr(_photos, "_PART", 50)
    cut = data._replace(images=(*data.images[:-1], tmp_path / "nothing.png"))
    Image.new("L", (9, 9)).save(tmp_path / "nothing.png")
    broken = (tmp_path / "nothing.png").read_bytes()
    (tmp_path / "nothing.png").write_bytes(broken[:-20])
    with pytest.raises(ValueError, match=r"photographs that can be read but got .*nothing\.png"):
        _photos.predict_photographs(classifier, cut, tmp_path / "parts.safetensors")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts.parts").iterdir()}
    assert len(kept) == len(data.images) // 50
    joined: dict[Path, int] = {}
    join = Outputs.join_files

    def watch(parts: list[Path], path: Path, fingerprint: str) -> None:
        joined.update({part: part.stat().st_mtime_ns for part in parts})
        join(parts, path, fingerprint)

    monkeypatch.setattr(Outputs, "join_files", watch)
    outputs = _photos.predict_photographs(classifier, data, tmp_path / "parts.safetensors")
    assert {path: joined[path] for path in kept} == kept
    for name, one, other in zip(Outputs._fields, outputs, whole, strict=True):
        assert torch.equal(one, other), name
    loaded, labels = Outputs.load(tmp_path / "parts.safetensors")
    assert labels is not None
    assert torch.equal(labels, data.labels)
    assert not (tmp_path / "parts.parts").exists()
    assert list(load_file(tmp_path / "parts.safetensors")) == list(load_file(tmp_path / "whole.safetensors"))
    assert len(data.images) == loaded.N
