"""The laws every corruption keeps, and the arguments that are refused."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.nn import functional

from shiftprism import corruptions
from shiftprism._tasks import use_threads
from shiftprism.corruptions import COMMON, CORRUPTIONS, EXTRA, FAMILIES, OWN_EXTRA, _corruption, corrupt, frost_source
from test_corruptions_reference import CERTAIN, pictures

SHAPES = [(3, 32, 32), (1, 8, 8), (3, 64, 64), (1, 20, 33), (3, 45, 12)]
GROWING = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "zoom_blur", "snow", "fog",
    "brightness", "contrast", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur",
    *(name for name in OWN_EXTRA if name != "interlacing"),  # lines of a periodic picture may move back into place
)  # fmt: skip


def clean(count: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    images = torch.from_numpy(pictures(count)).permute(0, 3, 1, 2)[:, :channels].float()
    return functional.interpolate(images, (height, width), mode="bilinear").round().to(torch.uint8)


def test_the_names_are_cifar_cs_in_their_order() -> None:
    assert " ".join(COMMON) == (
        "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost fog "
        "brightness contrast elastic_transform pixelate jpeg_compression"
    )
    assert EXTRA == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert tuple(CORRUPTIONS) == COMMON + EXTRA + OWN_EXTRA
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(EXTRA + OWN_EXTRA)
    assert all(corruption.effect.__name__ == name for name, corruption in CORRUPTIONS.items())
    # Other streams would give other images for the same seeds.
    assert [corruption.stream for corruption in CORRUPTIONS.values()] == list(range(33))
    assert sorted(corruptions.__all__) == [
        *("COMMON", "CORRUPTIONS", "Corruption", "EXTRA", "FAMILIES", "OWN_EXTRA", "PARAMETERS", "check_images"),
        *("corrupt", "describe_corruptions", "describe_parameters", "find_corruption", "frost_source", "write_layout"),
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_shape_type_seeds_and_batches(name: str, shape: tuple[int, int, int]) -> None:
    images = clean(5, *shape)
    before = images.clone()
    seeds = torch.tensor([3, -4, 3, 2**62, 0])
    images[2] = images[0]
    before[2] = before[0]
    for severity in (1, 4):
        result = CORRUPTIONS[name](images, severity, seeds)
        assert (result.shape, result.dtype) == (images.shape, torch.uint8)
        assert torch.equal(images, before)
        assert torch.equal(result[0], result[2])  # same image, same seed, other place
        backwards = CORRUPTIONS[name](images.flip(0), severity, seeds.flip(0))
        assert torch.equal(backwards.flip(0), result)
        alone = CORRUPTIONS[name](images[3:4], severity, seeds[3:4])
        assert torch.equal(alone, result[3:4])


@given(
    name=st.sampled_from(sorted(CORRUPTIONS)),
    severity=st.integers(1, 5),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(8, 40), st.integers(8, 40)),
    seed=st.integers(-(2**63), 2**63 - 1),
    cut=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_batch_is_its_parts(name: str, severity: int, shape: tuple[int, int, int], seed: int, cut: int) -> None:
    images = torch.from_numpy(np.random.default_rng(abs(seed)).integers(0, 256, (3, *shape), dtype=np.uint8))
    seeds = torch.tensor([seed, seed // 2, seed // 3])
    whole = corrupt(images, name, severity, seeds)
    parts = [corrupt(images[part], name, severity, seeds[part]) for part in (slice(cut), slice(cut, None))]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_neither_chunks_nor_threads_nor_strides_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = clean(40)
    with use_threads(1):
        result = corrupt(images, name, 4)
    monkeypatch.setattr(_corruption, "_CHUNK", 2**20)
    monkeypatch.setattr(_corruption, "_CHUNK_OF_ONE_THREAD", 2**12)
    for threads in (1, 3):
        with use_threads(threads):
            assert torch.equal(corrupt(images, name, 4), result)
    channels_last = images.to(memory_format=torch.channels_last)
    assert torch.equal(corrupt(channels_last, name, 4), result)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seeds_matter_where_there_is_chance(name: str) -> None:
    images = clean(4)
    first, second = (corrupt(images, name, 3, torch.arange(4) + start) for start in (0, 10))
    ours = ("sharpen", "ringing", "median_filter", "posterize", "dithering", "block_truncation", "rescaling")
    assert torch.equal(first, second) == (name in CERTAIN or name in ours)


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (64, 64)])
@pytest.mark.parametrize("name", GROWING)
def test_distance_grows_with_severity(name: str, size: tuple[int, int]) -> None:
    images = clean(24, 3, *size)
    distances = [(corrupt(images, name, s).float() - images).abs().mean().item() for s in range(1, 6)]
    # A JPEG's blocks, and motion of one σ, may change a little less at a step; 8 × 8 is too small for all factors.
    uneven = ("jpeg_compression", "motion_blur", *(("pixelate", "block_truncation") if size == (8, 8) else ()))
    slack = 0.97 if name in uneven else 1.0
    assert all(after >= slack * before for before, after in pairwise(distances)), distances
    assert distances[4] > 1.3 * distances[0]


@pytest.mark.parametrize("name", ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur", "contrast",
                                  "elastic_transform", "pixelate", "chromatic_shift", "sharpen", "ringing",
                                  "median_filter", "block_truncation", "interlacing"])  # fmt: skip
@pytest.mark.parametrize("size", [(8, 8), (32, 32), (50, 41)])
def test_flat_images_stay_as_they_are(name: str, size: tuple[int, int]) -> None:
    images = torch.arange(0, 256, 5, dtype=torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 3, *size)
    for severity in range(1, 6):
        assert torch.equal(corrupt(images, name, severity), images)


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur", "zoom_blur", "snow", "frost", "fog",
                                  "elastic_transform", "pixelate", "spatter", "gaussian_blur"])  # fmt: skip
def test_a_larger_image_is_changed_as_much(name: str) -> None:
    """With the parameters of one size: lengths are scaled."""
    small = clean(24)
    large = functional.interpolate(small.float(), scale_factor=2, mode="bilinear").round().to(torch.uint8)
    for severity in (3, 5):
        changes = [float((corrupt(x, name, severity, parameters="cifar").float() - x).std()) for x in (small, large)]
        assert changes[1] == pytest.approx(changes[0], rel=0.35), severity


def test_a_grey_image_is_changed_like_an_rgb_one() -> None:
    grey = clean(8, 1)
    for name in ("contrast", "brightness", "gaussian_blur", "motion_blur", "fog", "elastic_transform", "snow"):
        wide = corrupt(grey.expand(-1, 3, -1, -1), name, 3).int()
        assert (wide[:, :1] - corrupt(grey, name, 3).int()).abs().max() <= 1, name
    assert torch.equal(corrupt(grey, "saturate", 5), grey)


def test_nothing_makes_nothing() -> None:
    assert corrupt(torch.zeros(0, 3, 32, 32, dtype=torch.uint8), "fog", 1).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("images", "severity", "seeds", "message"),
    [
        (torch.zeros(2, 3, 32, 32), 1, [0, 1], r"`images` to be a tensor of torch.uint8 but got torch.float32"),
        (np.zeros((2, 3, 32, 32), np.uint8), 1, [0, 1], r"`images` to be a tensor of torch.uint8 but got ndarray"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), 1, [0], r"`images` to be of shape \(N, C, H, W\), grey or RGB"),
        (torch.zeros(1, 32, 32, 3, dtype=torch.uint8), 1, [0], r"got shape \(1, 32, 32, 3\); put channels before"),
        (torch.zeros(1, 3, 7, 32, dtype=torch.uint8), 1, [0], r"8 × 8 pixels or more but got 7 × 32"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0, [0, 1], r"`severity` to be a whole number from 1 to 5 but"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 6, [0, 1], r"`severity` .* got 6"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 2.0, [0, 1], r"`severity` .* got 2.0"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 1, [0], r"`seeds` to be of shape \(2,\) but got shape \(1,\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 1, 5, r"`seeds` to be of shape \(2,\) but got shape \(\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 1, [0.5, 1], r"`seeds` to be whole numbers but got dtype float64"),
    ],
)  # fmt: skip
def test_bad_input_is_told(images: Tensor, severity: int, seeds: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CORRUPTIONS["contrast"](images, severity, seeds)
    with pytest.raises(ValueError, match=message):
        corrupt(images, "contrast", severity, seeds)


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(ValueError, match=r"`name` to be one of block_truncation, brightness, .* but got 'rain'"):
        corrupt(clean(1), "rain", 1)


def test_frost_takes_photographs_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHIFTPRISM_FROST", raising=False)
    images = torch.zeros(6, 3, 32, 32, dtype=torch.uint8)
    assert len(corrupt(images, "frost", 1).unique()) > 10
    assert frost_source() == "drawn"
    with pytest.raises(ValueError, match=r"`photographs` to be a folder of photographs but got .* without any"):
        corrupt(images, "frost", 1, photographs=tmp_path)
    Image.new("RGB", (300, 200), (100, 150, 200)).save(tmp_path / "b.png")
    Image.new("RGB", (40, 30), (100, 150, 200)).save(tmp_path / "small.png")  # mirrored until it is large enough
    Image.new("RGB", (300, 200), (255, 0, 0)).save(tmp_path / "frost6.jpg")  # the one that the publisher never draws
    expected = torch.tensor([45, 67, 90], dtype=torch.uint8).reshape(3, 1, 1)  # 0.45 of the colour
    assert (corrupt(images, "frost", 5, photographs=tmp_path) == expected).all()
    monkeypatch.setenv("SHIFTPRISM_FROST", str(tmp_path))
    assert (corrupt(images, "frost", 5) == expected).all()
    assert (frost_source(), frost_source("")) == ("photographed", "drawn")
    with pytest.raises(ValueError, match="which is not a folder"):
        corrupt(images, "frost", 1, photographs=tmp_path / "absent")


@pytest.mark.parametrize("content", [b"no picture", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b""])
def test_frost_names_a_photograph_that_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"whole photographs but got .*1\.png \("):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "frost", 1, photographs=tmp_path)
