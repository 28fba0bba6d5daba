"""Pictures for PixMix to mix in, made here: fractals of random iterated function systems, and dead leaves."""

import math
from functools import lru_cache

import torch
from torch import Tensor

_SEED = 20240131  # of the pictures, which are one data set for all runs: a run's own seed draws from it
_PICTURES = (128, 3000)  # the fewest and the most
_PIXELS = 2**23  # in all pictures, as far as the limits above allow
_MARGIN = 1.5  # a picture is so many times as high and wide as the images, so that a crop may lie in many places
_PARTICLES, _BURN_IN = 128, 20  # of a fractal: the fewest points that move at once, and their steps before it is drawn
_DENSITY = 4  # points drawn for each pixel
_LEAVES = 96


@lru_cache(maxsize=4)
def make_mixing_pictures(height: int, width: int, channels: int, count: int | None = None) -> Tensor:
    """(count, channels, 1.5 height, 1.5 width) uint8 pictures: fractals first, then as many dead leaves.

    Equal arguments give equal pictures. By default there are 3,000, or fewer where images are larger than 34 × 34. They
    are made on the CPU in seconds and kept in memory.

    >>> make_mixing_pictures(8, 8, 1, count=4).shape
    torch.Size([4, 1, 12, 12])
    """
    size = math.ceil(_MARGIN * height), math.ceil(_MARGIN * width)
    count = count or min(_PICTURES[1], max(_PICTURES[0], _PIXELS // (size[0] * size[1])))
    generator = torch.Generator().manual_seed(_SEED)
    parts = []
    for make, number in ((_make_fractals, (count + 1) // 2), (_make_leaves, count // 2)):
        # some at a time, so that no intermediate result is much larger than the pictures
        step = max(1, 2**20 // (size[0] * size[1]))
        parts += [make(min(step, number - start), channels, size, generator) for start in range(0, number, step)]
    return torch.cat(parts)


def _make_fractals(count: int, channels: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Attractors of systems of two to five affine maps, coloured by the maps that led to a point, by the chaos game.

    Contractions are scaled as in Anderson and Farrell, "Improving Fractal Pre-training", 2022: systems of M maps whose
    singular values have Σ (σ₁ + 2 σ₂) between (5 + M)/2 and (6 + M)/2 are neither dust nor blobs.
    """
    matrices, offsets, odds = _draw_systems(count, generator)
    colours = torch.rand(count, odds.shape[1], channels, generator=generator)
    pixels = size[0] * size[1]
    particles = max(_PARTICLES, pixels // 20)
    places = torch.zeros(count, particles, 2)
    shades = torch.full((count, particles, channels), 0.5)
    sums = torch.zeros(count, channels + 1, pixels)
    system = torch.arange(count)[:, None]
    for step in range(_BURN_IN + math.ceil(_DENSITY * pixels / particles)):
        which = torch.multinomial(odds, particles, replacement=True, generator=generator)
        (a, b), (c, d) = (row.unbind(2) for row in matrices[system, which].unbind(2))
        x, y = places.unbind(2)
        places = torch.stack([a * x + b * y, c * x + d * y], 2) + offsets[system, which]
        shades = (shades + colours[system, which]) / 2
        if step == _BURN_IN:  # the frame: 1.7 standard deviations about the mean
            mean, reach = places.mean(1, keepdim=True), 1.7 * places.std(1, keepdim=True) + 1e-3
        if step >= _BURN_IN:
            cell = ((places - mean) / reach * 0.5 + 0.5) * torch.tensor(size)
            row, column = cell.long().unbind(2)
            inside = (cell >= 0).all(2) & (row < size[0]) & (column < size[1])
            index = torch.where(inside, row * size[1] + column, 0)
            values = torch.cat([shades, torch.ones(count, particles, 1)], 2) * inside[..., None]
            sums.scatter_add_(2, index[:, None].expand(-1, channels + 1, -1), values.transpose(1, 2))
    hits = sums[:, -1:]
    cover = hits.log1p() / hits.log1p().amax(2, keepdim=True).clamp_min(1e-3)
    ground = torch.rand(count, channels, 1, generator=generator) * (torch.rand(count, 1, 1, generator=generator) < 0.5)
    picture = ground + cover.sqrt() * (sums[:, :-1] / hits.clamp_min(1) - ground)
    return (picture * 255).round().to(torch.uint8).reshape(count, channels, *size)


def _draw_systems(count: int, generator: torch.Generator, most: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices (count, most, 2, 2), offsets (count, most, 2) and probabilities (count, most) of affine maps.

    A system of fewer maps has probabilities of 0.
    """

    def draw(*shape: int) -> Tensor:
        return torch.rand(count, most, *shape, generator=generator)

    maps = torch.randint(2, most + 1, (count, 1), generator=generator)
    used = torch.arange(most) < maps
    large = 0.2 + 0.8 * draw()
    small = large * draw()
    total = ((large + 2 * small) * used).sum(1, keepdim=True)
    target = (5.0 + maps + torch.rand(count, 1, generator=generator)) / 2
    large, small = ((values * target / total).clamp_max(0.95) for values in (large, small))
    first, second = _rotations(2 * math.pi * draw()), _rotations(2 * math.pi * draw())
    matrices = first @ torch.diag_embed(torch.stack([large, small], 2)) @ second
    odds = (large * small).clamp_min(0.02) * used
    return matrices, 2 * draw(2) - 1, odds


def _rotations(angles: Tensor) -> Tensor:
    rows = [torch.stack([angles.cos(), -angles.sin()], -1), torch.stack([angles.sin(), angles.cos()], -1)]
    return torch.stack(rows, -2)


def _make_leaves(count: int, channels: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Ellipses and rectangles of many sizes that lie over each other, each of one colour that fades along a line."""

    def draw(*shape: int) -> Tensor:
        return torch.rand(count, *shape, 1, 1, generator=generator)

    rows, columns = torch.arange(size[0])[:, None], torch.arange(size[1])
    palette, colourfulness = draw(channels), draw(1)  # of a picture, since few are all colours at once
    picture = palette.expand(-1, -1, *size)
    finest = 4 + 16 * draw()
    for number in range(_LEAVES):
        # the largest lie lowest, or they would hide the others
        radius = min(size) / (2 + finest * (number + draw()) / _LEAVES)
        turn = math.pi * draw()
        down, right = rows - size[0] * draw(), columns - size[1] * draw()
        along = (down * turn.sin() + right * turn.cos()) / radius
        beside = (right * turn.sin() - down * turn.cos()) / (radius * (0.3 + 0.7 * draw()))
        inside = along.square() + beside.square() < 1 if number % 2 else torch.maximum(along.abs(), beside.abs()) < 0.9
        colour = palette + colourfulness * (draw(channels) - palette) + (draw(1) - 0.5) * (1 + 0.5 * along[:, None])
        picture = torch.where(inside[:, None], colour, picture)
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8)
