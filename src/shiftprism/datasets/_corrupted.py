"""Corrupted data sets in the layout of CIFAR-10-C: one `.npy` for each corruption, the five severities in order."""

import tarfile
from pathlib import Path

import numpy as np
import torch

from shiftprism._checks import choice, wrong
from shiftprism._files import check_file
from shiftprism._npz import damage_error, map_npy
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._safe import check_member

SEVERITIES = 5


def load_corrupted(path: Path, part: str, names: tuple[str, ...] | None) -> Dataset:
    """The `part` "<corruption>/<severity>" of a folder of `.npy` files, or of its uncompressed tar, memory-mapped.

    <corruption>.npy is uint8 (5·n, H, W, C), severity 1 first. labels.npy holds the n labels, repeated five times. If
    no `names` are given, the class names are the lines of `names.txt`, or else the class numbers.
    """
    corruption, _, severity = part.partition("/")
    if severity not in map(str, range(1, SEVERITIES + 1)):
        advice = f"write {path.name.lower()}/motion_blur/3, say"
        raise wrong("name", "a corruption and a severity from 1 to 5", repr(part), advice)
    members = corruptions(path)
    choice("corruption", corruption, members)
    images = map_npy(*members[corruption])
    labels = _read_labels(path)
    where = members[corruption][0]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise damage_error(where, 0, f"{corruption} is {images.dtype} {images.shape} where uint8 (N, H, W, C) belongs")
    if len(images) != len(labels) or len(labels) % SEVERITIES:
        problem = f"{corruption} has {len(images)} images and labels.npy {len(labels)} labels for 5 severities"
        raise damage_error(where, 0, problem)
    count = len(labels) // SEVERITIES
    blocks = labels.reshape(SEVERITIES, count)
    if (blocks != blocks[0]).any():
        raise damage_error(where, 0, "labels.npy does not repeat the same labels for each severity")
    first = (int(severity) - 1) * count
    view = torch.from_numpy(images)[first : first + count].permute(0, 3, 1, 2)
    return Dataset(
        view, torch.from_numpy(blocks[0].astype(np.int64)), names or _read_names(path, int(labels.max()) + 1)
    )


def corruptions(path: Path) -> dict[str, tuple[Path, int, int | None]]:
    """For each corruption the file, where its `.npy` begins in the file, and how long it is (None: to the end)."""
    return {name: place for name, place in _members(path).items() if name != "labels"}


def _members(path: Path) -> dict[str, tuple[Path, int, int | None]]:
    if path.is_dir():
        return {file.stem: (file, 0, None) for file in sorted(path.glob("*.npy"))}
    members: dict[str, tuple[Path, int, int | None]] = {}
    end = 0
    try:
        with tarfile.open(check_file(path), "r:") as archive:
            for member in archive:
                end = member.offset_data + -(-member.size // 512) * 512  # members are padded to 512 bytes
                check_member(path, member, member.offset)
                if member.isfile() and member.name.endswith(".npy"):
                    members[Path(member.name).stem] = (path, member.offset_data, member.size)
    except tarfile.TarError as error:
        raise damage_error(path, path.stat().st_size, f"the archive is broken ({error})") from error
    with path.open("rb") as file:
        file.seek(end)
        if file.read(1024) != bytes(1024):  # an archive ends with zeros; tarfile takes any bad header for the end
            raise damage_error(path, end, "the archive is cut, or continues with something that is not a file")
    return members


def _read_labels(path: Path) -> np.ndarray:
    members = _members(path)
    if "labels" not in members:
        raise FileNotFoundError(f"{path} has no labels.npy; put it beside the corruptions.")
    labels = map_npy(*members["labels"])
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise damage_error(
            members["labels"][0], 0, f"labels.npy is {labels.dtype} {labels.shape} where class numbers belong"
        )
    return labels


def _read_names(path: Path, count: int) -> tuple[str, ...]:
    listed = path / "names.txt"
    if not listed.is_file():
        return tuple(map(str, range(count)))
    try:
        return tuple(listed.read_text("utf-8").splitlines())
    except ValueError as error:
        raise damage_error(listed, 0, f"it is not text in UTF-8 ({error})") from error
