"""Style: what an image looks like whatever it shows, as numbers of its pixels and of a few layers on its way.

`Classifier.outputs` puts them into `Outputs.style`. They are constants to autograd.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong

__all__ = ["DEPTHS", "GROUPS", "VERSION", "PixelStatistics", "attach_taps", "channel_statistics"]
__all__ += ["collect_layers", "find_layers"]

VERSION = "style-3"
"""Changes with any number below; a cache of Outputs with another version is computed again."""
DEPTHS = (0.15, 0.4, 0.65, 0.9)
"""How far into the network the layers are, as a share of its normalisation layers."""
GROUPS = 24
"""Channels of a layer are averaged in at most this many groups."""

_SIDE, _TILES = 32, 4
"""Of an image larger than 32 pixels, at most 4 × 4 tiles of that side are read: the cost would grow with its area."""
_PLACES = 6
"""Of a layer's maps at most this many rows and columns are read: more cost more, and a mean hardly changes."""
_LEVEL = 1 / 255
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_LAGS = (1, 3)
_SMALLEST = (1, 2, 4)
"""Ranks of the smallest steps between lines that are read."""


class PixelStatistics(nn.Module):
    """Numbers of images (N, C, H, W), uint8 or in [0, 1]: (N, P) with P = 315 for colour of 16 pixels or more.

    Those of one image depend on no other. They are averages over blocks, tiles or pixels, so P is the same for every
    larger size; what does not fit is left out: 8 × 8 images have no shifted grid, grey ones no chroma.

    >>> statistics = PixelStatistics()
    >>> statistics(torch.rand(2, 3, 32, 32)).shape, statistics(torch.rand(2, 1, 8, 8)).shape
    (torch.Size([2, 315]), torch.Size([2, 92]))
    >>> statistics.groups(torch.full((1, 3, 32, 32), 0.5))["means"]
    tensor([[0.5000, 0.5000, 0.5000]])
    """

    waves: Tensor
    bands: Tensor

    def __init__(self) -> None:
        super().__init__()
        # no file holds them: they are the same for every model
        self.register_buffer("waves", _dct_waves(torch.zeros(0)), persistent=False)
        self.register_buffer("bands", _band_weights(torch.zeros(0)), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> "PixelStatistics":
        # `.half()` would round the waves: they are made again, where the model is, in float32 or wider
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        like = self.waves.new_empty(0, dtype=torch.promote_types(self.waves.dtype, torch.float32))
        self.waves, self.bands = _dct_waves(like), _band_weights(like)
        return self

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat(tuple(self.groups(images).values()), 1)

    def groups(self, images: Tensor) -> dict[str, Tensor]:
        """The same numbers by name, (N, p) each, in their order; docs/style.md has the formulas."""
        if images.ndim != 4 or not (images.dtype == torch.uint8 or images.is_floating_point()):
            got = f"{images.dtype} of shape {tuple(images.shape)}"
            advice = "pass images before normalisation"
            raise wrong("images", "uint8, or floats in [0, 1], of shape (N, C, H, W)", got, advice)
        with _without_autocast(images.device.type):
            tiles = _cut_tiles(images.detach()).to(self.waves.dtype)
            tiles = tiles / 255 if images.dtype == torch.uint8 else tiles
            colour = tiles.shape[2] == 3
            light = _lightness(tiles) if colour else tiles.mean(2)
            found = self._block_energies(tiles, light) if min(light.shape[2:]) >= 8 else {}
            found |= _moments(tiles if colour else light[:, :, None])
            if min(light.shape[2:]) >= 3:
                found["laplacian"] = _laplacian(light)
            found |= _tones(tiles, light) if colour else _grey_tones(light)
            if min(light.shape[2:]) >= 2:
                found |= _steps(light)
        return found

    def _block_energies(self, tiles: Tensor, light: Tensor) -> dict[str, Tensor]:
        """ln of the mean squared DCT coefficients, and quantiles over blocks of the energy in three bands."""
        blocks = _cut_blocks(light)
        energies = self._energies(blocks)
        found = {"light dct": _mean_energies(energies)}
        if tiles.shape[2] == 3:
            # chroma from every second block: it costs as much as light, and says less
            red, blue, some = _cut_blocks(tiles[:, :, 0], 2), _cut_blocks(tiles[:, :, 2], 2), blocks[..., ::2, :]
            chroma = self._energies(torch.stack([(blue - some).mul_(0.564), (red - some).mul_(0.713)], 1))
            found["blue dct"], found["red dct"] = (_mean_energies(plane) for plane in chroma.unbind(1))
        if min(light.shape[2:]) >= 16:
            found["shifted dct"] = _mean_energies(self._energies(_cut_blocks(light[..., 4:-4, 4:-4])))
            # noise lifts the calmest block, and blur lowers the liveliest, whatever else is in the image
            bands = _log(energies.flatten(1, 3) @ self.bands).transpose(1, 2)
            found["bands"] = _quantiles(bands, (0.0, 0.25, 0.5, 0.75, 1.0)).flatten(1)
        return found

    def _energies(self, blocks: Tensor) -> Tensor:
        """The squared coefficients of the orthonormal DCT of blocks: (…, 64) -> (…, 64)."""
        # a product, not a convolution, which on CPUs takes four times as long for so few inputs
        coefficients: Tensor = blocks @ self.waves
        return coefficients.square_()


def _cut_blocks(planes: Tensor, step: int = 1) -> Tensor:
    """8 × 8 blocks of planes (N, T, H, W), of every `step`-th column of blocks: (N, T, rows, columns, 64)."""
    down, across = planes.shape[-2] // 8, planes.shape[-1] // 8
    blocks: Tensor = planes[..., : 8 * down, : 8 * across].unflatten(-1, (across, 8)).unflatten(-3, (down, 8))
    return blocks[..., ::step, :].transpose(-2, -3).flatten(-2)


def _dct_waves(like: Tensor) -> Tensor:
    """(64, 64): the orthonormal DCT-II of a block as a matrix; column 8 u + v gives coefficient (u, v)."""
    place = torch.arange(8, dtype=torch.float64)
    waves = torch.cos(math.pi / 8 * (place + 0.5) * place[:, None]) / 2
    waves[0] /= math.sqrt(2)
    return torch.einsum("ui,vj->ijuv", waves, waves).reshape(64, 64).to(like)


def _band_weights(like: Tensor) -> Tensor:
    """(64, 3): which coefficients are low, middle and high, by u + v; the mean brightness is in none."""
    order = (torch.arange(8)[:, None] + torch.arange(8)).flatten()
    bands = ((order > 0) & (order <= 3), (order > 3) & (order <= 7), order > 7)
    return torch.stack(bands, 1).to(like)


def _cut_tiles(images: Tensor) -> Tensor:
    """(N, T, C, h, w): the image itself up to 32 pixels, otherwise tiles spread evenly, on the grid of 8 × 8 blocks."""
    height, width = images.shape[2:]
    rows, columns = _starts(height), _starts(width)
    if len(rows) == len(columns) == 1:
        return images[:, None, :, :_SIDE, :_SIDE]
    tiles = [images[:, :, row : row + _SIDE, column : column + _SIDE] for row in rows for column in columns]
    return torch.stack(tiles, 1)


def _starts(size: int) -> list[int]:
    blocks, most = size // 8, _SIDE // 8
    count = max(1, min(_TILES, math.ceil(blocks / most)))
    return [8 * round(number * (blocks - most) / (count - 1)) for number in range(count)] if count > 1 else [0]


def _lightness(tiles: Tensor) -> Tensor:
    """Y = .299 R + .587 G + .114 B."""
    return (0.299 * tiles[:, :, 0]).add_(tiles[:, :, 1], alpha=0.587).add_(tiles[:, :, 2], alpha=0.114)


def _log(values: Tensor) -> Tensor:
    return (values + 1e-6).log()


def _mean_energies(energies: Tensor) -> Tensor:
    """(N, tiles, rows, columns, 64) -> (N, 64)."""
    return _log(energies.mean((1, 2, 3)))


def _moments(tiles: Tensor) -> dict[str, Tensor]:
    """Mean and standard deviation of each channel."""
    means = tiles.mean((1, 3, 4))
    spread = (tiles - means[:, None, :, None, None]).square_().mean((1, 3, 4)).sqrt()
    return {"means": means, "deviations": spread}


def _thin(planes: Tensor, step: int) -> Tensor:
    """Every `step`-th pixel both ways, every 2 `step`-th of several tiles: more would cost more and say little else."""
    step = step if planes.shape[1] == 1 else 2 * step
    return planes[..., ::step, ::step]


def _quantiles(values: Tensor, shares: Sequence[float] = _QUANTILES) -> Tensor:
    """Order statistics along the last dimension; by sorting, which ONNX can express."""
    places = [round(share * (values.shape[-1] - 1)) for share in shares]
    return values.sort(-1).values.index_select(-1, torch.tensor(places, device=values.device))


def _laplacian(light: Tensor) -> Tensor:
    """The 4-neighbour Laplacian L of every second line: ln of quantiles of |L| and of its size, ln(1 + kurtosis)."""
    middle = light[:, :, 1:-1:2]
    values = light[:, :, :-2:2, 1:-1] + light[:, :, 2::2, 1:-1]
    values.add_(middle[..., :-2]).add_(middle[..., 2:]).sub_(middle[..., 1:-1], alpha=4)
    ranked = (_quantiles(_thin(values[:, :, ::2], 1)[..., ::4].abs().flatten(1), (0.1, 0.5, 0.9)) + 1e-3).log()
    squares = values.square_()
    size = squares.mean((1, 2, 3)).sqrt() + 1e-3
    tails = squares.square_().mean((1, 2, 3)) / size.square().square()
    return torch.cat([ranked, size.log()[:, None], torch.log1p(tails)[:, None]], 1)


def _tones(tiles: Tensor, light: Tensor) -> dict[str, Tensor]:
    """Quantiles of light, of the darkest and of the brightest channel; the saturation; what is clipped."""
    red, green, blue = _thin(tiles, 2).contiguous().unbind(2)
    dark, bright = red.minimum(green).minimum(blue), red.maximum(green).maximum(blue)
    planes = torch.stack([_thin(light, 4), dark[..., ::2, ::2], bright[..., ::2, ::2]], 1)
    quantiles = _quantiles(planes.flatten(2)).unbind(1)
    saturation = (bright - dark).div_(bright + _LEVEL)
    mean = saturation.mean((1, 2, 3))
    spread = (saturation - mean[:, None, None, None]).square_().mean((1, 2, 3)).sqrt()
    return {
        **dict(zip(("light", "darkest channel", "brightest channel"), quantiles, strict=True)),
        "saturation": torch.stack([mean, spread], 1),
        "clipped": _clipped(dark, bright),
    }


def _grey_tones(light: Tensor) -> dict[str, Tensor]:
    return {"light": _quantiles(_thin(light, 4).flatten(1)), "clipped": _clipped(light, light)}


def _clipped(dark: Tensor, bright: Tensor) -> Tensor:
    """The shares of pixels with a channel at 0, and with one at 255."""
    return torch.stack([_share_near_zero(dark), _share_near_zero(1 - bright)], 1)


def _share_near_zero(values: Tensor) -> Tensor:
    """The mean of 1 − |x| in grey levels, where that is positive: the share of zeros, of values in whole levels.

    A ramp and not a count: after a resize many values are near 0, and rounding would decide about each.
    """
    return 1 - (values.abs() * 255).clamp_max(1).mean((1, 2, 3))


def _steps(light: Tensor) -> dict[str, Tensor]:
    """Differences of neighbours: how many are 0, their sizes along four directions, and how unequal these are."""
    across, down = light[..., 1:] - light[..., :-1], light[..., 1:, :] - light[..., :-1, :]
    equal = [_share_near_zero(_thin(step, 2)) for step in (across, down)]
    profiles = [across.square_().mean(2), down.square_().mean(3)]
    means = torch.stack([profile.mean(2) for profile in profiles], 1)
    diagonals = []
    for lag in (lag for lag in _LAGS if lag < min(light.shape[2:])):
        # of every second line
        upper, lower = light[..., :-lag:2, :], light[..., lag::2, :]
        diagonals.append((lower[..., lag:] - upper[..., :-lag]).square_().mean((1, 2, 3)))
        diagonals.append((lower[..., :-lag] - upper[..., lag:]).square_().mean((1, 2, 3)))
    sizes = _log(torch.cat([means.mean(2), torch.stack(diagonals, 1)], 1))
    return {
        "repeats": torch.cat([torch.stack(equal, 1), *_repeated_lines(profiles)], 1),
        "steps": sizes,
        "directions": (sizes[:, 0::2] - sizes[:, 1::2]).abs(),
    }


def _repeated_lines(profiles: Sequence[Tensor]) -> list[Tensor]:
    """(N, 3): how small the smallest steps between lines are beside the steps before and after them, along either axis.

    Lines that repeat the one before them, as in a picture that was enlarged pixel by pixel, have a step of 0 between
    larger ones. Smooth lines have small steps, too, but next to small ones.
    """
    if min(profile.shape[2] for profile in profiles) < 2 + max(_SMALLEST):
        return []
    found = []
    for profile in profiles:
        around = (profile[..., :-2] + profile[..., 2:]) / 2
        ratios = (_log(profile[..., 1:-1]) - _log(around)).sort(-1).values
        found.append(ratios.index_select(-1, torch.tensor([rank - 1 for rank in _SMALLEST], device=ratios.device)))
    return [found[0].minimum(found[1]).mean(1)]


def _without_autocast(device: str) -> Any:
    # only where it is on: entering it would leave a mark in an exported graph
    on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else nullcontext()


def find_layers(backbone: nn.Module) -> tuple[str, ...]:
    """The names of the layers whose channels are read: at most four normalisation layers, spread over the depth.

    A network without normalisation has its convolutions read; one with neither, nothing. Depth is the order in which
    the network lists its modules.

    >>> from shiftprism.backbones import FastNet
    >>> find_layers(FastNet())
    ('blocks.0.bn1', 'blocks.1.bn1', 'blocks.1.bn2', 'blocks.2.bn2')
    """
    modules = list(backbone.named_modules())
    for kinds in (_NORMS, _CONVOLUTIONS):
        if names := [name for name, module in modules if isinstance(module, kinds)]:
            return tuple(dict.fromkeys(names[int(depth * len(names))] for depth in DEPTHS))
    return ()


_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_THREAD = threading.local()
"""Its `layers` is what the taps of this thread write to, or None where nobody asked."""


class _Tap:
    """A forward hook without state of its own: copies of a network, and several threads, do not get in its way."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        collected = getattr(_THREAD, "layers", None)
        # of a layer that is used twice, the first time
        if collected is not None and self.name not in collected and isinstance(output, Tensor) and output.ndim > 2:
            maps = output.movedim(-1, 1) if isinstance(module, nn.LayerNorm | nn.RMSNorm) else output
            steps = (slice(None, None, -(-size // _PLACES)) for size in maps.shape[2:])
            # a copy, as the next layer may write into these maps; what is computed from it, later and in one go, which
            # takes half the time
            collected[self.name] = maps.detach()[(slice(None), slice(None), *steps)].clone()


def attach_taps(backbone: nn.Module) -> tuple[str, ...]:
    """Let `collect_layers` see the layers that `find_layers` names; it costs nothing where nobody collects."""
    names = find_layers(backbone)
    for name in names:
        backbone.get_submodule(name).register_forward_hook(_Tap(name))
    return names


@contextmanager
def collect_layers() -> Iterator[dict[str, Tensor]]:
    """A table that networks with taps fill while they run in this thread: maps (N, C, …), at most 6 places each way."""
    collected: dict[str, Tensor] = {}
    before = getattr(_THREAD, "layers", None)
    _THREAD.layers = collected
    try:
        yield collected
    finally:
        _THREAD.layers = before


def channel_statistics(maps: Tensor) -> Tensor:
    """Mean and standard deviation over all places, averaged in groups of neighbouring channels: (N, C, …) -> (N, 2 G).

    >>> channel_statistics(torch.rand(2, 16, 8, 8)).shape, channel_statistics(torch.rand(2, 64, 8, 8)).shape
    (torch.Size([2, 32]), torch.Size([2, 44]))
    """
    maps = maps if maps.dtype.itemsize >= 4 else maps.float()
    places = tuple(range(2, maps.ndim))  # not flattened: that would copy maps whose channels come last
    means = maps.mean(places, keepdim=True)
    spread = (maps - means).square_().mean(places).sqrt()
    return _pool_channels(torch.stack([means.flatten(1), spread], 1)).flatten(1)


def _pool_channels(values: Tensor) -> Tensor:
    """Means of neighbouring channels, equally many in each group but for the last: (…, C) -> (…, G), G ≤ 24."""
    size = -(-values.shape[-1] // GROUPS)
    whole = values.shape[-1] // size * size
    pooled = values[..., :whole].unflatten(-1, (-1, size)).mean(-1)
    return pooled if whole == values.shape[-1] else torch.cat([pooled, values[..., whole:].mean(-1, keepdim=True)], -1)
