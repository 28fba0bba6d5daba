"""Files are whole or absent, have the umask's mode, and are read strictly."""

import os
import stat
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from shiftprism._files import (
    load_state,
    read_json,
    read_metadata,
    read_tensors,
    replacing,
    write_json,
    write_tensors,
    write_text,
)
from shiftprism._npz import read_arrays


@pytest.fixture
def umask() -> int:
    """The process's umask; there is no way to ask for it but to set it."""
    own = os.umask(0)
    os.umask(own)
    return own


def test_every_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    write_text(tmp_path / "a.txt", "a")
    write_tensors(tmp_path / "b.safetensors", {"b": torch.ones(2)}, {})
    write_tensors(tmp_path / "c.safetensors", {"c": np.ones(2)}, {})
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask, path


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as beside:
            beside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_tensors_and_arrays_come_back_with_their_metadata(tmp_path: Path) -> None:
    strided = torch.arange(6.0).reshape(2, 3).T
    for framework, value in (("pt", strided), ("np", strided.numpy())):
        write_tensors(tmp_path / "x.safetensors", {"x": value}, {"format": "mine-1", "more": "said"})
        tensors, about = read_tensors(tmp_path / "x.safetensors", "mine-1", "…", framework)  # type: ignore[arg-type]
        assert np.array_equal(tensors["x"], strided)
        assert about == read_metadata(tmp_path / "x.safetensors", "mine-1", "…") == {"format": "mine-1", "more": "said"}


@pytest.mark.parametrize("read", [read_tensors, read_metadata])
def test_damaged_and_foreign_files_are_named(tmp_path: Path, read: object) -> None:
    assert callable(read)
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"x": torch.ones(100)}, {"format": "mine-1"})
    with pytest.raises(ValueError, match=r"format yours-1 but got .*x\.safetensors of format mine-1; do this\."):
        read(path, "yours-1", "do this")
    for damaged in (path.read_bytes()[:-4], b"", b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a whole safetensors file but got .*x\.safetensors .*; do this\."):
            read(path, "mine-1", "do this")
    with pytest.raises(FileNotFoundError, match="absent"):
        read(tmp_path / "absent", "mine-1", "do this")


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_json_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"Expected `path` to be a saved thing but got .*x\.json.*; do this\."):
        read_json(path, "a saved thing", "do this")


def test_json_comes_back_and_an_absent_file_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"α": 1})
    assert read_json(tmp_path / "x.json", "a saved thing", "do this") == {"α": 1}
    with pytest.raises(ValueError, match="absent"):
        read_json(tmp_path / "absent", "a saved thing", "do this")


def test_every_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    module = nn.Linear(2, 3)
    wrong = {"weight": torch.ones(3, 3), "more": torch.ones(1)}
    faults = r"bias is missing; more is unknown; weight has shape \(3, 3\) for \(3, 2\)"
    with pytest.raises(ValueError, match=faults):
        load_state(module, wrong, tmp_path, "do this")
    right = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    load_state(module, right, tmp_path, "do this")
    assert torch.equal(module.weight, right["weight"])


def test_arrays_of_any_byte_order_and_length_come_back(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "big": np.array([1, 2], ">f4"),
        "long": np.array([1, 2], np.longdouble),
        "text": np.array(["ä"]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = read_arrays(tmp_path / "a.npz")
        assert torch.equal(torch.from_numpy(found["big"]), torch.tensor([1.0, 2.0]))
        assert torch.equal(torch.from_numpy(found["long"]), torch.tensor([1.0, 2.0]).double())
        assert found["text"].tolist() == ["ä"]
        assert set(read_arrays(tmp_path / "a.npz", {"big"}.__contains__)) == {"big"}


def test_arrays_that_are_a_bomb_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(20_000), y=np.zeros(30_000))
    assert len(read_arrays(tmp_path / "a.npz")) == 2
    monkeypatch.setattr("shiftprism._npz._SMALL", 300_000)  # each claims less, both claim more
    with pytest.raises(
        ValueError, match=r"a\.npz is damaged .*: y\.npy claims 240128 bytes from \d+, a decompression bomb"
    ):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_tensors_that_changed_on_the_disk_are_refused(kind: Literal["pt", "np"], tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = {"a": np.arange(9.0), "b": np.ones(2, np.uint8)}
    write_tensors(
        path, values if kind == "np" else {name: torch.from_numpy(v) for name, v in values.items()}, {"format": "x"}
    )
    assert read_tensors(path, "x", "do this", "np")[1] == read_metadata(path, "x", "") == {"format": "x"}
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with pytest.raises(ValueError, match=r"got .*x\.safetensors, whose tensors have changed; do this\."):
        read_tensors(path, "x", "do this", kind)


def test_metadata_that_changed_on_the_disk_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.arange(3)}, {"format": "x", "state": '{"since": 196}'})
    path.write_bytes(path.read_bytes().replace(b"196", b"192"))
    for read in (read_tensors, read_metadata):
        with pytest.raises(ValueError, match=r"got .*x\.safetensors, whose metadata have changed; do this\."):
            read(path, "x", "do this")


def test_an_expanded_tensor_is_written_like_any_other(tmp_path: Path) -> None:
    """Of one element it has stride 0, and torch calls it contiguous all the same."""
    for name, tensor in {"one": torch.zeros(()).expand(1), "many": torch.ones(1, 3).expand(4, 3)}.items():
        write_tensors(tmp_path / name, {"x": tensor}, {"format": "f"})
        read, _ = read_tensors(tmp_path / name, "f", "")
        assert torch.equal(read["x"], tensor)


def test_equal_tensors_give_equal_files(tmp_path: Path) -> None:
    """Whatever order the library has for its metadata in this run."""
    about = {"format": "f", **{f"key {i}": "ä" * i for i in range(9)}}
    for name in ("one", "other"):
        write_tensors(tmp_path / name, {"x": torch.arange(3.0), "y": torch.ones(2, 2)}, about)
    one = (tmp_path / "one").read_bytes()
    assert one == (tmp_path / "other").read_bytes()
    assert one.index(b'"digest"') < one.index(b'"format"') < one.index(b'"key 0"')
    assert read_tensors(tmp_path / "one", "f", "")[1] == about
