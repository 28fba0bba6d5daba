"""Each corruption against a plain reading of its definition: one image at a time, float64, NumPy, SciPy and Pillow.

`PLAIN[name](image, severity, random)` takes and returns uint8 (32, 32, 3); the benchmark of the room times it too.
Readings draw what they need in the order the room does, so that they can also be given the room's own numbers.
"""

import io
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from shiftprism.corruptions import COMMON, CORRUPTIONS, EXTRA
from shiftprism.corruptions._frost import textures
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import motion

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float64]
SEVERITIES = (1, 2, 3, 4, 5)


def cut(x: Floats) -> Pixels:
    """[0, 1] → bytes, cut as a cast does; the 1e-9 keeps whole numbers whole."""
    return (np.clip(x, 0, 1) * 255 + 1e-9).astype(np.uint8)


def normals(random: Generator) -> Floats:
    return np.moveaxis(random.standard_normal((3, 32, 32)), 0, -1)


def gaussian_noise(image: Pixels, severity: int, random: Generator) -> Pixels:
    return cut(image / 255 + [0.04, 0.06, 0.08, 0.09, 0.10][severity - 1] * normals(random))


def shot_noise(image: Pixels, severity: int, random: Generator) -> Pixels:
    rate = [500, 250, 100, 75, 50][severity - 1]
    return cut(np.moveaxis(random.poisson(np.moveaxis(image, -1, 0) / 255 * rate), 0, -1) / rate)


def impulse_noise(image: Pixels, severity: int, random: Generator) -> Pixels:
    amount = [0.01, 0.02, 0.03, 0.05, 0.07][severity - 1]
    chance = np.moveaxis(random.random((3, 32, 32)), 0, -1)
    return np.where(chance < amount / 2, 255, np.where(chance >= 1 - amount / 2, 0, image)).astype(np.uint8)


def speckle_noise(image: Pixels, severity: int, random: Generator) -> Pixels:
    x = image / 255
    return cut(x + x * [0.06, 0.1, 0.12, 0.16, 0.2][severity - 1] * normals(random))


def smooth(x: Floats, sigma: float, mode: Literal["nearest", "reflect"] = "nearest", truncate: float = 4) -> Floats:
    return np.asarray(ndimage.gaussian_filter(x, (sigma, sigma, 0)[: x.ndim], mode=mode, truncate=truncate))


def gaussian_blur(image: Pixels, severity: int, random: Generator) -> Pixels:
    return cut(smooth(image / 255, [0.4, 0.6, 0.7, 0.8, 1][severity - 1]))


def defocus_blur(image: Pixels, severity: int, random: Generator) -> Pixels:
    radius, softness = [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)][severity - 1]
    y, x = np.mgrid[-8:9, -8:9]
    disk = (x**2 + y**2 <= radius**2).astype(float)
    soft = np.exp(-(np.array([-1.0, 0, 1]) ** 2) / (2 * softness**2))
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(soft, soft) / soft.sum() ** 2)
    return cut(np.stack([ndimage.correlate(image[..., c] / 255, kernel, mode="mirror") for c in range(3)], -1))


def shuffle(x: Pixels, step: Callable[[int, int], "tuple[int, int] | NDArray[np.int64]"], delta: int = 1) -> None:
    """One pass of glass blur, in place; what looks like a swap copies, because both sides are views of one array."""
    height, width = x.shape[:2]
    for h in range(height - delta, delta, -1):
        for w in range(width - delta, delta, -1):
            dy, dx = step(h, w)
            x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]


def glass_blur(image: Pixels, severity: int, random: Generator) -> Pixels:
    sigma, times = [(0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)][severity - 1]
    x = cut(smooth(image / 255, sigma))
    for _ in range(times):
        shuffle(x, lambda h, w: random.integers(-1, 1, 2))
    return cut(smooth(x / 255, sigma))


