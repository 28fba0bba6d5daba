"""A user's own data: folders of class folders, arrays, the Hugging Face Hub."""

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.numpy import save_file

from dataset_files import encoded, pixels, png, write
from shiftprism.datasets import load


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))


def flat(root: Path, counts: dict[str, int], side: int = 6) -> dict[str, np.ndarray]:
    """Class folders with so many PNGs each."""
    images = {name: pixels(count, side, seed=count) for name, count in counts.items()}
    for name, part in images.items():
        for number, image in enumerate(part):
            write(root / name / f"{number:03}.png", png(image))
    return images


def test_a_folder_without_splits_is_divided_by_class_and_all_is_all_of_it(tmp_path: Path) -> None:
    images = flat(tmp_path / "mine", {"cat": 5, "ant": 10})
    every, train, test = (load(str(tmp_path / "mine"), split) for split in ("all", "train", "test"))
    assert every.names == ("ant", "cat")
    assert np.array_equal(every.images.numpy(), np.concatenate([images["ant"], images["cat"]]))
    assert test.labels.tolist() == [0, 0, 1]
    assert np.array_equal(test.images.numpy(), np.stack([images["ant"][4], images["ant"][9], images["cat"][4]]))
    assert len(train.images) == 12


@pytest.mark.parametrize("test_name", ["test", "val", "validation"])
def test_a_folder_with_splits_is_read_by_them_and_numbers_classes_by_the_training_set(
    test_name: str, tmp_path: Path
) -> None:
    flat(tmp_path / "mine" / "train", {"a": 2, "b": 2, "c": 2})
    images = flat(tmp_path / "mine" / test_name, {"c": 1, "b": 2})
    test = load("mine", "test", tmp_path)
    assert test.names == ("a", "b", "c")
    assert test.labels.tolist() == [1, 1, 2]
    assert np.array_equal(test.images.numpy(), np.concatenate([images["b"], images["c"]]))
    assert load("mine", "all", tmp_path).labels.tolist() == [0, 0, 1, 1, 2, 2, 1, 1, 2]


def test_a_test_class_that_was_never_trained_is_an_error_that_names_it(tmp_path: Path) -> None:
    flat(tmp_path / "mine" / "train", {"a": 1})
    flat(tmp_path / "mine" / "test", {"a": 1, "zebra": 1})
    with pytest.raises(ValueError, match="zebra"):
        load("mine", "test", tmp_path)


def test_a_split_that_a_folder_does_not_have_is_an_error(tmp_path: Path) -> None:
    flat(tmp_path / "mine" / "train", {"a": 1})
    with pytest.raises(FileNotFoundError, match="no folder for the split 'test': test, val"):
        load("mine", "test", tmp_path)


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "a" / "1.png", png(pixels(1, 6)[0]))
    write(tmp_path / "mine" / "a" / "2.png", png(pixels(1, 9)[0]))
    with pytest.raises(ValueError, match=r"6 × 6 \(.*1\.png\) and 9 × 9 \(.*2\.png\); give a side such as 32"):
        load("mine", "all", tmp_path)
    assert load("mine", "all", tmp_path, size=5).images.shape == (2, 3, 5, 5)


def test_wide_and_tall_images_fill_the_square_about_their_centre(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8)
    for number, image in enumerate((wide, wide.transpose(1, 0, 2))):
        write(tmp_path / "mine" / "a" / f"{number}.png", encoded(image.transpose(2, 0, 1), "PNG"))
    found = load("mine", "all", tmp_path, size=20).images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(found[0], wide[:, 20:40])
    assert np.array_equal(found[1], wide.transpose(1, 0, 2)[20:40])
    smaller = load("mine", "all", tmp_path, size=7).images.permute(0, 2, 3, 1).numpy()
    witness = ImageOps.fit(Image.fromarray(wide), (7, 7), Image.Resampling.BICUBIC)
    assert np.array_equal(smaller[0], np.asarray(witness))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000"])
