"""Figures that other programs gave, for parts whose definition is what a program does."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftprism.corruptions import COMMON, EXTRA, corrupt
from shiftprism.corruptions._frost import textures
from shiftprism.corruptions._sampling import motion
from test_corruptions_reference import CERTAIN, ours, pictures

# Mean and standard deviation of the change of `pictures(48)` at severities 1 … 5, made by the publisher's definitions
# with scikit-image 0.26, OpenCV 5.0 and ImageMagick 6.9.11 through Wand; what is random ten times, glass_blur three
# times. Frost is not here: it needs the photographs.
PUBLISHER = {
    "gaussian_noise": [(-0.37, 10.03), (-0.3, 14.99), (-0.18, 19.84), (-0.14, 22.23), (-0.07, 24.62)],
    "shot_noise": [(-0.53, 7.64), (-0.55, 10.77), (-0.64, 16.88), (-0.65, 19.42), (-0.88, 23.56)],
    "impulse_noise": [(0.09, 14.3), (0.21, 20.13), (0.32, 24.63), (0.61, 32.0), (0.82, 37.75)],
    "defocus_blur": [(-0.49, 2.54), (-0.49, 6.3), (-0.49, 9.35), (-0.49, 12.94), (-0.43, 16.26)],
    "glass_blur": [(0.03, 26.16), (-1.01, 25.84), (-0.94, 23.58), (-0.99, 35.56), (-0.96, 33.04)],
    "motion_blur": [(-0.53, 12.9), (-0.57, 17.61), (-0.61, 21.11), (-0.56, 21.19), (-0.65, 23.33)],
    "zoom_blur": [(-0.46, 16.66), (-0.44, 18.72), (-0.41, 21.26), (-0.37, 23.73), (-0.29, 25.66)],
    "snow": [(10.73, 8.58), (24.03, 13.18), (25.73, 17.6), (37.89, 20.49), (53.47, 24.03)],
    "fog": [(0.42, 12.9), (0.79, 25.48), (2.05, 32.54), (2.66, 39.06), (2.55, 47.39)],
    "brightness": [(8.92, 3.56), (18.16, 7.47), (26.92, 11.52), (35.05, 15.65), (48.88, 23.84)],
    "contrast": [(-0.5, 11.37), (-0.5, 22.74), (-0.5, 27.28), (-0.5, 31.82), (-0.5, 38.65)],
    "elastic_transform": [(-0.58, 34.17), (-0.64, 31.94), (-0.49, 29.1), (-0.52, 27.5), (-0.46, 23.49)],
    "pixelate": [(0.06, 6.39), (0.12, 9.28), (0.15, 11.06), (0.25, 13.3), (0.37, 15.49)],
    "jpeg_compression": [(0.05, 11.75), (0.09, 13.78), (0.06, 14.35), (0.04, 14.98), (0.12, 15.79)],
    "speckle_noise": [(-0.56, 7.82), (-0.67, 12.88), (-0.75, 15.38), (-1.0, 20.27), (-1.26, 25.0)],
    "gaussian_blur": [(-0.49, 2.45), (-0.5, 9.23), (-0.5, 11.58), (-0.5, 13.5), (-0.5, 16.63)],
    "spatter": [(1.1, 8.13), (2.9, 12.9), (6.96, 17.97), (-2.69, 17.22), (-4.44, 21.82)],
    "saturate": [(22.99, 30.85), (29.61, 39.7), (-12.27, 14.25), (-25.07, 26.77), (-34.79, 38.87)],
}


@pytest.mark.parametrize("name", [name for name in (*COMMON, *EXTRA) if name != "frost"])
def test_changes_are_as_large_as_the_publishers(name: str) -> None:
    images = pictures(48)
    for severity, (mean, spread) in enumerate(PUBLISHER[name], 1):
        results = np.stack([ours(images, name, severity, 1000 * k) for k in range(1 if name in CERTAIN else 6)])
        change = results - images.astype(float)
        assert change.mean() == pytest.approx(mean, abs=0.06 * spread + 0.05), severity
        assert change.std() == pytest.approx(spread, rel=0.06), severity


# `convert -motion-blur RADIUSxSIGMA+ANGLE` of one white pixel: the share of light at (down, right) of it, from .002 up.
IMAGEMAGICK = {
    (6, 2.0, -12.3): {(0, 0): 0.3326, (0, -1): 0.2935, (0, -2): 0.2017, (1, -3): 0.108, (1, -4): 0.045, (1, -5): 0.0146,
                      (1, -6): 0.0037},
    (9, 2.5, 44.0): {(0, 0): 0.2752, (-1, -1): 0.4539, (-2, -2): 0.134, (-3, -3): 0.0765, (-3, -4): 0.0372,
                     (-4, -4): 0.0155, (-5, -5): 0.0055, (-6, -6): 0.0021},
    (8, 3.0, -100.0): {(0, 0): 0.2347, (1, 0): 0.2221, (2, 0): 0.188, (3, 1): 0.1424, (4, 1): 0.0965, (5, 1): 0.0585,
                       (6, 1): 0.0318, (7, 1): 0.0154, (8, 1): 0.0067, (9, 2): 0.0026},
}  # fmt: skip


@pytest.mark.parametrize("setting", IMAGEMAGICK)
def test_motion_blur_is_imagemagicks(setting: tuple[int, float, float]) -> None:
    radius, sigma, angle = setting
    image = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    image[0, 0, 16, 16] = 255
    light = motion(image, radius, sigma, torch.tensor([angle]), 1.0)[0, 0] / 255
    found = {(int(y) - 16, int(x) - 16): float(light[y, x]) for y, x in (light > 0.002).nonzero()}
    assert found == pytest.approx(IMAGEMAGICK[setting], abs=2e-4)


# Mean of the channels of the publisher's five photographs, and of the green one the standard deviation and the
# correlation with itself 1, 4 and 16 pixels to the right, at the size they are used at (every fifth pixel).
PHOTOGRAPHS = [
    ((78, 149, 166), 16.4, (0.70, 0.60, 0.26)),
    ((201, 205, 214), 22.1, (0.61, 0.49, 0.42)),
    ((201, 205, 214), 22.1, (0.61, 0.49, 0.42)),
    ((138, 153, 165), 29.0, (0.47, 0.39, 0.20)),
    ((112, 123, 135), 43.2, (0.58, 0.42, 0.36)),
]


def test_drawn_frost_has_the_brightness_and_grain_of_the_photographs() -> None:
    for sheet, (mean, spread, correlations) in zip(textures(""), PHOTOGRAPHS, strict=True):
        green = sheet[1, 2::5, 2::5].astype(float)
        np.testing.assert_allclose(sheet.mean((1, 2)), mean, atol=1.5)
        assert green.std() == pytest.approx(spread, rel=0.1)
        for lag, correlation in zip((1, 4, 16), correlations, strict=True):
            found = np.corrcoef(green[:, :-lag].ravel(), green[:, lag:].ravel())[0, 1]
            assert found == pytest.approx(correlation, abs=0.25 if lag == 16 else 0.14)


def test_frost_from_the_photographs_is_as_strong_as_drawn() -> None:
    root = os.environ.get("SHIFTPRISM_SHARED") or Path(__file__).resolve().parents[2] / "shared"
    folder = Path(root) / "data" / "frost"
    if not folder.is_dir():
        pytest.skip(f"needs the publisher's photographs of frost in {folder}")
    assert len(textures(str(folder))) == 5
    images = torch.from_numpy(pictures(48)).permute(0, 3, 1, 2).repeat(4, 1, 1, 1)
    for severity in (1, 3, 5):
        both = [corrupt(images, "frost", severity, photographs=source).float() - images for source in (folder, "")]
        photographs, drawn = ((float(change.mean()), float(change.std())) for change in both)
        assert drawn == pytest.approx(photographs, rel=0.1)
