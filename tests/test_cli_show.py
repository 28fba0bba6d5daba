"""`shiftprism data show`: the pixels on the sheet are those of the data and of its shifts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from shiftprism.cli import app
from shiftprism.cli._sheet import Row, draw
from shiftprism.cli.show import pick_images
from shiftprism.corruptions import COMMON, CORRUPTIONS, EXTRA, write_layout
from shiftprism.datasets import Dataset, load

FACTOR = 12  # digits of 8 × 8 are shown at 96 × 96
GAP = 6


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["data", "show", *map(str, words)])


def cells(path: Path, rows: int, columns: int, captioned: int) -> np.ndarray:
    """(rows, columns, 8, 8): the images of a sheet of digits, read back from its right and lower edges."""
    with Image.open(path) as opened:
        sheet = np.asarray(opened.convert("L"))
    side, caption = 8 * FACTOR, 13 + GAP
    left = sheet.shape[1] - 12 - columns * (side + GAP)
    top = 2 * 12 + 13
    found = []
    for row in range(rows):
        above = caption * min(row + 1, captioned)
        at = top + row * (side + GAP) + above
        for column in range(columns):
            start = left + column * (side + GAP)
            found.append(sheet[at : at + side, start : start + side].reshape(8, FACTOR, 8, FACTOR)[:, 0, :, 0])
    return np.stack(found).reshape(rows, columns, 8, 8)


def test_a_corruption_is_shown_clean_and_at_five_severities(tmp_path: Path) -> None:
    done = run("digits", "--shift", "gaussian_noise", "--images", "3", "--to", tmp_path / "sheet.png")
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "sheet.png")
    data = load("digits", "test")
    picks = pick_images(data, 3)
    assert data.labels[picks].tolist() == [0, 1, 2]
    shown = cells(tmp_path / "sheet.png", 3, 6, captioned=1)
    assert np.array_equal(shown[:, 0], data.images[picks, 0].numpy())
    for severity in range(1, 6):
        whole = CORRUPTIONS["gaussian_noise"](data.images, severity, torch.arange(len(data.images)))
        assert np.array_equal(shown[:, severity], whole[picks, 0].numpy())


def test_a_folder_of_corrupted_images_is_shown_as_it_is(tmp_path: Path) -> None:
    data = load("digits", "test")
    write_layout(255 - data.images, data.labels, tmp_path / "mine-c", ["contrast"])
    words = ("--shift", "contrast", "--images", "2", "--corrupted", str(tmp_path / "mine-c"))
    assert run("digits", *words, "--to", tmp_path / "sheet.png").exit_code == 0
    shown = cells(tmp_path / "sheet.png", 2, 6, captioned=1)
    expected = load(f"{tmp_path / 'mine-c'}/contrast/4", "test").images[pick_images(data, 2), 0]
    assert np.array_equal(shown[:, 4], expected.numpy())


def test_every_corruption_of_one_image_stands_on_one_sheet(tmp_path: Path) -> None:
    assert run("digits", "--shift", "covariate", "--first", "2", "--to", tmp_path / "sheet.png").exit_code == 0
    data = load("digits", "test")
    third = (data.labels == 0).nonzero()[2]
    shown = cells(tmp_path / "sheet.png", 19, 6, captioned=1)
    for row, name in enumerate((*COMMON, *EXTRA)):
        assert np.array_equal(shown[row, 0], data.images[third][0, 0].numpy())
        assert np.array_equal(shown[row, 5], CORRUPTIONS[name](data.images[third], 5, third)[0, 0].numpy())


def test_without_a_shift_each_class_has_a_row(tmp_path: Path) -> None:
    assert run("digits", "--images", "4", "--to", tmp_path / "sheet.png").exit_code == 0
    data = load("digits", "test")
    shown = cells(tmp_path / "sheet.png", 10, 4, captioned=0)
    for label in range(10):
        assert np.array_equal(shown[label], data.images[data.labels == label][:4, 0].numpy())


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two data sets with other classes: letters as near as may be, and one of 21 classes."""
    for folder, names in {"letters": "abcd", "many": "bcdefghijklmnopqrstuv"}.items():
        for number, name in enumerate(names):
            (tmp_path / folder / name).mkdir(parents=True)
            for copy in range(2):
                pixels = np.full((8, 8), 10 * number + copy, np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / name / f"{copy}.png")
    return tmp_path


