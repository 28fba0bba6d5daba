"""The exported file: read without torch, refused where it is damaged, and at other levels what the detector says."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from exported import Exported
from shiftprism import runtime
from shiftprism._exported import add_digest


def test_it_is_read_and_run_without_torch(exported_digits: Exported, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", exported_digits.images.numpy())
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "onnx", "scipy", "sklearn")))  # an import of them fails from here on
import json, numpy as np
from shiftprism.runtime import load
verdicts = load(sys.argv[1])(np.load(sys.argv[2]))
load(sys.argv[1]).at(0.2, 0.9)
json.dump(verdicts.to_dicts(), sys.stdout)
"""
    words = [sys.executable, "-c", code, str(exported_digits.path), str(tmp_path / "images.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    torch_says = exported_digits.detector(exported_digits.images).to_dicts()
    assert [row["kind"] for row in json.loads(done.stdout)] == [row["kind"] for row in torch_says]
    assert [row["name"] for row in json.loads(done.stdout)] == [row["name"] for row in torch_says]


def test_it_describes_itself_as_the_detector_does(exported_digits: Exported) -> None:
    exported, detector = runtime.load(exported_digits.path), exported_digits.detector
    assert exported.names == detector.names
    assert exported.fingerprint == detector.fingerprint()
    assert exported.size == (1, 8, 8)
    assert exported.false_alarm == detector.false_alarm
    for ours, theirs in zip(exported.reference, detector.reference(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("level", "confidence"), [(0.2, None), (0.1, 0.9), (0.05, 0.8)])
def test_other_levels_are_those_of_the_detector(
    exported_digits: Exported, level: float, confidence: float | None
) -> None:
    ours = runtime.load(exported_digits.path).at(level, confidence)
    theirs = exported_digits.detector.at(level, confidence)
    assert ours.false_alarm == level
    assert ours(exported_digits.images).kind.tolist() == theirs(exported_digits.images).kind.tolist()
    assert (ours(exported_digits.images).kind != runtime.load(exported_digits.path)(exported_digits.images).kind).any()
    with pytest.raises(ValueError, match="at least 999 held-out images"):
        ours.at(0.001)


def test_a_changed_byte_is_found_wherever_it_is(exported_digits: Exported, tmp_path: Path) -> None:
    data = exported_digits.path.read_bytes()
    path = tmp_path / "changed.onnx"
    for place in np.linspace(0, len(data) - 1, 40).astype(int):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"changed.onnx"):
            runtime.load(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_file_that_was_cut_off_is_refused(exported_digits: Exported, tmp_path: Path, share: float) -> None:
    data = exported_digits.path.read_bytes()
    path = tmp_path / "short.onnx"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=r"short.onnx, which (was cut off or changed|has no metadata of ours)"):
        runtime.load(path)


def test_files_of_others_are_refused(exported_digits: Exported, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(exported_digits.path)
    del model.metadata_props[:]
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"bare.onnx, which has no metadata of ours; make one with shiftprism export"):
        runtime.load(bare)
    bare.write_bytes(add_digest(model.SerializeToString()))
    with pytest.raises(ValueError, match=r"bare.onnx without our description"):
        runtime.load(bare)
    with pytest.raises(FileNotFoundError):
        runtime.load(tmp_path / "nothing.onnx")
    with pytest.raises(OSError, match="this is a folder"):
        runtime.load(tmp_path)


def test_a_description_that_is_not_whole_is_refused(exported_digits: Exported, tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "other.onnx"

    def write(**changes: object) -> None:
        model = onnx.load(exported_digits.path)
        entry = next(each for each in model.metadata_props if each.key == "shiftprism")
        about = json.loads(entry.value) | changes
        entry.value = json.dumps({name: value for name, value in about.items() if value is not None})
        path.write_bytes(add_digest(model.SerializeToString()))

    write(format=99)
    with pytest.raises(ValueError, match="of format 99"):
        runtime.load(path)
    faults: tuple[dict[str, object], ...] = (
        {"names": None},
        {"names": ["one"]},
        {"held_out": [1, 2]},
        {"reference": {}},
    )
    for changes in faults:
        write(**changes)
        with pytest.raises(ValueError, match="whose description is damaged"):
            runtime.load(path)


def test_images_of_another_type_or_shape_are_refused(exported_digits: Exported) -> None:
    exported = runtime.load(exported_digits.path)
    images = exported_digits.images.numpy()
    for wrong, words in (
        (images / 255, "uint8 but got float64"),
        (images[0], r"\(N, C, H, W\) but got uint8 of shape \(1, 8, 8\)"),
        (images[:0], "non-empty"),
        (images.repeat(3, 1), r"1 × 8 × 8 \(channels, height, width\) but got uint8 of shape \(.*3, 8, 8\)"),
        (images[:, :, :7], "1 × 8 × 8"),
    ):
        with pytest.raises(ValueError, match=words):
            exported(wrong)


def test_one_image_gets_the_channels_of_the_model(exported_digits: Exported) -> None:
    exported = runtime.load(exported_digits.path)
    grey = exported_digits.images[0].numpy()
    colour = np.stack([np.full((8, 8), value, np.uint8) for value in (100, 50, 200)])
    assert (exported.prepare(grey) == grey).all()
    assert (exported.prepare(colour) == round(0.299 * 100 + 0.587 * 50 + 0.114 * 200)).all()
    assert exported.prepare(colour).shape == (1, 8, 8)


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_the_batch_changes_nothing(exported_digits: Exported, batch: int) -> None:
    exported = runtime.load(exported_digits.path)
    whole, parts = exported.run(exported_digits.images), exported.run(exported_digits.images, batch)
    for name, values in whole.items():
        np.testing.assert_allclose(values, parts[name], rtol=1e-3, atol=1e-3, err_msg=name)
    assert (
        exported(exported_digits.images, batch).kind.tolist()
        == exported_digits.detector(exported_digits.images).kind.tolist()
    )


def test_beyond_all_ranks_the_file_says_what_the_detector_says(exported_digits: Exported) -> None:
    """Noise that grows from image to image: the logarithms of p go on below the lowest rank, here as there."""
    clean = exported_digits.images[:128].numpy().astype(np.int64)
    noise = np.random.default_rng(0).integers(0, 256, clean.shape) * np.arange(128)[:, None, None, None] // 128
    images = np.clip(clean + noise, 0, 255).astype(np.uint8)
    ours, detector = runtime.load(exported_digits.path)(images), exported_digits.detector
    theirs = detector(torch.from_numpy(images))
    held = detector.held
    assert theirs.style.min() < float(held.style.min())
    step = 1 / (len(held.style) + 1)
    for name in ("p_covariate", "p_concept", "p_combined"):
        # a score that rounds differently may change its place with one neighbour
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1.01 * step, err_msg=name)
    assert (ours.kind == theirs.kind).mean() > 0.98
    assert {"in-distribution", "covariate"} <= set(ours.kind)
