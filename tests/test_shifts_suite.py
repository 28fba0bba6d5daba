"""The suites by name: the paper's for CIFAR, the same three for any data, and what is missing or does not fit."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dataset_files import cifar10_binary, cifar100_binary, svhn, tiny_small
from shiftprism.corruptions import COMMON, write_layout
from shiftprism.datasets import Dataset, _cifar, _tiny_imagenet, find, load
from shiftprism.shifts import CIFAR100_SPLITS, hold_out, suite
from shiftprism.shifts._suite import match_images

REAL = Path(os.environ.get("SHIFTPRISM_DATA") or "nowhere")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A root of our own, and no other data of this machine's."""
    monkeypatch.setattr(_cifar, "ROWS", {"train": 20, "test": 4})
    monkeypatch.setattr(_tiny_imagenet, "CLASSES", 3)
    monkeypatch.setattr(_tiny_imagenet, "EACH", {"train": 2, "test": 2})
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.delenv("SHIFTPRISM_DATA", raising=False)
    return tmp_path / "root"


def some(*names: str, channels: int = 3, side: int = 32) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (2 * len(names), channels, side, side), dtype=np.uint8)
    return Dataset(torch.from_numpy(images), torch.arange(len(names)).repeat(2), names)


def test_near_far_of_cifar(root: Path) -> None:
    for make in (cifar10_binary, cifar100_binary, tiny_small):
        make(root, "test")
    svhn(root, "test", True)
    found = [(shift.name, shift.kind, shift.severity) for shift in suite("near-far", "cifar10", root=root)]
    far = [("svhn", "both", 0), ("tiny-imagenet", "both", 0)]
    assert found == [("cifar100", "concept", 0), *far]
    shifts = list(suite("near-far", "cifar100", root=root))
    assert [(shift.name, shift.kind, shift.severity) for shift in shifts] == [("cifar10", "concept", 0), *far]
    assert all(shift.make().images.shape[1:] == (3, 32, 32) for shift in shifts)
    assert [shift.name for shift in suite("near-far", "cifar10", near=(), far="svhn", root=root)] == ["svhn"]


def test_all_that_is_missing_is_named_at_once_and_at_the_door(root: Path) -> None:
    cifar10_binary(root, "test")
    with pytest.raises(FileNotFoundError) as error:
        suite("near-far", "cifar10", root=root)
    for name in ("cifar100", "svhn", "tiny-imagenet"):
        assert f"Run `shiftprism data get {name}`, or put " in str(error.value)
    with pytest.raises(FileNotFoundError, match="Run `shiftprism data get cifar100`"):
        suite("concept-splits", "cifar10", root=root)
    with pytest.raises(FileNotFoundError, match="Run `shiftprism data get cifar100`"):
        suite("covariate", "cifar100", root=root)
    with pytest.raises(FileNotFoundError, match="Run `shiftprism data get cifar10-c`"):
        suite("covariate", "cifar10", corrupted="cifar10-c", root=root)


def test_concept_splits_of_cifar_are_the_tables(root: Path) -> None:
    cifar10_binary(root, "test")
    cifar100_binary(root, "test")
    shifts = list(suite("concept-splits", "cifar10", root=root))
    assert [(shift.name, shift.kind, shift.severity) for shift in shifts] == [
        ("cifar100-splits", "concept", severity) for severity in range(1, 11)
    ]
    assert [set(shift.make().names) for shift in shifts] == [set(CIFAR100_SPLITS[group]) for group in range(9, -1, -1)]
    assert sum(len(shift.make().images) for shift in shifts) == 4
    other = list(suite("concept-splits", "cifar100", root=root))
    assert [(shift.name, shift.severity) for shift in other] == [
        ("cifar10-splits", severity) for severity in range(1, 6)
    ]
    assert other[0].make().names == ("ship", "truck")


def test_held_out_classes_of_any_data_make_a_ladder() -> None:
    known, unseen = hold_out(load("digits", "test"), ["6", "8", "9"])
    vectors = {str(digit): [1.0, float(digit)] for digit in range(10)}  # the likeness 1 + 7 d grows with the digit
    shifts = list(suite("concept-splits", known, near={"unseen": unseen}, vectors=vectors, groups=3))
    assert [(shift.name, shift.severity, shift.make().names) for shift in shifts] == [
        ("unseen-splits", 1, ("9",)),
        ("unseen-splits", 2, ("8",)),
        ("unseen-splits", 3, ("6",)),
    ]


