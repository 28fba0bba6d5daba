"""Image files one by one: what is whole is read to the pixel, what is not is a row with its reason; flat folders."""

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from torch import Tensor

from dataset_files import encoded, pixels, png, write
from shiftprism import Classifier
from shiftprism.classifier import Preprocessing
from shiftprism.datasets import EncodedImage, _images, _read, list_images, load, read_images


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))


def read(path: Path) -> np.ndarray:
    """The pixels of a file, (H, W, C), which must have been read."""
    (file,) = read_images([path])
    assert file.problem == ""
    assert file.image is not None
    assert file.image.dtype == torch.uint8
    return file.image.permute(1, 2, 0).numpy()


def problem(path: Path) -> str:
    (file,) = read_images([path])
    assert file.path == path
    assert file.image is None
    assert "\n" not in file.problem
    return file.problem


def test_files_come_in_order_and_a_bad_one_is_a_row(tmp_path: Path) -> None:
    images = pixels(40, 6)
    paths = [write(tmp_path / f"{number:02}.png", png(image)) for number, image in enumerate(images)]
    paths[7].write_bytes(b"no image")
    paths.insert(20, tmp_path / "absent.png")
    found = list(read_images(map(str, paths), threads=3))
    assert [file.path for file in found] == paths
    bad = {7: "it is not in an image format we read, or is damaged at byte 0", 20: "No such file or directory"}
    assert {number: file.problem for number, file in enumerate(found) if file.problem} == bad
    whole = [file.image for number, file in enumerate(found) if number not in bad]
    assert np.array_equal(torch.stack([image for image in whole if image is not None]).numpy(), np.delete(images, 7, 0))


@pytest.mark.parametrize("name", ["a.heic", "a.CR2", "a.mp4"])
def test_another_format_is_not_called_damaged(tmp_path: Path, name: str) -> None:
    assert problem(write(tmp_path / name, b"x")) == "it is not in an image format we read"
    assert problem(write(tmp_path / "a.png", b"x")) == "it is not in an image format we read, or is damaged at byte 0"


def test_grey_files_have_one_channel_and_others_three(tmp_path: Path) -> None:
    grey = pixels(1, 6, 1)[0]
    assert np.array_equal(read(write(tmp_path / "a.png", png(grey))), grey.transpose(1, 2, 0))
    assert read(write(tmp_path / "b.png", png(pixels(1, 6)[0]))).shape == (6, 6, 3)


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    indices = np.arange(16, dtype=np.uint8).reshape(4, 4)
    image = Image.fromarray(indices, "P")
    colours = np.random.default_rng(0).integers(0, 256, (256, 3), dtype=np.uint8)
    image.putpalette(colours.tobytes())
    image.save(tmp_path / "x.png")
    assert np.array_equal(read(tmp_path / "x.png"), colours[indices])