def smear(image: Floats, radius: int, sigma: float, angle: float) -> Pixels:
    """ImageMagick's motion blur of (H, W, …) grey levels."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    total = np.zeros(image.shape)
    for i, weight in enumerate(weights / weights.sum()):
        down = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        right = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        total += weight * image[np.clip(y + down, 0, image.shape[0] - 1), np.clip(x + right, 0, image.shape[1] - 1)]
    return (total + 1e-6).astype(np.uint8)


def motion_blur(image: Pixels, severity: int, random: Generator) -> Pixels:
    radius, sigma = [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)][severity - 1]
    return smear(image.astype(float), radius, sigma, random.random() * 90 - 45)


def middle_zoom(x: Floats, factor: float) -> Floats:
    side = len(x)
    middle = math.ceil(side / factor)
    start = (side - middle) // 2
    large = ndimage.zoom(x[start : start + middle, start : start + middle], (factor, factor, 1), order=1)
    trim = (len(large) - side) // 2
    kept: Floats = large[trim : trim + side, trim : trim + side]
    return kept


def zoom_blur(image: Pixels, severity: int, random: Generator) -> Pixels:
    x = image / 255
    factors = np.arange(1, [1.06, 1.11, 1.16, 1.21, 1.26][severity - 1], 0.01)
    return cut((x + sum(middle_zoom(x, factor) for factor in factors)) / (len(factors) + 1))


def snow(image: Pixels, severity: int, random: Generator) -> Pixels:
    mean, std, enlargement, threshold, radius, sigma, weight = [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ][severity - 1]
    layer = middle_zoom(mean + std * random.standard_normal((32, 32, 1)), enlargement)
    layer[layer < threshold] = 0
    fallen = smear(cut(layer).astype(float), int(radius), sigma, random.random() * 90 - 135) / 255
    x = image / 255
    grey = x @ [0.299, 0.587, 0.114]
    x = weight * x + (1 - weight) * np.maximum(x, grey[..., None] * 1.5 + 0.5)
    return cut(x + fallen + np.rot90(fallen, 2))


def frost(image: Pixels, severity: int, random: Generator) -> Pixels:
    picture, ice = [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)][severity - 1]
    sheet = textures()[random.integers(5)].transpose(1, 2, 0)[2::5, 2::5]
    y, x = random.integers(len(sheet) - 32), random.integers(sheet.shape[1] - 32)
    return cut((picture * image + ice * sheet[y : y + 32, x : x + 32]) / 255)


def fractal(random: Generator, size: int, decay: float) -> Floats:
    """Diamond-square on a torus."""
    heights, wibble, step = np.zeros((size, size)), 100.0, size
    while step >= 2:
        half = step // 2
        corner, centre = heights[::step, ::step], heights[half::step, half::step]

        def mean(total: Floats, wibble: float = wibble) -> Floats:
            return total / 4 + wibble * (2 * random.random(total.shape) - 1) * wibble

        pairs = corner + np.roll(corner, -1, 0)
        centre[:] = mean(pairs + np.roll(pairs, -1, 1))
        heights[::step, half::step] = mean(centre + np.roll(centre, 1, 0) + corner + np.roll(corner, -1, 1))
        heights[half::step, ::step] = mean(centre + np.roll(centre, 1, 1) + corner + np.roll(corner, -1, 0))
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return np.asarray(heights / heights.max())


def fog(image: Pixels, severity: int, random: Generator) -> Pixels:
    strength, decay = [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)][severity - 1]
    x = image / 255
    top = x.max()
    return cut((x + strength * fractal(random, 32, decay)[..., None]) * top / (top + strength))


def to_hsv(x: Floats) -> Floats:
    value, spread = x.max(-1), np.ptp(x, -1)
    r, g, b = np.moveaxis(x, -1, 0)
    safe = np.where(spread > 0, spread, 1)
    hue = np.select([value == r, value == g], [(g - b) / safe, 2 + (b - r) / safe], 4 + (r - g) / safe) / 6 % 1
    saturation = np.where(value > 0, spread / np.where(value > 0, value, 1), 0)
    return np.stack([np.where(spread > 0, hue, 0), saturation, value], -1)


def from_hsv(hsv: Floats) -> Floats:
    hue, saturation, value = np.moveaxis(hsv, -1, 0)
    sector = np.floor(hue * 6)
    part = hue * 6 - sector
    p, q, t = value * (1 - saturation), value * (1 - part * saturation), value * (1 - (1 - part) * saturation)
    orders = [(value, t, p), (q, value, p), (p, value, t), (p, q, value), (t, p, value), (value, p, q)]
    return np.stack([np.select([sector % 6 == i for i in range(6)], [o[c] for o in orders]) for c in range(3)], -1)


def brightness(image: Pixels, severity: int, random: Generator) -> Pixels:
    hsv = to_hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + [0.05, 0.1, 0.15, 0.2, 0.3][severity - 1], 0, 1)
    return cut(from_hsv(hsv))


def saturate(image: Pixels, severity: int, random: Generator) -> Pixels:
    scale, shift = [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)][severity - 1]
    hsv = to_hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * scale + shift, 0, 1)
    return cut(from_hsv(hsv))


def contrast(image: Pixels, severity: int, random: Generator) -> Pixels:
    x = image / 255
    mean = x.mean((0, 1))
    return cut((x - mean) * [0.75, 0.5, 0.4, 0.3, 0.15][severity - 1] + mean)


def elastic_transform(image: Pixels, severity: int, random: Generator) -> Pixels:
    alpha, sigma, jitter = 32 * np.array(
        [(0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)][severity - 1]
    )
    points = np.array([[26.0, 26], [6, 26], [6, 6]])
    moved = points + jitter * (2 * random.random(points.shape) - 1)
    back = np.linalg.solve(np.c_[moved, np.ones(3)], points).T
    x = image / 255
    warp = [ndimage.affine_transform(x[..., c], back[:, :2], back[:, 2], order=1, mode="mirror") for c in range(3)]
    noise = 2 * random.random((2, 32, 32)) - 1
    field = [alpha * smooth(layer, sigma, mode="reflect", truncate=3) if sigma else 0 * layer for layer in noise]
    places = np.mgrid[:32, :32] + np.stack(field)
    return cut(np.stack([ndimage.map_coordinates(layer, places, order=1, mode="reflect") for layer in warp], -1))


def pixelate(image: Pixels, severity: int, random: Generator) -> Pixels:
    small = int(32 * [0.95, 0.9, 0.85, 0.75, 0.65][severity - 1])
    box = Image.Resampling.BOX
    return np.asarray(Image.fromarray(image).resize((small, small), box).resize((32, 32), box))


def jpeg_compression(image: Pixels, severity: int, random: Generator) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=[80, 65, 58, 50, 40][severity - 1])
    return np.asarray(Image.open(file))


def canny(layer: Floats) -> NDArray[np.bool_]:
    """OpenCV's edges of whole grey levels: thresholds 50 and 150 on |∂x| + |∂y|."""
    dx, dy = (ndimage.sobel(layer, axis, mode="nearest") for axis in (1, 0))
    size = np.pad(abs(dx) + abs(dy), 1)
    ridge = np.zeros(layer.shape, bool)
    for y, x in np.argwhere(size[1:-1, 1:-1] > 50):
        slope = math.degrees(math.atan2(abs(dy[y, x]), abs(dx[y, x])))
        here, around = size[y + 1, x + 1], size[y : y + 3, x : x + 3]
        if slope < 22.5:
            ridge[y, x] = here > around[1, 0] and here >= around[1, 2]
        elif slope > 67.5:
            ridge[y, x] = here > around[0, 1] and here >= around[2, 1]
        else:
            side = -1 if (dx[y, x] < 0) != (dy[y, x] < 0) else 1
            ridge[y, x] = here > around[0, 1 - side] and here > around[2, 1 + side]
    parts, _ = ndimage.label(ridge, np.ones((3, 3)))
    strong = np.unique(parts[ridge & (size[1:-1, 1:-1] > 150)])
    return np.isin(parts, strong) & ridge


