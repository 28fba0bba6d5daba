"""Real images where none are given: parts of two photographs that come with scikit-learn."""

from collections.abc import Sequence
from typing import NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor

_WINDOWS = (1.0, 0.7, 0.5, 0.35)
"""The parts that are cut, as shares of the shortest side: a whole scene, then details of it."""
_PLACES = 4
_LUMA = (0.299, 0.587, 0.114)


class Shape(NamedTuple):
    """The images that a network sees."""

    channels: int
    size: tuple[int, int]
    resizes: bool
    """Whether a rule of the model brings images of other sizes to this one."""


class InChannels(Sequence[Tensor]):
    """Images of files in the channels of the network, as `runtime` prepares them: grey repeated, RGB as its light.

    >>> InChannels([torch.full((1, 2, 2), 7, dtype=torch.uint8)], 3)[0].shape
    torch.Size([3, 2, 2])
    """

    def __init__(self, images: Sequence[Tensor], channels: int) -> None:
        self.images, self.channels = images, channels

    def __len__(self) -> int:
        return len(self.images)

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> list[Tensor]: ...
    def __getitem__(self, place: int | slice) -> Tensor | list[Tensor]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        image: Tensor = self.images[place]
        if len(image) == 1 and self.channels == 3:
            return image.expand(3, -1, -1)
        if len(image) == 3 and self.channels == 1:
            light: Tensor = torch.tensordot(torch.tensor(_LUMA), image.float(), 1)
            return light.round().to(torch.uint8)[None]
        return image


def cut_photographs(shape: Shape) -> list[Tensor]:
    """uint8 (C, H, W): 64 windows of two photographs, of the network's size or, where the model resizes, of their own.

    >>> len(cut_photographs(Shape(3, (32, 32), False))), cut_photographs(Shape(1, (28, 28), False))[0].shape
    (64, torch.Size([1, 28, 28]))
    """
    from sklearn.datasets import load_sample_images

    windows: list[Tensor] = []
    for photograph in load_sample_images().images:
        image = torch.from_numpy(photograph.copy()).permute(2, 0, 1)
        short = min(image.shape[1:])
        for share in _WINDOWS:
            side = int(share * short)
            tops, lefts = (torch.linspace(0, full - side, _PLACES).long().tolist() for full in image.shape[1:])
            pairs = zip(tops * 2, [*lefts, *lefts[::-1]], strict=True)
            windows += [image[:, top : top + side, left : left + side] for top, left in pairs]
    return [_fit(window, shape) for window in windows]


def _fit(window: Tensor, shape: Shape) -> Tensor:
    channels = window if shape.channels == 3 else window.float().mean(0, keepdim=True).round().to(torch.uint8)
    channels = channels if shape.channels in (1, 3) else channels.expand(shape.channels, -1, -1)
    if shape.resizes:
        return channels.contiguous()
    resized = F.interpolate(channels[None].float(), shape.size, mode="bilinear", antialias=True)
    return resized[0].round().clamp(0, 255).to(torch.uint8)
