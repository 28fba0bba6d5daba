"""Our extra corruptions, each against another way to compute it."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import fft, ndimage
from torch import Tensor

from shiftprism.corruptions import COMMON, CORRUPTIONS, OWN_EXTRA, corrupt, describe_corruptions
from shiftprism.corruptions._random import Draws
from test_corruptions import clean

Floats = NDArray[np.float64]


def change(name: str, severity: int, images: Tensor) -> tuple[Floats, Floats]:
    """The images and what became of them, both as (N, C, H, W) floats."""
    return images.double().numpy(), corrupt(images, name, severity).double().numpy()


@pytest.mark.parametrize("name", ["gamma", "tone_curve"])
def test_curves_are_those_of_one_sign_or_the_other(name: str) -> None:
    before, after = change(name, 3, clean(12))
    x = before / 255
    if name == "gamma":
        curves = [x**1.65, x ** (1 / 1.65)]
    else:
        curves = [x - sign * 0.6 * np.sin(2 * np.pi * x) / (2 * np.pi) for sign in (1, -1)]
    distances = np.stack([np.abs(after - 255 * curve).max((1, 2, 3)) for curve in curves])
    assert distances.min(0).max() <= 0.51
    assert set(distances.argmin(0)) == {0, 1}


def test_curves_rise_and_keep_black_and_white() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    for name in ("gamma", "tone_curve"):
        for seed in range(6):
            levels = corrupt(ramp, name, 5, torch.tensor([seed])).flatten().int()
            assert bool((levels.diff() >= 0).all())
            assert levels[[0, -1]].tolist() == [0, 255]


def test_a_vignette_darkens_with_the_square_of_the_distance() -> None:
    flat = torch.full((5, 3, 32, 48), 200, dtype=torch.uint8)
    _, after = change("vignette", 5, flat)
    numbers = Draws(np.arange(5), CORRUPTIONS["vignette"].stream).uniforms(2).double().numpy()
    for image, (down, right) in zip(after, (numbers - 0.5) * 0.4, strict=True):
        y, x = np.linspace(-1, 1, 32)[:, None] - down, np.linspace(-1, 1, 48) - right
        assert np.abs(image - 200 * np.clip(1 - 0.85 * (y**2 + x**2) / 2, 0, 1)).max() <= 0.51


def test_a_cast_keeps_the_product_of_the_channels() -> None:
    grey = torch.full((8, 3, 8, 8), 100, dtype=torch.uint8)
    _, after = change("colour_cast", 4, grey)
    gains = after[:, :, 0, 0] / 100
    np.testing.assert_allclose(gains.prod(1), 1, atol=0.02)
    amplitude = np.sqrt((np.log(gains) ** 2).sum(1) / 1.5)  # Σ cos² over three directions is 3/2
    np.testing.assert_allclose(amplitude, 0.36, atol=0.01)


def test_red_and_blue_move_apart() -> None:
    """A white dot becomes three: green in place, red three pixels off, blue two in the opposite direction."""
    images = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    images[:, :, 16, 16] = 255
    moved = corrupt(images, "chromatic_shift", 5)
    places = np.array([[np.argwhere(plane)[0] for plane in image] for image in moved.numpy()]) - 16
    assert (places[:, 1] == 0).all()
    assert (np.abs(places[:, 0]).max(1) == 3).all()
    assert np.array_equal(3 * places[:, 2], -2 * places[:, 0])
    assert len({tuple(place) for place in places[:, 0]}) > 3


def test_sharpening_is_an_unsharp_mask() -> None:
    before, after = change("sharpen", 2, clean(4))
    soft = ndimage.gaussian_filter(before, (0, 0, 0.8, 0.8), mode="nearest")
    assert np.abs(after - np.clip(2 * before - soft, 0, 255)).max() <= 0.6


@pytest.mark.parametrize("size", [(32, 32), (20, 33)])
def test_ringing_is_a_cut_of_the_cosine_transform(size: tuple[int, int]) -> None:
    before, after = change("ringing", 4, clean(3, 3, *size))
    waves = fft.dctn(before, axes=(2, 3), norm="ortho")
    waves[:, :, math.ceil(size[0] / 2) :] = 0
    waves[:, :, :, math.ceil(size[1] / 2) :] = 0
    smooth = fft.idctn(waves, axes=(2, 3), norm="ortho")
    assert np.abs(after - np.clip(smooth, 0, 255)).max() <= 0.6


def test_the_median_of_a_window_by_sorting() -> None:
    before, after = change("median_filter", 5, clean(3))
    padded = np.pad(before, ((0, 0), (0, 0), (2, 2), (2, 2)), "edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3)).reshape(*before.shape, 25)
    assert np.array_equal(after, np.sort(windows, -1)[..., 12])
    three = np.sort(windows.reshape(*before.shape, 5, 5)[..., 1:4, 1:4].reshape(*before.shape, 9), -1)[..., 4]
    _, part = change("median_filter", 1, clean(3))
    assert np.abs(part - (0.6 * before + 0.4 * three)).max() <= 0.51


def test_posterised_values_are_the_nearest_of_a_few_levels() -> None:
    before, after = change("posterize", 5, clean(4))
    levels = np.linspace(0, 255, 5)
    nearest = levels[np.abs(before[..., None] - levels).argmin(-1)]
    assert np.abs(after - nearest).max() <= 0.51


def test_dithering_has_few_levels_and_keeps_the_mean() -> None:
    flat = torch.arange(0, 256, 17, dtype=torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 1, 8, 8)
    before, after = change("dithering", 5, flat)
    assert set(np.unique(after)) == {0, 85, 170, 255}
    assert np.abs(after.mean((1, 2, 3)) - before.mean((1, 2, 3))).max() <= 85 / 32 + 0.01  # half a sixteenth of a step


def test_blocks_have_two_levels_with_their_mean_and_variance() -> None:
    before, after = change("block_truncation", 3, clean(3, 3, 30, 30))
    blocks = [x.reshape(3, 3, 6, 5, 6, 5).transpose(0, 1, 2, 4, 3, 5).reshape(-1, 25) for x in (before, after)]
    assert max(len(np.unique(block)) for block in blocks[1]) == 2
    inside = ((blocks[1] > 0) & (blocks[1] < 255)).all(1)  # a level beyond black or white is clipped
    assert inside.mean() > 0.9
    np.testing.assert_allclose(blocks[1][inside].mean(1), blocks[0][inside].mean(1), atol=0.51)
    np.testing.assert_allclose(blocks[1][inside].std(1), blocks[0][inside].std(1), atol=0.51)


def test_every_second_line_moves_sideways() -> None:
    images = clean(8)
    moved = corrupt(images, "interlacing", 3)
    assert torch.equal(moved[:, :, ::2], images[:, :, ::2])
    signs = set()
    for image, result in zip(images[:, :, 1::2], moved[:, :, 1::2], strict=True):
        right, left = torch.equal(result[..., :-3], image[..., 3:]), torch.equal(result[..., 3:], image[..., :-3])
        assert right != left
        signs.add(right)
    assert signs == {True, False}


def test_rescaling_is_pillows_bicubic_resize_there_and_back() -> None:
    before, after = change("rescaling", 5, clean(2, 3, 32, 40))
    for plane, result in zip(before.reshape(-1, 32, 40), after.reshape(-1, 32, 40), strict=True):
        small = Image.fromarray(plane.astype(np.float32)).resize((20, 16), Image.Resampling.BICUBIC)
        large = np.asarray(small.resize((40, 32), Image.Resampling.BICUBIC))
        assert np.abs(result - np.clip(large, 0, 255)).max() <= 0.51


def test_lost_lines_show_the_last_line_before_them() -> None:
    images = clean(40)
    lost = corrupt(images, "lost_lines", 3)
    shares: dict[bool, list[float]] = {True: [], False: []}
    for image, result in zip(images, lost, strict=True):
        by_rows = torch.equal(result[:, 0], image[:, 0])  # the first line is never lost; columns would cut it
        lines, shown = (each if by_rows else each.transpose(1, 2) for each in (image, result))
        same = (lines == shown).all((0, 2))
        for place in (~same).nonzero()[:, 0].tolist():
            assert torch.equal(shown[:, place], shown[:, place - 1])
        shares[by_rows].append(float((~same).double().mean()))
    assert min(shares[True] + shares[False]) >= 1 / 32
    assert np.mean(shares[True] + shares[False]) == pytest.approx(0.12, abs=0.03)
    assert all(len(each) > 8 for each in shares.values())


def test_one_line_at_least_is_lost() -> None:
    images = clean(20)
    assert bool((corrupt(images, "lost_lines", 1) != images).flatten(1).any(1).all())


def test_grey_images_have_no_colour_to_change() -> None:
    grey = clean(3, 1)
    for name in ("colour_cast", "chromatic_shift"):
        assert torch.equal(corrupt(grey, name, 5), grey)


def test_the_table_names_every_corruption() -> None:
    titles, *rows = describe_corruptions()
    assert len(titles) == 4
    assert [row[0] for row in rows] == list(CORRUPTIONS)
    assert all(row[3].endswith(".") or row[3].endswith(":") for row in rows)
    kinds = {row[0]: row[1] for row in rows}
    assert {kinds[name] for name in COMMON} == {"test"}
    assert {kinds[name] for name in OWN_EXTRA} == {"extra"}
