"""Outputs: a plain named tuple that saves, loads, joins and slices, and refuses what it does not hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples import outputs_of
from shiftprism._files import read_tensors, write_tensors
from shiftprism.outputs import Outputs, read_fields


def test_sizes_and_predictions() -> None:
    outputs = outputs_of(samples=5, features=3, classes=7)
    assert (outputs.N, outputs.D, outputs.K) == (5, 3, 7)
    assert outputs.predictions.equal(outputs.logits.argmax(1))
    assert repr(outputs) == "Outputs(N=5, D=3, K=7)"


def test_concat_undoes_rows() -> None:
    outputs = outputs_of(samples=9)
    parts = [outputs.rows(slice(0, 4)), outputs.rows([4, 5]), outputs.rows(torch.arange(9) >= 6)]
    assert all(torch.equal(whole, joined) for whole, joined in zip(outputs, Outputs.concat(parts), strict=True))


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array])
def test_truth_values_are_a_mask(kind: Callable[[list[bool]], Any]) -> None:
    outputs = outputs_of(samples=4)
    chosen = outputs.rows(kind([True, False, False, True]))
    assert all(torch.equal(some, field[[0, 3]]) for some, field in zip(chosen, outputs, strict=True))
    assert outputs.rows([]).N == 0


def test_pytrees_see_a_plain_named_tuple() -> None:
    outputs = outputs_of()
    doubled = torch.utils._pytree.tree_map(lambda tensor: 2 * tensor, outputs)
    assert isinstance(doubled, Outputs)
    assert doubled.raw.equal(2 * outputs.raw)


@pytest.mark.parametrize("labels", [None, torch.arange(20)])
def test_a_file_gives_back_the_same_bits(tmp_path: Path, labels: torch.Tensor | None) -> None:
    outputs = outputs_of("alpha-beta")
    outputs.save(tmp_path / "o.safetensors", labels, "weights+data")
    loaded, found = Outputs.load(tmp_path / "o.safetensors", "weights+data")
    assert all(torch.equal(a, b) for a, b in zip(outputs, loaded, strict=True))
    # aligned as fresh tensors are: elsewhere matrix products of the same numbers may round differently
    assert all(field.data_ptr() % 64 == 0 for field in loaded)
    assert (found is None) == (labels is None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.safetensors"]


def test_mapped_outputs_stay_in_their_file(tmp_path: Path) -> None:
    outputs, labels = outputs_of(), torch.arange(20)
    outputs.save(tmp_path / "a.safetensors", labels, "print")
    mapped, read = Outputs.load(tmp_path / "a.safetensors", "print", mapped=True)
    assert all(torch.equal(one, other) for one, other in zip(mapped, outputs, strict=True))
    assert read is not None
    assert torch.equal(read, labels)
    if Path("/proc/self/maps").exists():
        assert str(tmp_path / "a.safetensors") in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match="Expected `fingerprint`"):
        Outputs.load(tmp_path / "a.safetensors", "other", mapped=True)


def test_logits_alone_round_trip(tmp_path: Path) -> None:
    outputs = Outputs.from_logits(torch.randn(4, 3))
    outputs.save(tmp_path / "o.safetensors")
    loaded, _ = Outputs.load(tmp_path / "o.safetensors")
    assert loaded.logits.equal(outputs.logits)
    assert not loaded.has_features


@pytest.mark.parametrize("field", ["features", "norms", "similarities"])
def test_logits_alone_have_no_features(field: str) -> None:
    with pytest.raises(ValueError, match="made by a classifier, with features, but got one made from logits alone"):
        getattr(Outputs.from_logits(torch.randn(4, 3)), field)


def test_style_is_carried_and_its_absence_guarded(tmp_path: Path) -> None:
    outputs = outputs_of(samples=9)
    assert (outputs.S, outputs[5].shape) == (0, (9, 0))
    with pytest.raises(ValueError, match="made by a classifier from images, with style, but got one without"):
        outputs.style  # noqa: B018
    with pytest.raises(ValueError, match="with style"):
        read_fields(Outputs.from_logits(torch.ones(2, 3)), "style")
    styled = outputs._replace(style=torch.arange(18.0).reshape(9, 2))
    assert (styled.S, styled.has_style, styled.rows([4, 8]).style.tolist()) == (2, True, [[8, 9], [16, 17]])
    assert Outputs.concat([styled, styled]).style.shape == (18, 2)
    assert styled.to(torch.float16).style.dtype == torch.float16
    styled.save(tmp_path / "o.safetensors")
    assert Outputs.load(tmp_path / "o.safetensors")[0].style.equal(styled.style)
    with pytest.raises(ValueError, match=r"one model but got .* with S=2 beside .* with S=0"):
        Outputs.concat([styled, outputs])
    styled.style[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"Expected `outputs\.style` to be finite"):
        styled.check()


def test_files_from_before_there_was_style_are_read(tmp_path: Path) -> None:
    loaded, labels = Outputs.load(damage(tmp_path / "o.safetensors", style=None))
    assert loaded.check()[5].shape == (20, 0)
    assert labels is not None
    assert loaded.logits.equal(outputs_of().logits)


def test_another_fingerprint_is_refused(tmp_path: Path) -> None:
    outputs_of().save(tmp_path / "o.safetensors", fingerprint="old")
    with pytest.raises(ValueError, match=r"Expected `fingerprint` to be 'new' but got 'old'"):
        Outputs.load(tmp_path / "o.safetensors", "new")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "o.safetensors"
    outputs_of().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="Expected `path` to be a whole safetensors file"):
        Outputs.load(path)


def damage(path: Path, **changes: torch.Tensor | None) -> Path:
    """A whole file of the right format in which some tensors are others, or missing."""
    outputs_of().save(path, torch.arange(20))
    tensors, about = read_tensors(path, None, "")
    tensors = {name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None}
    write_tensors(path, tensors, about)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw": None}, r"fields of Outputs but got .*, where raw is missing or unknown"),
        ({"colour": torch.ones(20, 2)}, r"where colour is missing or unknown"),
        ({"style": torch.ones(19, 2)}, r"style` to be of shape \(20, 2\) but got \(19, 2\)"),
        ({"norms": torch.ones(19)}, r"Expected `.*o\.safetensors: norms` to be of shape \(20,\) but got \(19,\)"),
        ({"logits": torch.ones(20)}, r"logits` to be of shape \(20, 0\) but got \(20,\)"),
        ({"features": torch.ones(20)}, r"features` to be of shape \(20, 0\) but got \(20,\)"),
        ({"labels": torch.ones(3)}, r"labels` to be of shape \(20,\) but got \(3,\)"),
    ],
)
def test_other_names_or_shapes_are_refused(changes: dict[str, torch.Tensor], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Outputs.load(damage(tmp_path / "o.safetensors", **changes))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"logits": torch.ones(2, 3)}, {"format": "shiftprism-score-2"})
    with pytest.raises(ValueError, match=r"format shiftprism-outputs-1 but got .*/x of format shiftprism-score-2"):
        Outputs.load(tmp_path / "x")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.safetensors"
    old = outputs_of(seed=1)
    old.save(path)

    def full_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        outputs_of(seed=2).save(path)
    assert Outputs.load(path)[0].raw.equal(old.raw)
    assert [file.name for file in tmp_path.iterdir()] == ["o.safetensors"]


def test_fields_are_read_in_the_order_asked_for() -> None:
    outputs = outputs_of()
    norms, features = read_fields(outputs, "norms", "features")
    assert norms is outputs.norms
    assert features is outputs.features


def test_wrong_inputs() -> None:
    outputs = outputs_of()
    with pytest.raises(ValueError, match="Expected `logits` to be a floating-point tensor"):
        Outputs.from_logits(torch.zeros(3, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="Expected `parts` to be of one model"):
        Outputs.concat([outputs, outputs_of(classes=9)])
    with pytest.raises(ValueError, match="Expected `parts` to be non-empty"):
        Outputs.concat([])
    with pytest.raises(ValueError, match=r"Expected `outputs.norms` to be of shape \(20,\)"):
        outputs._replace(norms=outputs[1][:3]).check()
    broken = outputs.raw.clone()
    broken[7, 1] = float("nan")
    with pytest.raises(ValueError, match=r"Expected `outputs\.raw` to be finite but got 1 rows .* first at row 7"):
        outputs._replace(raw=broken).check()
