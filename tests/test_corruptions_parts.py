"""The parts that corruptions are made of, against loops over pixels and SciPy."""

import math

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from numpy.typing import NDArray
from scipy import ndimage

from shiftprism.corruptions._blur import shuffle_sources
from shiftprism.corruptions._corruption import Corruption
from shiftprism.corruptions._digital import _affine_map
from shiftprism.corruptions._filters import blur, gaussian_kernel, noise_gain, resize_kernel, round_kernel, to_bytes
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import correlate, motion, sample
from shiftprism.corruptions._spatter import _edges, _equalise
from shiftprism.corruptions._weather import plasma
from test_corruptions_reference import Floats, canny, equalise, pictures, shuffle


@pytest.mark.parametrize("delta", [1, 2, 3])
@pytest.mark.parametrize("size", [(12, 17), (32, 32)])
def test_a_shuffle_is_the_loop_over_pixels(size: tuple[int, int], delta: int) -> None:
    steps = default_rng(delta).integers(-delta, delta, (2, 2, *size))
    sources = shuffle_sources(torch.from_numpy(steps), delta)
    for source, step in zip(sources, steps, strict=True):
        x = np.arange(size[0] * size[1]).reshape(*size, 1).repeat(3, 2)
        shuffle(x, lambda h, w, step=step: (step[0, h, w], step[1, h, w]), delta)  # type: ignore[misc, arg-type]
        assert source.tolist() == x[..., 0].ravel().tolist()


