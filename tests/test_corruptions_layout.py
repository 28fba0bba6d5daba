"""A corrupted data set on disk."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftprism.corruptions import COMMON, corrupt, write_layout
from test_corruptions_reference import pictures

IMAGES = torch.from_numpy(pictures(4)).permute(0, 3, 1, 2)
LABELS = torch.tensor([3, 0, 9, 3])


def test_files_hold_the_five_severities_one_after_another(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    names = ["contrast", "gaussian_noise"]
    paths = write_layout(IMAGES, LABELS, tmp_path / "set", names, progress=lambda *state: told.append(state))
    assert paths == [tmp_path / "set" / "contrast.npy", tmp_path / "set" / "gaussian_noise.npy"]
    labels = np.load(tmp_path / "set" / "labels.npy", allow_pickle=False)
    assert (labels.dtype, labels.tolist()) == (np.uint8, [3, 0, 9, 3] * 5)
    for name, path in zip(names, paths, strict=True):
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        assert (pixels.shape, pixels.dtype) == ((20, 32, 32, 3), np.uint8)
        for severity in range(1, 6):
            part = torch.from_numpy(pixels[4 * severity - 4 : 4 * severity].copy()).permute(0, 3, 1, 2)
            assert torch.equal(part, corrupt(IMAGES, name, severity))
    assert told == [(n, 10, "contrast" if n <= 5 else "gaussian_noise") for n in range(1, 11)]
    assert sorted(file.name for file in (tmp_path / "set").iterdir()) == [
        "contrast.npy", "gaussian_noise.npy", "labels.npy", "shiftprism.json",
    ]  # fmt: skip


def test_an_interrupted_run_leaves_no_partial_file_and_resumes(tmp_path: Path) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if done == 7:
            raise KeyboardInterrupt

    names = ["brightness", "fog"]
    with pytest.raises(KeyboardInterrupt):
        write_layout(IMAGES, LABELS, tmp_path, names, progress=stop)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["brightness.npy", "labels.npy", "shiftprism.json"]
    kept = (tmp_path / "brightness.npy").stat().st_mtime_ns
    told: list[int] = []
    write_layout(IMAGES, LABELS, tmp_path, names, progress=lambda done, total, name: told.append(done))
    assert told == [5, 6, 7, 8, 9, 10]
    assert (tmp_path / "brightness.npy").stat().st_mtime_ns == kept
    assert np.load(tmp_path / "fog.npy", allow_pickle=False).shape == (20, 32, 32, 3)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    (path,) = write_layout(IMAGES, LABELS, tmp_path, ["contrast"])
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", b"not an array"):
        path.write_bytes(damaged)
        write_layout(IMAGES, LABELS, tmp_path, ["contrast"])
        assert path.read_bytes() == whole


def test_a_pipe_in_place_of_a_file_is_named_and_not_read(tmp_path: Path) -> None:
    (path,) = write_layout(IMAGES, LABELS, tmp_path, ["contrast"])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"this is a pipe, not a file: .*contrast\.npy"):
        write_layout(IMAGES, LABELS, tmp_path, ["contrast"])


def test_seeds_and_grey_images(tmp_path: Path) -> None:
    grey, seeds = IMAGES[:, :1], torch.tensor([9, 8, 7, 6])
    (path,) = write_layout(grey, [1, 2, 3, 400], tmp_path, ["shot_noise"], seeds=seeds)
    pixels = np.load(path, allow_pickle=False)
    assert pixels.shape == (20, 32, 32, 1)
    assert np.array_equal(pixels[16:, :, :, 0], corrupt(grey, "shot_noise", 5, seeds)[:, 0].numpy())
    assert np.load(tmp_path / "labels.npy", allow_pickle=False).tolist() == [1, 2, 3, 400] * 5


def test_a_folder_of_other_data_is_refused(tmp_path: Path) -> None:
    write_layout(IMAGES, LABELS, tmp_path / "ours", ["contrast"])
    with pytest.raises(ValueError, match=r"made from other images; choose another folder"):
        write_layout(IMAGES.flip(0), LABELS, tmp_path / "ours", ["contrast"])
    with pytest.raises(ValueError, match=r"made from other labels and seeds;"):
        write_layout(IMAGES, LABELS + 1, tmp_path / "ours", ["fog"], seeds=LABELS)
    (tmp_path / "theirs").mkdir()
    np.save(tmp_path / "theirs" / "fog.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"`folder` to be empty or one of corrupted images but got .* with fog.npy"):
        write_layout(IMAGES, LABELS, tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "shiftprism.json").exists()
    assert json.loads((tmp_path / "ours" / "shiftprism.json").read_text())["shape"] == [4, 3, 32, 32]


def test_a_damaged_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_layout(IMAGES, LABELS, tmp_path, ["contrast"])
    for content in ('{"sha256":', "[]", '{"sha256": 3}'):
        (tmp_path / "shiftprism.json").write_text(content)
        with pytest.raises(ValueError, match=str(tmp_path)):
            write_layout(IMAGES, LABELS, tmp_path, ["contrast"])


def test_bad_input_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`labels` to be whole numbers of shape \(4,\) but got int64 of shape \(3,\)"):
        write_layout(IMAGES, LABELS[:3], tmp_path)
    with pytest.raises(ValueError, match=r"`name` to be one of"):
        write_layout(IMAGES, LABELS, tmp_path, [*COMMON, "rain"])
    with pytest.raises(ValueError, match=r"`seeds` to be of shape \(4,\)"):
        write_layout(IMAGES, LABELS, tmp_path, seeds=[1])
    with pytest.raises(ValueError, match=r"`images` to be a tensor of torch.uint8"):
        write_layout(IMAGES.float(), LABELS, tmp_path)
    assert not list(tmp_path.iterdir())