def test_another_folder_is_brought_to_the_models_size_and_channels(root: Path) -> None:
    for name in ("rust", "moss"):
        (root / "other" / name).mkdir(parents=True)
        for number in range(5):
            pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "other" / name / f"{number}.png")
    digits = load("digits", "test")
    (shift,) = suite("near-far", digits, far="other", root=root, split="all")
    assert shift.name == "other"
    assert shift.make().images.shape == (10, 1, 8, 8)
    assert shift.make().names == ("moss", "rust")
    with pytest.raises(ValueError, match="nothing at"):
        suite("near-far", digits, far="nowhere", root=root)


def test_grey_and_colour_become_each_other_as_in_pillow() -> None:
    colour, grey = some("a", "b"), some("c", channels=1)
    made = match_images(colour, grey.images, "colour").images
    for image, ours in zip(colour.images, made, strict=True):
        pillow = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).convert("L")
        assert np.array_equal(np.asarray(pillow), ours[0].numpy())
    back = match_images(grey, colour.images, "grey").images
    assert all(torch.equal(back[:, channel], grey.images[:, 0]) for channel in range(3))
    assert match_images(colour, colour.images, "same").images is colour.images


def test_what_cannot_be_scaled_is_refused() -> None:
    broad = Dataset(torch.zeros(2, 3, 16, 24, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))
    with pytest.raises(ValueError, match="`other` to be images of 16 × 24 pixels but got 3 × 32 × 32; resize them"):
        suite("near-far", broad, far={"other": some("c")})


def test_files_of_corrupted_images_are_what_is_made_here(root: Path) -> None:
    data = some("cat", "dog")
    write_layout(data.images, data.labels, root / "mine-c", ["contrast", "shot_noise"])
    options = {"corruptions": ["contrast", "shot_noise"]}
    made = list(suite("covariate", data, **options))  # type: ignore[arg-type]
    read = list(suite("covariate", data, corrupted="mine-c", root=root, **options))  # type: ignore[arg-type]
    assert [shift[:3] for shift in made] == [shift[:3] for shift in read]
    for here, there in zip(made, read, strict=True):
        assert torch.equal(here.make().images, there.make().images)
        assert torch.equal(here.make().labels, there.make().labels)
        assert there.make().names == ("cat", "dog")
    with pytest.raises(ValueError, match=r"nothing at .*gaussian_noise"):
        suite("covariate", data, corrupted="mine-c", root=root)
    with pytest.raises(ValueError, match="images of 3 × 16 × 16 with labels to 1 but got 3 × 32 × 32"):
        suite("covariate", some("cat", "dog", side=16), corrupted="mine-c", corruptions=["contrast"], root=root)
    with pytest.raises(ValueError, match=r"with labels to 0 but got .* with labels to 1"):
        suite("covariate", some("cat"), corrupted="mine-c", corruptions=["contrast"], root=root)


def test_covariate_of_any_data_is_the_15_by_5() -> None:
    shifts = list(suite("covariate", "digits"))
    assert [(shift.name, shift.severity) for shift in shifts] == [(name, s) for name in COMMON for s in range(1, 6)]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"name": "weather"}, "one of concept-splits, covariate, near-far but got 'weather'"),
        ({"name": "near-far"}, "`near` to be given, or `far`, for data that is not CIFAR but got neither"),
        ({"name": "concept-splits"}, "`near` to be given for data that is not CIFAR but got nothing"),
        ({"name": "concept-splits", "near": {"x": some("c")}}, "`vectors` to be given for these classes"),
        ({"name": "concept-splits", "near": {"x": some("c"), "y": some("d")}}, "one data set but got x, y"),
        ({"name": "concept-splits", "near": {"x": some("c", "B")}}, "`x` .* but got B on both sides"),
        ({"name": "near-far", "far": {"x": some("a", "b")}}, "`x` .* but got a, b on both sides"),
        ({"name": "covariate", "corruptions": ["rust"]}, "corruptions but got rust"),
    ],
)
def test_what_makes_no_suite_is_refused_at_the_door(words: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        suite(data=some("a", "b"), **words)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.skipif(
    not REAL.is_dir() or None in (find("cifar10", "test", REAL), find("cifar100", "test", REAL)),
    reason="no real CIFARs in $SHIFTPRISM_DATA",
)
def test_real_splits_are_a_thousand_images_each() -> None:
    for shift in suite("concept-splits", "cifar10", root=REAL):
        found = shift.make()
        assert found.images.shape == (1000, 3, 32, 32)
        assert torch.bincount(found.labels).tolist() == [100] * 10