def test_a_fractal_is_diamonds_and_squares_point_by_point() -> None:
    size, decay = 16, 1.75
    noise = torch.rand(3, size * size - 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for row, found in zip(noise.double().numpy(), plasma(noise, size, decay).numpy(), strict=True):
        np.testing.assert_allclose(found, by_points(row, size, decay), atol=1e-4)


def by_points(noise: Floats, size: int, decay: float) -> Floats:
    heights, values, wibble, step = np.zeros((size, size)), iter(noise), 100.0, size
    while step >= 2:
        half = step // 2
        diagonal = [(-half, -half), (-half, half), (half, -half), (half, half)]
        straight = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for down, right, around in ((half, half, diagonal), (0, half, straight), (half, 0, straight)):
            for y in range(down, size, step):
                for x in range(right, size, step):
                    mean = sum(heights[(y + v) % size, (x + u) % size] for v, u in around) / 4
                    heights[y, x] = mean + wibble**2 * next(values)
        step, wibble = half, wibble / decay
    return np.asarray((heights - heights.min()) / (heights.max() - heights.min()))


@pytest.mark.parametrize(("border", "mode"), [("mirror", "mirror"), ("symmetric", "reflect")])
def test_sampling_is_linear_and_mirrors_at_the_border(border: str, mode: str) -> None:
    image = default_rng(0).random((9, 13))
    places = default_rng(1).uniform([[[-8.0]], [[-12.0]]], [[[16.0]], [[24.0]]], (2, 9, 13))
    expected = ndimage.map_coordinates(image, places, order=1, mode=mode)  # type: ignore[call-overload]
    rows, columns = torch.from_numpy(places).unsqueeze(1)
    found = sample(torch.from_numpy(image).float()[None, None], rows, columns, border)
    np.testing.assert_allclose(found[0, 0].numpy(), expected, atol=1e-5)


def test_the_affine_map_takes_each_point_back() -> None:
    moves = torch.tensor([[[2.0, -1.0], [0.0, 3.0], [-2.0, 1.0]]])
    rows, columns = _affine_map(33, 48, moves)  # centre (16, 24), a third of 33 is 11
    for (down, right), (y, x) in zip(moves[0].tolist(), ((27, 35), (5, 35), (5, 13)), strict=True):
        place = int(y + down), int(x + right)
        assert (float(rows[0][place]), float(columns[0][place])) == pytest.approx((y, x))


@pytest.mark.parametrize(("border", "mode"), [("reflect", "mirror"), ("edge", "nearest")])
def test_correlation_is_scipys(border: str, mode: str) -> None:
    image, kernel = default_rng(0).random((11, 14)), default_rng(1).random((5, 3)) - 0.3
    expected = ndimage.correlate(image, kernel, mode=mode)  # type: ignore[arg-type]
    found = correlate(torch.from_numpy(image).float()[None, None], kernel, border)  # type: ignore[arg-type]
    np.testing.assert_allclose(found[0, 0].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("sigma", "scale"), [(0.4, 1.0), (1.0, 1.0), (0.7, 2.0), (6.4, 1.0), (1.0, 4.0)])
def test_blur_is_scipys_gaussian_of_sigma_times_scale(sigma: float, scale: float) -> None:
    image = pictures(1)[0, ..., 0]
    expected = ndimage.gaussian_filter(image.astype(float), sigma * scale, mode="nearest", truncate=4)
    found = blur(torch.from_numpy(image)[None, None], sigma, scale)
    np.testing.assert_allclose(found[0, 0].numpy(), expected, atol=0.05)


@pytest.mark.parametrize("scale", [0.25, 0.6, 1.0, 1.5, 2.0, 7.0])
def test_a_resized_kernel_keeps_its_sum_and_place_and_grows_with_the_scale(scale: float) -> None:
    kernel = np.outer([0.1, 0.2, 0.4, 0.2, 0.1], [0.3, 0.4, 0.3])
    new = resize_kernel(kernel, scale)
    assert new.sum() == pytest.approx(1)
    np.testing.assert_allclose(new, new[::-1, ::-1], atol=1e-12)
    covered = (max(scale, 1.0) ** 2 - 1) / 12  # what the pixels that a weight covers add to the variance
    assert spread(new.sum(0)) == pytest.approx(0.6 * scale**2 + covered, abs=0.26)  # up to 1/4 for a broken place
    assert scale != 1 or np.array_equal(new, kernel)


def spread(kernel: Floats) -> float:
    place = np.arange(len(kernel)) - len(kernel) // 2
    return float((kernel * place**2).sum())


@pytest.mark.parametrize("scale", [0.25, 1.0, 3.0])
def test_weights_sum_to_exactly_one(scale: float) -> None:
    for sigma in (0.05, 0.4, 1.0, 3.0):
        kernel = gaussian_kernel(sigma, scale)
        assert kernel.sum() == 1
        assert np.array_equal(kernel * 2**16, np.round(kernel * 2**16))
    assert round_kernel(np.ones((3, 3))).sum() == 1


def test_blurred_noise_is_as_strong_at_every_size() -> None:
    deviations = []
    for scale in (1.0, 2.0, 4.0):
        side = int(32 * scale)
        noise = torch.from_numpy(default_rng(0).standard_normal((40, 1, side, side)))
        deviations.append(float(blur(noise, 1.0, scale).std()) * noise_gain(1.0, scale))
    np.testing.assert_allclose(deviations, deviations[0], rtol=0.05)


def noise_layers() -> NDArray[np.float64]:
    layers = np.stack([ndimage.gaussian_filter(default_rng(n).normal(0.65, 0.2, (32, 32)), 0.8) for n in range(20)])
    return np.asarray(np.floor(np.clip(np.where(layers < 0.7, 0, layers) * 255, 0, 255)))


def test_edges_are_cannys() -> None:
    layers = noise_layers()
    found = _edges(torch.from_numpy(layers).float().unsqueeze(1)).squeeze(1).numpy()
    expected = np.stack([canny(layer) for layer in layers])
    assert expected.mean() > 0.05
    assert np.array_equal(found, expected)


def test_equalisation_by_hand_and_by_counting() -> None:
    assert _equalise(torch.tensor([[[[3, 3], [3, 3]]]])).tolist() == [[[[3, 3], [3, 3]]]]
    assert _equalise(torch.tensor([[[[1, 1], [2, 7]]]])).flatten().tolist() == [0, 0, 128, 255]
    levels = noise_layers().astype(np.int64) // 20
    found = _equalise(torch.from_numpy(levels).unsqueeze(1)).squeeze(1).numpy()
    assert abs(found - np.stack([equalise(layer) for layer in levels])).max() <= 1  # a half is rounded up or to even


def test_motion_below_a_pixel_shares_the_light() -> None:
    image = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    image[0, 0, 4, 4] = 255
    light = motion(image, 6, 1.0, torch.tensor([0.0]), 0.25)[0, 0, 4] / 255
    weights = np.exp(-0.5 * np.arange(13) ** 2)
    weights /= weights.sum()
    parts = np.arange(13) / 4 - np.floor(np.arange(13) / 4)
    here = sum(w * (1 - p) for w, p, i in zip(weights, parts, range(13), strict=True) if i // 4 == 0)
    before = sum(w * (p if i // 4 == 0 else 1 - p) for w, p, i in zip(weights, parts, range(8), strict=False))
    np.testing.assert_allclose(light[[4, 3]].numpy(), [here, before], atol=1e-3)


def test_bytes_are_cut_not_rounded() -> None:
    assert to_bytes(torch.tensor([-3.0, 0.9, 1.9999, 254.7, 300.0])).tolist() == [0, 0, 2, 254, 255]


def test_draws_of_a_seed_do_not_depend_on_the_others() -> None:
    seeds = np.array([5, -1, 5])
    draws = Draws(seeds, 3)
    first = draws.normals(2, 3)
    second = draws.uniforms()
    alone = Draws(seeds[1:2], 3)
    assert torch.equal(alone.normals(2, 3), first[1:2])
    assert torch.equal(alone.uniforms(), second[1:2])
    assert torch.equal(first[0], first[2])
    assert not torch.equal(Draws(seeds, 4).normals(2, 3), first)


def test_random_numbers_have_the_moments_they_should() -> None:
    draws = Draws(np.arange(2000), 0)
    normal, uniform = draws.normals(50), draws.uniforms(50)
    assert (float(normal.mean()), float(normal.std())) == pytest.approx((0, 1), abs=0.02)
    assert (float(uniform.mean()), float(uniform.std())) == pytest.approx((0.5, math.sqrt(1 / 12)), abs=0.01)
    neighbours = np.corrcoef(normal[:-1].ravel(), normal[1:].ravel())[0, 1]
    assert abs(neighbours) < 0.02  # neighbouring seeds are independent


def test_a_corruption_of_ones_own_is_called_like_ours() -> None:
    negative = Corruption("negative", 99, lambda images, severity, draws: 255 - images)
    images = torch.arange(192, dtype=torch.uint8).reshape(1, 3, 8, 8)
    assert torch.equal(negative(images, 1, [0]), 255 - images)
