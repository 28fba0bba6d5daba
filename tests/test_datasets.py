"""Loading by name: roots, splits, sizes; the digits; and real data where this machine has it."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from dataset_files import cifar10_binary, cifar100_binary, npm_tool
from shiftprism.datasets import DATASETS, Dataset, _cifar, find, load, search_folders
from shiftprism.datasets._find import data_folder

REAL = Path(os.environ.get("SHIFTPRISM_DATA") or "nowhere")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data of this machine's."""
    monkeypatch.delenv("SHIFTPRISM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_cifar, "ROWS", {"train": 20, "test": 4})
    return tmp_path


def some(count: int = 6, classes: int = 3) -> Dataset:
    labels = torch.arange(count) % classes
    images = torch.arange(count, dtype=torch.uint8).reshape(count, 1, 1, 1).expand(count, 1, 2, 2)
    return Dataset(images, labels, tuple("abcdefghij"[:classes]))


def test_the_digits_are_scikit_learns_rounded_to_bytes_and_split_by_class() -> None:
    pixels, labels = load_digits(return_X_y=True)
    parts = {split: load("digits", split) for split in ("train", "test", "all")}
    counts = {split: np.bincount(part.labels.numpy()) for split, part in parts.items()}
    assert np.array_equal(counts["train"] + counts["test"], np.bincount(labels))
    assert (np.abs(counts["test"] / np.bincount(labels) - 1 / 3) < 0.005).all()
    assert parts["train"].images.shape[1:] == (1, 8, 8)
    assert parts["train"].names == tuple("0123456789")
    every = torch.cat([parts["train"].images, parts["test"].images]).reshape(-1, 64).double().numpy()
    assert np.abs(np.sort(every * 16 / 255, 0) - np.sort(pixels, 0)).max() <= 0.5 * 16 / 255
    assert int(parts["all"].images.max()) == 255
    # a third image of a class is for testing: the first zeros of scikit-learn's list are where they should be
    zeros = np.rint(pixels[labels == 0] * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    found = parts["test"].only(["0"]).images.numpy()
    assert np.array_equal(found, zeros[2::3])


def test_the_digits_need_no_folder(apart: Path) -> None:
    assert len(load("digits", "test", apart / "not there").images) == 596


@given(st.integers(1, 60), st.integers(1, 5), st.integers(2, 6))
def test_the_parts_of_a_divided_set_do_not_overlap_and_are_fair_to_each_class(
    count: int, classes: int, every: int
) -> None:
    data = some(count, classes)
    train, test = data.divide("train", every), data.divide("test", every)
    seen = torch.cat([train.images, test.images]).flatten(1)[:, 0]
    assert sorted(seen.tolist()) == list(range(count))
    for label in range(classes):
        assert int((test.labels == label).sum()) == int((data.labels == label).sum()) // every


def test_order_in_class_counts_each_class_from_zero() -> None:
    data = some()._replace(labels=torch.tensor([2, 0, 2, 2, 0, 1]))
    assert data.order_in_class().tolist() == [0, 0, 1, 2, 1, 0]


def test_joining_undoes_cutting_and_one_part_is_itself() -> None:
    data = some()
    joined = Dataset.concat([data.rows(slice(0, 2)), data.rows(slice(2, None))])
    assert torch.equal(joined.images, data.images)
    assert torch.equal(joined.labels, data.labels)
    assert Dataset.concat([data]) is data
    with pytest.raises(ValueError, match="of the same classes"):
        Dataset.concat([data, data._replace(names=("x", "y", "z"))])


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (some()._replace(images=torch.zeros(6, 1, 2, 2)), "uint8 images"),
        (some()._replace(images=some().images[:, 0]), "uint8 images"),
        (some(0), "uint8 images"),
        (some()._replace(labels=torch.zeros(5, dtype=torch.int64)), "one int64 for each image"),
        (some()._replace(labels=torch.zeros(6)), "one int64 for each image"),
        (some()._replace(labels=torch.tensor([0, 1, 2, 3, 0, 1])), "label 3 at image 3"),
        (some()._replace(labels=torch.tensor([0, 1, -1, 2, 0, 1])), "label -1 at image 2"),
        (some()._replace(names=("a", "b", "a")), "a name twice"),
    ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(bad: Dataset, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        bad.check()


def test_a_name_or_split_that_is_not_known_is_an_error_that_lists_those_that_are(apart: Path) -> None:
    with pytest.raises(ValueError, match=r"`name` to be one of digits, cifar10,.* but got 'cifar11'"):
        load("cifar11", "test")
    with pytest.raises(ValueError, match="`split` to be one of all, test, train but got 'val'"):
        load("digits", "val")
    with pytest.raises(ValueError, match="`split` to be one of test but got 'train'"):
        load("cifar10-c/fog/1", "train")
    with pytest.raises(ValueError, match="only the corrupted data sets have parts"):
        load("cifar10/fog/1", "test")
    with pytest.raises(ValueError, match="`size` to be between 1 and 4096 but got 0"):
        load("digits", "test", size=0)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_what_is_missing_is_an_error_that_says_which_files_to_put_where(name: str, apart: Path) -> None:
    entry = DATASETS[name]
    with pytest.raises(FileNotFoundError, match=f"shiftprism data get {name}") as caught:
        load(name, "test", apart / "data")
    told = str(caught.value)
    assert all(form.path in told for form in entry.formats)
    assert all(str(apart / "data" / item.to) in told and item.addresses[0] in told for item in entry.downloads)


def test_data_is_looked_for_in_the_documented_order(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search_folders() == [Path("data"), apart / "cache" / "shiftprism", apart / "share" / "datasets"]
    assert data_folder() == apart / "cache" / "shiftprism"
    assert search_folders("given") == [Path("given"), apart / "share" / "datasets"]
    monkeypatch.setenv("SHIFTPRISM_DATA", str(apart / "set"))
    assert search_folders() == [apart / "set", apart / "share" / "datasets"]
    assert data_folder() == apart / "set"
    assert data_folder("given") == Path("given")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("SHIFTPRISM_DATA")
    monkeypatch.setenv("HOME", str(apart))
    assert data_folder() == apart / ".cache" / "shiftprism"
    assert data_folder("~/mine") == apart / "mine"


def test_the_folder_data_here_comes_before_the_cache(apart: Path) -> None:
    cifar10_binary(apart / "cache" / "shiftprism", "test")
    assert len(load("cifar10", "test").images) == 4
    found = find("cifar10", "test")
    assert found is not None
    assert found[0] == apart / "cache" / "shiftprism" / "cifar-10-batches-bin"
    cifar10_binary(apart / "data", "test")
    found = find("cifar10", "test")
    assert found is not None
    assert found[0] == Path("data/cifar-10-batches-bin")


def test_all_is_train_and_then_test(apart: Path) -> None:
    train, test = (cifar100_binary(apart, split) for split in ("train", "test"))
    data = load("cifar100", "all", apart)
    assert np.array_equal(data.images.numpy(), np.concatenate([train.images, test.images]))
    assert data.labels.tolist() == [*train.labels, *test.labels]


def test_any_data_set_can_be_resized_as_pillow_does(apart: Path) -> None:
    small, large = load("digits", "test"), load("digits", "test", size=32)
    assert large.images.shape == (596, 1, 32, 32)
    for row in (0, 300):
        image = Image.fromarray(small.images[row, 0].numpy()).resize((32, 32), Image.Resampling.BICUBIC)
        assert np.array_equal(large.images[row, 0].numpy(), np.asarray(image))
    assert load("digits", "test", size=8).images.shape == (596, 1, 8, 8)
    made = cifar10_binary(apart, "test")
    half = load("cifar10", "test", apart, size=16)
    witness = Image.fromarray(made.images[3].transpose(1, 2, 0)).resize((16, 16), Image.Resampling.BICUBIC)
    assert np.array_equal(half.images[3].permute(1, 2, 0).numpy(), np.asarray(witness))


def real(name: str, split: str) -> Dataset:
    """The data set, where $SHIFTPRISM_DATA holds it."""
    if find(name, split, REAL) is None:
        pytest.skip(f"$SHIFTPRISM_DATA does not hold {name} ({split})")
    return load(name, split, REAL)


@pytest.mark.parametrize(
    ("name", "split", "count", "each", "means"),
    [
        pytest.param("cifar10", "train", 50_000, 5_000, (0.4914, 0.4822, 0.4465), marks=pytest.mark.slow),
        ("cifar10", "test", 10_000, 1_000, (0.4942, 0.4851, 0.4504)),
        pytest.param("cifar100", "train", 50_000, 500, (0.5071, 0.4865, 0.4409), marks=pytest.mark.slow),
        ("cifar100", "test", 10_000, 100, (0.5088, 0.4874, 0.4419)),
        ("tiny-imagenet", "test", 10_000, 50, (0.4824, 0.4495, 0.3981)),
        ("mnist", "train", 60_000, None, (0.1307,)),
        ("fashion-mnist", "train", 60_000, 6_000, (0.2860,)),
    ],
)
def test_real_data_has_its_counts_means_and_balance(
    name: str, split: str, count: int, each: int | None, means: tuple[float, ...]
) -> None:
    data = real(name, split)
    assert len(data.images) == count
    totals = data.images.sum((0, 2, 3), dtype=torch.int64).double()
    found = totals / (255 * count * data.images.shape[2] * data.images.shape[3])
    assert found.tolist() == pytest.approx(means, abs=5e-5)
    if each is not None:
        assert (torch.bincount(data.labels, minlength=len(data.names)) == each).all()


def test_real_svhn_is_digits_with_ones_most_often() -> None:
    data = real("svhn", "test")
    counts = torch.bincount(data.labels, minlength=10)
    assert data.images.shape[1:] == (3, 32, 32)
    assert counts.min() > 0
    assert int(counts.argmax()) == 1


@pytest.mark.parametrize("split", ["train", "test"])
def test_real_cifar10_is_the_publishers_to_the_last_byte_wherever_it_came_from(split: str) -> None:
    data = real("cifar10", split)
    rows = np.concatenate([data.labels.numpy().astype(np.uint8)[:, None], data.images.numpy().reshape(-1, 3072)], 1)
    published = [digest for name, digest in npm_tool().BATCHES.items() if (name == "test_batch") == (split == "test")]
    batches = np.split(rows, len(published))
    assert [hashlib.sha256(batch.tobytes()).hexdigest() for batch in batches] == published


def test_the_listing_is_whole() -> None:
    wanted = {
        "digits",
        "cifar10",
        "cifar100",
        "cifar10-c",
        "cifar100-c",
        "mnist",
        "fashion-mnist",
        "svhn",
        "tiny-imagenet",
    }
    assert set(DATASETS) == wanted
    assert all(entry.about and entry.licence and entry.formats for entry in DATASETS.values())