def test_alpha_is_composed_on_white(tmp_path: Path) -> None:
    alpha = np.array([[0, 51], [128, 255]], np.uint8)
    colour = np.full((2, 2, 3), (10, 200, 60), np.uint8)
    Image.fromarray(np.dstack([colour, alpha])).save(tmp_path / "x.png")
    share = alpha[:, :, None] / 255
    expected = share * colour + (1 - share) * 255
    assert np.abs(read(tmp_path / "x.png") - expected).max() <= 1
    Image.fromarray(np.dstack([colour[:, :, 0], alpha]), "LA").save(tmp_path / "grey.png")
    assert np.abs(read(tmp_path / "grey.png") - (share * 10 + (1 - share) * 255)).max() <= 1


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_is_read(kind: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    frames[0].save(tmp_path / "x", kind, save_all=True, append_images=frames[1:], **options)
    with Image.open(tmp_path / "x") as image:
        assert getattr(image, "n_frames", 1) == 3
    assert np.array_equal(read(tmp_path / "x"), np.full((8, 8, 3), (255, 0, 0)))


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (2, np.fliplr),
        (3, lambda image: np.rot90(image, 2)),
        (4, np.flipud),
        (5, lambda image: image.transpose(1, 0, 2)),
        (6, lambda image: np.rot90(image, -1)),
        (7, lambda image: np.rot90(image, 2).transpose(1, 0, 2)),
        (8, np.rot90),
    ],
)
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_turns_the_picture_upright(orientation: int, turn: Any, kind: str, tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    tags = Image.Exif()
    tags[0x0112] = orientation
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    Image.fromarray(stored).save(tmp_path / "x", kind, exif=tags, **options)
    assert np.array_equal(read(tmp_path / "x"), turn(stored))


def test_cmyk_is_read_as_colours(tmp_path: Path) -> None:
    """0 of all inks is white, all of one ink has none of its complement; JPEG loses a few grey levels."""
    inks = np.zeros((16, 64, 4), np.uint8)
    for number in range(3):
        inks[:, 16 * (number + 1) : 16 * (number + 2), number] = 255
    Image.fromarray(inks, "CMYK").save(tmp_path / "x.jpg", quality=100)
    Image.fromarray(inks, "CMYK").save(tmp_path / "x.tif")
    expected = np.full((16, 64, 3), 255)
    for number in range(3):
        expected[:, 16 * (number + 1) : 16 * (number + 2), number] = 0
    assert np.array_equal(read(tmp_path / "x.tif"), expected)
    assert np.abs(read(tmp_path / "x.jpg").astype(int) - expected).max() <= 6


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind: str, tmp_path: Path) -> None:
    """Whether an 8-bit v was stored as 257 v or as 256 v, it comes back as v."""
    eight = np.arange(256, dtype=np.uint16).reshape(16, 16)
    for factor in (256, 257):
        Image.fromarray(eight * factor).save(tmp_path / "x", kind)
        assert np.array_equal(read(tmp_path / "x")[:, :, 0], eight)


def test_sixteen_bit_colours_are_scaled(tmp_path: Path) -> None:
    eight = pixels(1, 6)[0].transpose(1, 2, 0)
    rows = (eight.astype(">u2") * 257).tobytes()
    write(tmp_path / "x.ppm", b"P6\n6 6\n65535\n" + rows)
    assert np.array_equal(read(tmp_path / "x.ppm"), eight)


def test_pixels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    for number, dtype in enumerate((np.float32, np.int32)):
        Image.fromarray(np.ones((4, 4), dtype)).save(tmp_path / f"{number}.tif")
        assert "floats or 32-bit numbers of an unknown range" in problem(tmp_path / f"{number}.tif")


def test_the_smallest_image_is_read(tmp_path: Path) -> None:
    write(tmp_path / "x.png", png(np.array([[[1]], [[2]], [[3]]], np.uint8)))
    assert read(tmp_path / "x.png").tolist() == [[[1, 2, 3]]]


def test_huge_images_and_files_have_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (9000, 8000)).save(tmp_path / "x.png")
    assert problem(tmp_path / "x.png") == (
        "it is not read: it has 9000 × 8000 pixels, and at most 67,108,864 are read; scale it down"
    )
    (tmp_path / "large.png").touch()
    os.truncate(tmp_path / "large.png", 1 << 40)  # sparse: it takes no room, but a reader would take it all
    assert problem(tmp_path / "large.png") == "the file has 1,099,511,627,776 bytes, and at most 268,435,456 are read"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000"])
