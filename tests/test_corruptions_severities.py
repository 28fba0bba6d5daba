"""Severities fit the size of the images: the publisher's constants at 32 and at 224 pixels, and a way between them."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from shiftprism.corruptions import (
    COMMON,
    EXTRA,
    PARAMETERS,
    _blur,
    _digital,
    _noise,
    _spatter,
    _weather,
    corrupt,
    describe_parameters,
    write_layout,
)
from shiftprism.corruptions._severities import Severities
from shiftprism.datasets import load
from shiftprism.shifts import covariate, suite
from test_corruptions_reference import pictures

# The constants of CIFAR-10-C and of ImageNet-C, as hendrycks/robustness has them in make_cifar_c.py and
# make_imagenet_c.py: name, where ours are, five rows of each. Elastic's are fractions of 32 and of 244.
PUBLISHED: dict[str, tuple[Severities, list[Any], list[Any]]] = {
    "gaussian_noise": (_noise._GAUSSIAN, [0.04, 0.06, 0.08, 0.09, 0.10], [0.08, 0.12, 0.18, 0.26, 0.38]),
    "shot_noise": (_noise._SHOT, [500, 250, 100, 75, 50], [60, 25, 12, 5, 3]),
    "impulse_noise": (_noise._IMPULSE, [0.01, 0.02, 0.03, 0.05, 0.07], [0.03, 0.06, 0.09, 0.17, 0.27]),
    "defocus_blur": (
        _blur._DEFOCUS,
        [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
        [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    ),
    "glass_blur": (
        _blur._GLASS,
        [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
        [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    ),
    "motion_blur": (
        _blur._MOTION,
        [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
        [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    ),
    "zoom_blur": (
        _blur._ZOOM,
        [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
        [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
    ),
    "snow": (
        _weather._SNOW,
        [(0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
         (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)],
        [(0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
         (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)],
    ),
    "frost": (
        _weather._FROST,  # the last number: photographs are scaled by 0.2 for CIFAR, and not for ImageNet
        [(1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)],
        [(1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)],
    ),
    "fog": (
        _weather._FOG,
        [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
        [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    ),
    "brightness": (_digital._BRIGHTNESS, [0.05, 0.1, 0.15, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5]),
    "contrast": (_digital._CONTRAST, [0.75, 0.5, 0.4, 0.3, 0.15], [0.4, 0.3, 0.2, 0.1, 0.05]),
    "elastic_transform": (
        _digital._ELASTIC,
        [(0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)],
        [(488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)],
    ),
    "pixelate": (_digital._PIXELATE, [0.95, 0.9, 0.85, 0.75, 0.65], [0.6, 0.5, 0.4, 0.3, 0.25]),
    "jpeg_compression": (_digital._JPEG, [80, 65, 58, 50, 40], [25, 18, 15, 10, 7]),
    "speckle_noise": (_noise._SPECKLE, [0.06, 0.1, 0.12, 0.16, 0.2], [0.15, 0.2, 0.35, 0.45, 0.6]),
    "gaussian_blur": (_blur._GAUSSIAN, [0.4, 0.6, 0.7, 0.8, 1], [1, 2, 3, 4, 6]),
    "spatter": (
        _spatter._SPATTER,
        [(0.62, 0.1, 0.7, 0.7, 0.5), (0.65, 0.1, 0.8, 0.7, 0.5), (0.65, 0.3, 1, 0.69, 0.5), (0.65, 0.1, 0.7, 0.69, 0.6),
         (0.65, 0.1, 0.5, 0.68, 0.6)],
        [(0.65, 0.3, 4, 0.69, 0.6), (0.65, 0.3, 3, 0.68, 0.6), (0.65, 0.3, 2, 0.68, 0.5), (0.65, 0.3, 1, 0.65, 1.5),
         (0.67, 0.4, 1, 0.65, 1.5)],
    ),
    "saturate": (
        _digital._SATURATE,
        [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
        [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
    ),
}  # fmt: skip


def photograph(side: int = 224) -> Tensor:
    """(1, 3, side, side): a picture with structure of many sizes."""
    image = torch.from_numpy(pictures(1)).permute(0, 3, 1, 2).float()
    large = functional.interpolate(image, (side, side), mode="bicubic")
    grain = torch.randn(large.shape, generator=torch.Generator().manual_seed(0)) * 12
    return (large + grain).clamp(0, 255).round().to(torch.uint8)


def blank(side: int) -> Tensor:
    return torch.zeros(1, 3, side, side, dtype=torch.uint8)


@pytest.mark.parametrize("name", [*COMMON, *EXTRA])
def test_constants_are_the_published_ones(name: str) -> None:
    ours, cifar, imagenet = PUBLISHED[name]
    for side, rows in ((32, cifar), (224, imagenet)):
        for severity, row in enumerate(rows, 1):
            values, scale = ours.fit(blank(side), severity)
            assert values == pytest.approx(row if isinstance(row, tuple) else (row,))
            assert scale == 1


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_between_the_sizes_parameters_lie_between_and_beyond_they_stay(name: str) -> None:
    table = PUBLISHED[name][0]
    for severity in range(1, 6):
        rows = [table.fit(blank(side), severity)[0] for side in (32, 33, 64, 100, 160, 223, 224)]
        for values in zip(*rows, strict=True):
            assert list(values) == sorted(values, reverse=values[0] > values[-1])
        np.testing.assert_allclose(rows[0], rows[1], rtol=0.1, atol=8)  # no jump at 32
        np.testing.assert_allclose(rows[-2], rows[-1], rtol=0.02)
        assert table.fit(blank(8), severity) == (rows[0], 0.25)
        assert table.fit(blank(448), severity) == (rows[-1], 2.0)


def test_a_parameter_is_a_power_of_the_side_in_any_unit() -> None:
    """At the geometric mean of the sides, the geometric mean; a line in ln(side) where one end is 0."""
    table = Severities(cifar=[(0.1, 0.0)] * 5, imagenet=[(0.4, 3.0)] * 5)
    side = round(math.sqrt(32 * 224))
    (positive, from_zero), scale = table.fit(blank(side), 1)
    assert (positive, from_zero) == pytest.approx((0.2, 1.5), rel=0.01)
    assert scale == 1
    # the same lengths as shares of the side give the same power
    shares = Severities(cifar=[(0.1 / 32,)] * 5, imagenet=[(0.4 / 224,)] * 5)
    assert shares.fit(blank(100), 1)[0][0] * 100 == pytest.approx(table.fit(blank(100), 1)[0][0])


def test_the_shorter_side_counts() -> None:
    table = PUBLISHED["gaussian_noise"][0]
    assert table.fit(torch.zeros(1, 1, 500, 32), 5) == ((0.10,), 1.0)


def test_the_power_agrees_best_with_the_publishers_third_size() -> None:
    """Tiny ImageNet-C has 64 pixels: of four simple rules, ours is the closest to its constants (mean |ln ratio|)."""
    tiny = {
        "gaussian_noise": [0.04, 0.08, 0.12, 0.15, 0.18], "shot_noise": [250, 100, 50, 30, 15],
        "impulse_noise": [0.01, 0.02, 0.05, 0.08, 0.14], "speckle_noise": [0.15, 0.2, 0.25, 0.3, 0.35],
        "gaussian_blur": [0.5, 0.75, 1, 1.25, 1.5], "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
        "brightness": [0.1, 0.2, 0.3, 0.4, 0.5], "jpeg_compression": [65, 58, 50, 40, 25],
        "pixelate": [0.9, 0.8, 0.7, 0.6, 0.5],
    }  # fmt: skip
    errors: dict[str, list[float]] = {"ours": [], "side": [], "log side": [], "power of side": []}
    linear, log = 32 / 192, math.log(2) / math.log(7)
    for name, published in tiny.items():
        table, cifar, imagenet = PUBLISHED[name]
        low, high = np.array(cifar, float), np.array(imagenet, float)
        rules = {
            "ours": np.array([table.fit(blank(64), severity)[0][0] for severity in range(1, 6)]),
            "side": low + linear * (high - low),
            "log side": low + log * (high - low),
            "power of side": low ** (1 - linear) * high**linear,
        }
        for rule, values in rules.items():
            errors[rule].append(float(np.abs(np.log(values / published)).mean()))
    means = {rule: float(np.mean(values)) for rule, values in errors.items()}
    assert min(means, key=lambda rule: means[rule]) == "ours", means


def test_noise_at_224_has_the_published_strength() -> None:
    grey = torch.full((1, 3, 224, 224), 128, dtype=torch.uint8)
    assert float(corrupt(grey, "gaussian_noise", 1).float().std()) / 255 == pytest.approx(0.08, rel=0.01)
    changed = corrupt(grey, "impulse_noise", 5) != grey
    assert float(changed.float().mean()) == pytest.approx(0.27, rel=0.02)
    shot = float(corrupt(grey, "shot_noise", 1).float().std()) / 255
    assert shot == pytest.approx(math.sqrt(128 / 255 / 60), rel=0.02)


def arrays(images: Tensor) -> NDArray[np.uint8]:
    return images[0].permute(1, 2, 0).numpy()


def test_other_programs_agree_at_224() -> None:
    """SciPy's Gaussian, Pillow's box resize and JPEG, and contrast by its formula."""
    images = photograph()
    picture = arrays(images)
    gaussian = ndimage.gaussian_filter(picture.astype(float), (6, 6, 0), mode="nearest")
    assert np.abs(arrays(corrupt(images, "gaussian_blur", 5)) - np.floor(gaussian + 1e-3)).max() <= 1
    small = Image.fromarray(picture).resize((56, 56), Image.Resampling.BOX)  # 224 × 0.25
    large = np.asarray(small.resize((224, 224), Image.Resampling.BOX)).astype(int)
    assert np.abs(arrays(corrupt(images, "pixelate", 5)) - large).max() <= 1
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=7)
    assert np.array_equal(arrays(corrupt(images, "jpeg_compression", 5)), np.asarray(Image.open(file)))
    means = picture.mean((0, 1), keepdims=True)
    assert np.abs(arrays(corrupt(images, "contrast", 4)) - np.floor((picture - means) * 0.1 + means)).max() <= 1


@pytest.mark.parametrize("severity", [1, 4, 5])
def test_defocus_at_224_is_the_publishers_disk(severity: int) -> None:
    """The light of one white pixel, with the disk softened inside its window as OpenCV mirrors it."""
    radius, softness = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1]
    reach, width = (8, 1) if radius <= 8 else (radius, 2)
    disk = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1]) <= radius
    soft = np.exp(-0.5 * (np.arange(-width, width + 1) / softness) ** 2)
    kernel = disk / disk.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, soft / soft.sum(), axis, mode="mirror")
    image = torch.zeros(1, 1, 224, 224, dtype=torch.uint8)
    image[0, 0, 100:103, 100:103] = 255
    light = corrupt(image, "defocus_blur", severity)[0, 0].numpy().astype(float)
    expected = ndimage.correlate(image[0, 0].numpy().astype(float), kernel, mode="mirror")
    assert np.abs(light - np.floor(expected + 1e-3)).max() <= 1


@pytest.mark.parametrize("name", ["motion_blur", "elastic_transform", "snow", "frost", "fog", "glass_blur"])
def test_what_is_large_at_224_still_works_there(name: str) -> None:
    images = photograph()
    results = [corrupt(images, name, severity) for severity in (1, 5)]
    for result in results:
        assert result.shape == images.shape
        assert not torch.equal(result, images)


def test_one_set_can_be_chosen() -> None:
    """At 32 pixels "auto" is CIFAR's; ImageNet's noise is stronger; a name that is not known is an error."""
    images = photograph(32)
    assert torch.equal(corrupt(images, "gaussian_noise", 5), corrupt(images, "gaussian_noise", 5, parameters="cifar"))
    changes = [(corrupt(images, "gaussian_noise", 1, parameters=name).float() - images).std() for name in PARAMETERS]
    assert float(changes[2]) == pytest.approx(2 * float(changes[1]), rel=0.1)
    assert torch.equal(corrupt(images, "frost", 1, parameters="cifar"), corrupt(images, "frost", 1))
    with pytest.raises(ValueError, match=r"Expected `parameters` to be one of auto, cifar, imagenet but got 'tiny'"):
        corrupt(images, "fog", 1, parameters="tiny")


def test_shifts_say_whose_parameters_they_have() -> None:
    data = load("digits", "test").rows(slice(0, 4))
    (shift,) = covariate(data, ["gaussian_noise"], [1])
    assert shift.about == describe_parameters(8) == "CIFAR-C's parameters, lengths times 0.25"
    (strong,) = covariate(data, ["gaussian_noise"], [1], parameters="imagenet")
    assert strong.about == "ImageNet-C's parameters, lengths times 0.0357"
    assert not torch.equal(strong.make().images, shift.make().images)
    first = next(suite("covariate", data, corruptions=["gaussian_noise"], parameters="imagenet"))
    assert torch.equal(first.make().images, strong.make().images)
    with pytest.raises(ValueError, match="Expected `parameters`"):
        covariate(data, parameters="tiny")


def test_a_folder_is_of_one_set(tmp_path: Path) -> None:
    images, labels = blank(32), torch.zeros(1, dtype=torch.int64)
    write_layout(images, labels, tmp_path, ["contrast"])
    write_layout(images, labels, tmp_path, ["contrast"], parameters="cifar")  # the same at 32 pixels
    with pytest.raises(ValueError, match="made from other parameters"):
        write_layout(images, labels, tmp_path, ["contrast"], parameters="imagenet")
    record = tmp_path / "shiftprism.json"
    record.write_text(record.read_text().replace('"parameters": "cifar",', ""))  # as earlier versions wrote it
    write_layout(images, labels, tmp_path, ["contrast"])