def test_many_classes_have_one_image_each(folders: Path) -> None:
    assert run(folders / "many", "--split", "all", "--to", folders / "sheet.png").exit_code == 0
    shown = cells(folders / "sheet.png", 2, 10, captioned=2)
    assert np.array_equal(shown[:, :, 0, 0].ravel(), 10 * np.arange(20))


def test_the_steps_of_a_ladder_are_rows(folders: Path) -> None:
    words = [*map(str, range(10)), *"abcd"]
    np.savez(
        folders / "vectors.npz", words=np.array(words), vectors=np.array([[1.0]] * 10 + [[4.0], [3.0], [2.0], [1.0]])
    )
    options = ("--near", folders / "letters", "--vectors", folders / "vectors.npz", "--groups", "2", "--split", "all")
    done = run("digits", "--shift", "concept-splits", "--images", "2", *options, "--to", folders / "sheet.png")
    assert done.exit_code == 0, done.output
    shown = cells(folders / "sheet.png", 3, 2, captioned=3)
    assert shown[1, :, 0, 0].tolist() == [0, 10], "severity 1 has a and b, whose vectors are the likest"
    assert shown[2, :, 0, 0].tolist() == [20, 30]


def test_near_and_far_are_rows_below_the_data(folders: Path) -> None:
    options = ("--near", folders / "letters", "--far", folders / "many", "--split", "all", "--images", "3")
    done = run("digits", "--shift", "near-far", *options, "--to", folders / "sheet.png")
    assert done.exit_code == 0, done.output
    shown = cells(folders / "sheet.png", 3, 3, captioned=3)
    data = load("digits", "all")
    assert np.array_equal(shown[0], data.images[pick_images(data, 3), 0].numpy())
    assert shown[1, :, 0, 0].tolist() == shown[2, :, 0, 0].tolist() == [0, 10, 20]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("digits", "--to", "sheet.jpg"), "a .png file"),
        (("digits", "--to", "sheet.png", "--shift", "rust"), "colour_cast, concept-splits, contrast, covariate"),
        (("nothing", "--to", "sheet.png"), "there is nothing at"),
        (("digits", "--to", "sheet.png", "--shift", "near-far"), "name the data sets"),
    ],
)
def test_wrong_words_are_answered(words: tuple[str, ...], problem: str) -> None:
    done = run(*words)
    assert done.exit_code == 1
    assert problem in str(done.exception)


def test_classes_come_in_turn() -> None:
    data = Dataset(torch.zeros(7, 1, 8, 8, dtype=torch.uint8), torch.tensor([1, 1, 1, 0, 2, 0, 1]), ("a", "b", "c"))
    assert pick_images(data, 9).tolist() == [3, 0, 4, 5, 1, 2, 6]
    assert pick_images(data, 3, first=1).tolist() == [5, 1, 4], "a class with too few begins again"


def test_large_and_coloured_images_are_drawn_small_enough() -> None:
    images = torch.zeros(2, 3, 300, 600, dtype=torch.uint8)
    images[:, 1] = 200
    sheet = draw(
        "title", [Row("a label\nof two lines", images, ["a caption that is far too long for its image" * 2, ""])]
    )
    assert sheet.width < 2 * (256 + GAP) + 150
    greens = [colour for count, colour in sheet.getcolors(1 << 20) or [] if count == 2 * 256 * 128]
    assert greens == [(0, 200, 0)]