def test_a_file_that_is_cut_has_a_reason(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = encoded(rng.integers(0, 256, (3, 40, 40), dtype=np.uint8), kind)
    for share in (0.1, 0.5, 0.9):
        assert problem(write(tmp_path / "x", content[: int(share * len(content))]))
    write(tmp_path / "x", content)
    assert read(tmp_path / "x").shape == (40, 40, 3)


def test_random_bytes_have_a_reason(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    starts = (
        b"",
        b"\xff\xd8\xff\xe0",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"RIFF\0\0\1\0WEBPVP8 ",
        b"P6\n",
    )
    paths = [
        write(tmp_path / str(number), starts[number % len(starts)] + rng.bytes(int(rng.integers(0, 400))))
        for number in range(160)
    ]
    found = list(read_images(paths))
    assert [file.path for file in found] == paths
    assert all(file.image is None and file.problem for file in found)


def test_what_is_no_file_has_a_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert problem(tmp_path / "pipe") == "this is a pipe, not a file"
    assert problem(tmp_path) == "this is a folder, not a file"


def test_a_prepared_image_is_what_the_model_sees_and_its_error_a_reason(tmp_path: Path) -> None:
    classifier = Classifier.build("digits", "vanilla", ("a", "b"), channels=1).eval()
    classifier.preprocessing = Preprocessing((8, 8), 9, 1)
    images = [pixels(1, 20)[0], pixels(1, 8, 1)[0], np.zeros((1, 1, 1_000_000), np.uint8)]
    paths = [write(tmp_path / f"{number}.png", png(image)) for number, image in enumerate(images)]
    first, second, third = read_images(paths, classifier.prepare)
    assert first.image is not None
    assert second.image is not None
    assert torch.equal(first.image, classifier.prepare(torch.from_numpy(images[0])))
    assert torch.equal(second.image, torch.from_numpy(images[1]).float() / 255)
    assert third.image is None
    assert "less long and narrow but got 1 × 1000000 pixels" in third.problem
    classifier.preprocessing = Preprocessing((8, 8), None, 1)
    reasons = [file.problem for file in read_images(paths, classifier.prepare)]
    assert "of 8 × 8 pixels but got 20 × 20" in reasons[0]
    assert reasons[1] == ""


def test_memory_is_bounded_by_files_and_by_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget of two images, no third is decoded before the first is handed over, and none waits for ever."""
    monkeypatch.setattr(_read, "_PIXELS_AHEAD", 2 * 36)
    monkeypatch.setattr(_read, "_GROUP", 1)
    paths = [write(tmp_path / f"{number}.png", png(image)) for number, image in enumerate(pixels(30, 6))]
    decoded: list[int] = []
    original = _images.to_pixels

    def count(*arguments: Any) -> Any:
        decoded.append(threading.get_ident())
        return original(*arguments)

    monkeypatch.setattr(_read, "to_pixels", count)
    files = read_images(paths, threads=4)
    for number in range(30):
        next(files)
        # handed over, in memory, and perhaps one that may go ahead because it is the next
        assert len(decoded) <= number + 1 + 3
    assert len(decoded) == 30


def test_prepared_images_count_by_what_is_left_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_read, "_PIXELS_AHEAD", 40)
    monkeypatch.setattr(_read, "_AHEAD", 8)
    paths = [write(tmp_path / f"{number}.png", png(image)) for number, image in enumerate(pixels(9, 6))]

    def shrink(image: Tensor) -> Tensor:
        return image[:, :1, :1]

    files = read_images(paths, shrink, threads=1)
    next(files)
    # all eight that may be ahead are decoded: each keeps a single pixel
    assert [file.problem for file in files] == [""] * 8


def test_small_files_are_decoded_in_groups_which_end_early_where_they_hold_large_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 files in groups of 16; of 100 pixels each, a group ends after 3 images, and the caller reads the others."""
    images = pixels(40, 10)
    paths = [write(tmp_path / f"{number}.png", png(image)) for number, image in enumerate(images)]
    paths[5] = tmp_path / "none.png"
    by: dict[str, int] = {}
    original = _images.to_pixels

    def count(*arguments: Any) -> Any:
        name = "caller" if threading.current_thread() is threading.main_thread() else "threads"
        by[name] = by.get(name, 0) + 1
        return original(*arguments)

    monkeypatch.setattr(_read, "to_pixels", count)
    for most, expected in ((1 << 22, {"threads": 39}), (250, {"threads": 11, "caller": 28})):
        monkeypatch.setattr(_read, "_GROUP_PIXELS", most)
        by.clear()
        found = list(read_images(paths, threads=2))
        assert [file.path for file in found] == paths
        assert [file.image is None for file in found] == [number == 5 for number in range(40)]
        assert all(
            torch.equal(file.image, torch.from_numpy(image))
            for file, image in zip(found, images, strict=True)
            if file.image is not None
        )
        assert by == expected
    sizes = [len(group) for group in _read._group([*paths, *(EncodedImage(Path("x"), bytes) for _ in range(2))])]
    assert sizes == [5, 1, 16, 16, 2, 1, 1]  # a file without a size is alone, and so is what lies in an archive


def test_each_thread_computes_alone_and_others_as_before(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), []

    def prepare(image: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return image

    path = write(tmp_path / "x.png", png(pixels(1, 6)[0]))
    assert len(list(read_images([path] * 20, prepare))) == 20
    assert seen == [1] * 20
    assert torch.get_num_threads() == before


def test_whoever_stops_early_leaves_no_threads(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number}.png", png(image)) for number, image in enumerate(pixels(60, 6))]
    before = threading.active_count()
    files = read_images(paths, threads=3)
    next(files)
    files.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    with pytest.raises(ValueError, match="`threads` to be 1 or more but got -1"):
        read_images(paths, threads=-1)


def test_a_list_of_places_names_every_file_once_in_order(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.PNG", "b/deep/x.jpg", "b/.hidden.png", "b/notes.txt", "b/what.bin", "a.png"):
        write(tmp_path / name, b"x")
    (tmp_path / "b" / "link").symlink_to(tmp_path / "b" / "deep")
    found = list_images(tmp_path / "b", str(tmp_path / "a.png"), tmp_path / "none.png")
    names = [str(path.relative_to(tmp_path)) for path in found]
    assert names == ["b/1.PNG", "b/2.png", "b/deep/x.jpg", "b/link", "b/what.bin", "a.png", "none.png"]


def test_a_folder_without_classes_is_one_class_of_its_name(tmp_path: Path) -> None:
    images = pixels(10, 6)
    for number, image in enumerate(images):
        write(tmp_path / "holiday" / f"{number}.png", png(image))
    write(tmp_path / "holiday" / "notes.txt", b"x")
    data = load("holiday", "all", tmp_path)
    assert data.names == ("holiday",)
    assert np.array_equal(data.images.numpy(), images)
    assert data.labels.tolist() == [0] * 10
    assert np.array_equal(load("holiday", "test", tmp_path).images.numpy(), images[[4, 9]])


def test_splits_without_classes_are_one_class_too(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "train" / "1.png", png(pixels(1, 6)[0]))
    write(tmp_path / "mine" / "test" / "2.png", png(pixels(1, 6)[0]))
    assert load("mine", "all", tmp_path).names == ("mine",)
    assert load("mine", "test", tmp_path).labels.tolist() == [0]
    write(tmp_path / "other" / "train" / "cat" / "1.png", png(pixels(1, 6)[0]))
    write(tmp_path / "other" / "test" / "2.png", png(pixels(1, 6)[0]))
    with pytest.raises(ValueError, match="a folder with the training classes"):
        load("other", "test", tmp_path)


def test_images_beside_class_folders_are_never_left_out_silently(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "cat" / "1.png", png(pixels(1, 6)[0]))
    write(tmp_path / "mine" / "2.png", png(pixels(1, 6)[0]))
    with pytest.raises(ValueError, match=r"with folders and with 1 images beside them \(2\.png, …\); move these"):
        load("mine", "all", tmp_path)


def test_a_colour_profile_does_not_stop_a_file(tmp_path: Path) -> None:
    out = io.BytesIO()
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.new("RGB", (4, 4), (1, 2, 3)).save(out, "PNG", icc_profile=profile)
    assert read(write(tmp_path / "x.png", out.getvalue())).tolist() == [[[1, 2, 3]] * 4] * 4