def equalise(levels: NDArray[np.int64]) -> NDArray[np.int64]:
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = levels.min()
    if counts[lowest] == levels.size:
        return levels
    table = np.round((counts.cumsum() - counts[lowest]) * 255 / (levels.size - counts[lowest])).astype(int)
    return np.asarray(table[levels])


def spatter(image: Pixels, severity: int, random: Generator) -> Pixels:
    mean, std, sigma, threshold, strength, mud = [
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ][severity - 1]
    x = image / 255
    layer = smooth(mean + std * random.standard_normal((32, 32)), sigma)
    layer[layer < threshold] = 0
    if mud:
        mask = smooth((layer > threshold).astype(float), strength)[..., None]
        mask[mask < 0.8] = 0
        return cut(x * (1 - mask) + mask * np.array([63, 42, 20]) / 255)
    drops = np.floor(np.clip(layer * 255, 0, 255))
    edges = canny(drops)
    distance = ndimage.distance_transform_edt(~edges) if edges.any() else np.full((32, 32), 20.0)
    levels = (ndimage.uniform_filter(np.minimum(distance, 20), 3, mode="mirror") + 1e-6).astype(int)
    light = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    slopes = np.clip(ndimage.correlate(equalise(levels), light, mode="mirror"), 0, 255)
    lit = drops * np.floor(ndimage.uniform_filter(slopes.astype(float), 3, mode="mirror") + 0.5)
    lit = lit / max(lit.max(), 1) * strength
    return cut(x + lit[..., None] * np.array([175, 238, 238]) / 255)


PLAIN: dict[str, Callable[[Pixels, int, Generator], Pixels]] = {name: globals()[name] for name in (*COMMON, *EXTRA)}
CERTAIN = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
)
RANDOM = tuple(name for name in PLAIN if name not in CERTAIN)