def test_formats_without_loss_are_read_to_the_pixel(kind: str, tmp_path: Path) -> None:
    image = pixels(1, 8, seed=3)[0] // 64 * 64  # few enough colours for GIF
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    ending = {"JPEG2000": "jp2", "PPM": "ppm", "TIFF": "tif"}.get(kind, kind.lower())
    write(tmp_path / "mine" / "a" / f"x.{ending}", encoded(image, kind, **options))
    assert np.array_equal(load("mine", "all", tmp_path).images[0].numpy(), image)


def test_a_folder_of_grey_images_has_one_channel_and_one_coloured_image_makes_three(tmp_path: Path) -> None:
    grey = pixels(2, 6, 1)
    for number, image in enumerate(grey):
        write(tmp_path / "mine" / "a" / f"{number}.png", png(image))
    assert np.array_equal(load("mine", "all", tmp_path).images.numpy(), grey)
    write(tmp_path / "mine" / "a" / "3.png", png(pixels(1, 6)[0]))
    found = load("mine", "all", tmp_path).images.numpy()
    assert np.array_equal(found[:2], np.repeat(grey, 3, 1))


def test_palettes_transparency_sixteen_bits_and_cameras_held_sideways(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "a"
    folder.mkdir(parents=True)
    colours = pixels(1, 6, seed=4)[0].transpose(1, 2, 0)
    Image.fromarray(colours).quantize(64).save(folder / "1.png", transparency=bytes(64))  # all of it transparent
    Image.fromarray(np.dstack([colours, np.full((6, 6), 255, np.uint8)])).save(folder / "2.png")
    deep = (np.arange(36, dtype=np.uint16) * 1800).reshape(6, 6)
    Image.fromarray(deep).save(folder / "3.png")
    held = Image.Exif()
    held[0x0112] = 6  # the camera's top is at the right
    Image.fromarray(colours).save(folder / "4.png", exif=held)
    found = load("mine", "all", tmp_path).images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(found[0], np.full_like(colours, 255))  # on white
    assert np.array_equal(found[1], colours)
    assert np.array_equal(found[2], np.repeat((deep >> 8).astype(np.uint8)[:, :, None], 3, 2))
    assert np.array_equal(found[3], np.rot90(colours, -1))


def test_half_transparent_pixels_are_composed_on_white(tmp_path: Path) -> None:
    (tmp_path / "mine" / "a").mkdir(parents=True)
    Image.new("RGBA", (4, 4), (0, 0, 0, 51)).save(tmp_path / "mine" / "a" / "1.png")
    assert set(load("mine", "all", tmp_path).images.flatten().tolist()) == {204}


def test_float_pixels_are_refused_and_not_black(tmp_path: Path) -> None:
    (tmp_path / "mine" / "a").mkdir(parents=True)
    Image.fromarray(np.random.default_rng(0).random((6, 6), np.float32)).save(tmp_path / "mine" / "a" / "1.tiff")
    with pytest.raises(ValueError, match=r"1\.tiff is not read: its pixels are floats"):
        load("mine", "all", tmp_path)


@pytest.mark.parametrize("place", ["a/pipe.png", "a/link.png", "a/link", "linked"])
def test_pipes_and_links_out_of_the_folder_are_refused(tmp_path: Path, place: str) -> None:
    flat(tmp_path / "mine", {"a": 2})
    flat(tmp_path / "other", {"b": 2})
    path = tmp_path / "mine" / place
    if "pipe" in place:
        os.mkfifo(path)
    else:
        path.symlink_to(next((tmp_path / "other" / "b").iterdir()) if path.suffix else tmp_path / "other" / "b")
    with pytest.raises((ValueError, OSError), match=str(path)):
        load("mine", "all", tmp_path)
    path.unlink()
    (tmp_path / "mine" / "a" / "same.png").symlink_to(next((tmp_path / "mine" / "a").iterdir()))
    assert len(load("mine", "all", tmp_path).images) == 3


@pytest.mark.parametrize(
    ("file", "problem"),
    [("a/picture.jpg_large", "not in an image format we read"), ("a/data.bin", "not in an image format we read")],
)
def test_a_file_that_may_have_been_meant_is_never_left_out_silently(file: str, problem: str, tmp_path: Path) -> None:
    flat(tmp_path / "mine", {"a": 2})
    write(tmp_path / "mine" / file, b"x")
    with pytest.raises(ValueError, match=problem):
        load("mine", "all", tmp_path)


def test_an_empty_class_or_folder_is_an_error(tmp_path: Path) -> None:
    flat(tmp_path / "mine", {"a": 2})
    (tmp_path / "mine" / "b").mkdir()
    with pytest.raises(ValueError, match=r"the empty .*b;"):
        load("mine", "all", tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="without folders"):
        load("none", "all", tmp_path)


def test_two_folders_and_two_sizes_keep_their_own_decoded_images(tmp_path: Path) -> None:
    first, second = flat(tmp_path / "one", {"a": 2}), flat(tmp_path / "two", {"a": 3})
    for _ in range(2):
        assert np.array_equal(load("one", "all", tmp_path).images.numpy(), first["a"])
        assert np.array_equal(load("two", "all", tmp_path).images.numpy(), second["a"])
        assert load("one", "all", tmp_path, size=3).images.shape == (2, 3, 3, 3)
    assert len(list((tmp_path / "home" / "decoded").iterdir())) == 3


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NHW"])
@pytest.mark.parametrize("end", ["npz", "safetensors"])
def test_arrays_are_taken_in_every_layout(layout: str, end: str, tmp_path: Path) -> None:
    images = pixels(10, 7, 1 if layout == "NHW" else 3)
    array = {"NCHW": images, "NHWC": images.transpose(0, 2, 3, 1).copy(), "NHW": images[:, 0]}[layout]
    labels = np.arange(10, dtype=np.int32).reshape(10, 1) % 2
    content = {"images": array, "labels": labels}
    if end == "npz":
        np.savez(tmp_path / "mine.npz", allow_pickle=False, **content)
    else:
        save_file(content, tmp_path / "mine.safetensors")
    data = load(f"mine.{end}", "all", tmp_path)
    assert np.array_equal(data.images.numpy(), images)
    assert data.labels.tolist() == labels[:, 0].tolist()
    assert data.names == ("0", "1")
    assert load(f"mine.{end}", "test", tmp_path).labels.tolist() == [0, 1]


def test_arrays_with_splits_keep_them(tmp_path: Path) -> None:
    images = pixels(6, 5)
    np.savez(
        tmp_path / "mine.npz",
        x_train=images[:4],
        y_train=np.array([0, 1, 2, 0]),
        x_test=images[4:],
        y_test=np.array([1, 1]),
    )
    assert load("mine.npz", "test", tmp_path).labels.tolist() == [1, 1]
    assert load("mine.npz", "test", tmp_path).names == ("0", "1", "2")
    assert np.array_equal(load("mine.npz", "all", tmp_path).images.numpy(), images)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"pictures": np.zeros((2, 3, 4, 4), np.uint8)}, "with pictures"),
        ({"images": np.zeros((2, 3, 4, 4), np.float32), "labels": np.zeros(2, np.int64)}, "uint8"),
        ({"images": np.zeros((2, 4, 4, 2), np.uint8), "labels": np.zeros(2, np.int64)}, "uint8 of shape"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.zeros(3, np.int64)}, "for 2 images"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.array([0, -1])}, "label -1 at image 1"),
        (
            {"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.array([0, 2]), "names": np.array(["a", "b"])},
            "label 2",
        ),
        (
            {"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.zeros(2)},
            "whole class numbers",
        ),
        ({"test_images": np.zeros((2, 3, 4, 4), np.uint8), "test_labels": np.zeros(2, np.int64)}, "`split` to be test"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(content: dict[str, np.ndarray], problem: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", allow_pickle=False, **content)
    with pytest.raises(ValueError, match=problem):
        load("mine.npz", "train", tmp_path)


class FakeImage:
    """`datasets.Image`, as far as it is used."""

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


FakeImage.__name__ = "Image"


class FakeTable:
    """`datasets.Dataset`, as far as it is used: rows of image files and class labels."""

    def __init__(self, rows: list[dict[str, Any]], names: list[str], split: str) -> None:
        self.rows, self.split, self._fingerprint = rows, split, f"{split}-{len(rows)}"
        label = type("ClassLabel", (), {"names": names})()
        self.features = {"id": SimpleNamespace(), "img": FakeImage(), "label": label}

    def cast_column(self, name: str, feature: FakeImage) -> "FakeTable":
        assert name == "img"
        assert not feature.decode  # the bytes go our way, not the library's
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        return [row[key] for row in self.rows] if isinstance(key, str) else self.rows[key]


def fake_hub(monkeypatch: pytest.MonkeyPatch, tables: dict[str, FakeTable]) -> list[tuple[str, str | None]]:
    asked: list[tuple[str, str | None]] = []
    module = ModuleType("datasets")

    def load_dataset(path: str, name: str | None = None) -> dict[str, FakeTable]:
        asked.append((path, name))
        return tables

    module.__dict__.update(load_dataset=load_dataset, Image=FakeImage)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def table(count: int, split: str, folder: Path) -> FakeTable:
    rows: list[dict[str, Any]] = [
        {"img": {"bytes": png(image), "path": None}, "label": row % 2} for row, image in enumerate(pixels(count, 6))
    ]
    rows[0]["img"] = {"bytes": None, "path": str(write(folder / "first.png", rows[0]["img"]["bytes"]))}
    return FakeTable(rows, ["no", "yes"], split)


def test_a_data_set_of_the_hub_is_read_by_its_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = fake_hub(
        monkeypatch, {"train": table(6, "train", tmp_path), "validation": table(4, "validation", tmp_path)}
    )
    data = load("hf:someone/something:small", "test")
    assert asked == [("someone/something", "small")]
    assert np.array_equal(data.images.numpy(), pixels(4, 6))
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert data.names == ("no", "yes")
    assert load("hf:someone/something", "all", size=3).images.shape == (10, 3, 3, 3)


def test_a_data_set_of_the_hub_with_one_table_is_divided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_hub(monkeypatch, {"train": table(10, "train", tmp_path)})
    whole = load("hf:a/b", "all").images
    with pytest.warns(UserWarning, match="hf:a/b has the table train alone: every fifth image"):
        train, test = load("hf:a/b", "train"), load("hf:a/b", "test")
    assert torch.equal(test.images, whole[[8, 9]])
    assert torch.equal(train.images, whole[:8])
    fake_hub(monkeypatch, {"test": table(10, "test", tmp_path)})
    assert len(load("hf:a/b", "test").images) == 10
    with pytest.raises(ValueError, match=r"`split` to be one of test but got 'train' for hf:a/b"):
        load("hf:a/b", "train")


def test_images_are_decoded_on_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []

    def make_pool(count: int) -> ThreadPoolExecutor:
        asked.append(count)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr("shiftprism.datasets._images.ThreadPoolExecutor", make_pool)
    monkeypatch.setattr("shiftprism.datasets._images.count_cores", lambda: 3)
    fake_hub(monkeypatch, {"train": table(10, "train", tmp_path)})
    load("hf:a/b", "all")
    assert set(asked) == {3}


def test_a_damaged_image_of_the_hub_is_named_by_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = table(4, "train", tmp_path)
    broken.rows[2]["img"]["bytes"] = broken.rows[2]["img"]["bytes"][:-20]
    fake_hub(monkeypatch, {"train": broken})
    with pytest.raises(ValueError, match=r"hf:a/b row 2 is damaged at byte \d+"):
        load("hf:a/b", "all")


def test_a_data_set_of_the_hub_without_images_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = table(4, "train", tmp_path)
    del words.features["img"]
    fake_hub(monkeypatch, {"train": words})
    with pytest.raises(ValueError, match="a column of type Image"):
        load("hf:a/b", "all")


def test_the_hub_without_its_extra_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r'pip install "shiftprism\[hf\]"'):
        load("hf:a/b", "test")


def test_the_real_library_agrees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `hf` is not installed")
    images = pixels(5, 6)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"image": [Image.open(io.BytesIO(png(image))) for image in images], "label": [0, 1, 0, 1, 1]}
    built = datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name=None: datasets.DatasetDict({"train": built}))
    data = load("hf:a/b", "all")
    assert torch.equal(data.images, torch.from_numpy(images))
    assert data.labels.tolist() == [0, 1, 0, 1, 1]