def pictures(count: int) -> Pixels:
    """(count, 32, 32, 3): shading, an ellipse and stripes of several widths, the same on every machine."""
    y, x = np.mgrid[:32, :32] / 32
    result = []
    for n in range(count):
        a, b, c = (0.5 + 0.5 * math.sin(k * (n + 1)) for k in (1.3, 2.1, 3.7))
        inside = ((x - 0.3 - 0.4 * a) / 0.3) ** 2 + ((y - 0.3 - 0.4 * b) / 0.25) ** 2 < 1
        ground = 0.2 + 0.5 * c + 0.3 * (a - 0.5) * x + 0.3 * (b - 0.5) * y
        stripes = 0.12 * np.sin(2 * np.pi * ((2 + 6 * a) * x + (1 + 5 * b) * y)) + 0.04 * np.sin(70 * x * c + 60 * y)
        tints = [0.1 * math.sin(5 * (n + 1) + k) for k in (0, 2, 4)]
        inner = [0.5 + 0.4 * math.sin(7 * (n + 1) + k) for k in (0, 1, 3)]
        result.append(
            np.stack([np.where(inside, p, ground + t) + stripes for p, t in zip(inner, tints, strict=True)], -1)
        )
    return np.stack([cut(picture) for picture in result])


def ours(images: Pixels, name: str, severity: int, first_seed: int = 0) -> Pixels:
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
    seeds = torch.arange(first_seed, first_seed + len(images))
    return CORRUPTIONS[name](tensor, severity, seeds).permute(0, 2, 3, 1).numpy()


def bands(change: NDArray[Any]) -> Floats:
    """Power of (…, 32, 32, 3) in four rings of frequency, without the mean."""
    power = (abs(np.fft.fft2(change.mean(-1))) ** 2).reshape(-1, 32, 32).mean(0)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32)))
    edges = [0.0, 0.08, 0.2, 0.35, 0.75]
    return np.array([power[(low < frequency) & (frequency <= high)].mean() for low, high in pairwise(edges)])


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", CERTAIN)
def test_what_is_certain_is_equal_to_a_grey_level(name: str, severity: int) -> None:
    images = pictures(24)
    plain = np.stack([PLAIN[name](image, severity, default_rng(0)) for image in images]).astype(int)
    difference = abs(ours(images, name, severity) - plain)
    assert difference.max() <= (0 if name in ("pixelate", "jpeg_compression") else 1)
    assert (difference > 0).mean() < 0.1  # where float64 is a hair below a whole number


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_changes_images_as_much_and_at_the_same_frequencies(name: str, severity: int) -> None:
    images = pictures(48)
    random = default_rng(severity)
    rounds = 1 if name in ("glass_blur", "spatter") else 3  # their plain reading takes 10 ms an image
    plain = np.concatenate([[PLAIN[name](image, severity, random) for image in images] for _ in range(rounds)])
    batched = np.concatenate([ours(images, name, severity, 1000 * k) for k in range(4)])
    clean = images.astype(float)
    change = plain.reshape(-1, *images.shape) - clean
    other = batched.reshape(-1, *images.shape) - clean
    assert other.mean() == pytest.approx(change.mean(), abs=0.1 * change.std())
    assert other.std() == pytest.approx(change.std(), rel=0.06)
    np.testing.assert_allclose(bands(batched), bands(plain), rtol=0.25)
    np.testing.assert_allclose(bands(other), bands(change), rtol=0.25)


class Tape:
    """One image's random numbers of the room, for a plain reading to draw."""

    def __init__(self, name: str, seed: int) -> None:
        self.draws = Draws(np.array([seed]), CORRUPTIONS[name].stream)
        self.integers = self.draws.generators[0].integers
        self.poisson = self.draws.generators[0].poisson

    def standard_normal(self, shape: tuple[int, ...]) -> Floats:
        return self.draws.normals(*shape)[0].double().numpy()

    def random(self, shape: tuple[int, ...] = ()) -> Floats:
        return self.draws.uniforms(*shape)[0].double().numpy()


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "glass_blur"])  # its steps: test_corruptions_parts
def test_with_the_same_random_numbers_the_image_is_the_same(name: str) -> None:
    images = pictures(8)
    for severity in SEVERITIES:
        tapes: Any = [Tape(name, 50 + n) for n in range(8)]
        plain = [PLAIN[name](image, severity, tape) for image, tape in zip(images, tapes, strict=True)]
        difference = abs(np.stack(plain).astype(int) - ours(images, name, severity, 50))
        assert (difference <= 1).mean() > 0.997, severity  # float32 may fall on the other side of a threshold
        assert (difference == 0).mean() > 0.99, severity


@pytest.mark.parametrize("angle", [-135.0, -90.0, -44.5, -12.3, 0.0, 30.0, 45.0])
@pytest.mark.parametrize(("radius", "sigma"), [(6, 1.0), (8, 2.0), (9, 2.5), (14, 12.0)])
def test_motion_along_a_given_angle(radius: int, sigma: float, angle: float) -> None:
    image = pictures(1)[0]
    plain = smear(image.astype(float), radius, sigma, angle).astype(int)
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
    moved = motion(tensor, radius, sigma, torch.tensor([angle], dtype=torch.float64), 1.0)
    assert abs(np.floor(moved[0].permute(1, 2, 0).numpy() + 1e-3) - plain).max() <= 1
