"""How an image of any size and colour becomes one that a model takes: a rule that the model carries."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftprism._checks import wrong

_LARGEST_SIDE = 1 << 16
_MOST_PIXELS = 1 << 26
"""A resized image of more pixels than this is refused: a strip of 1 × 10,000 pixels would become one of 655 million."""
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Preprocessing:
    """The size, resize rule and channels of a model's images.

    An image that is not of `size` has its shortest side scaled to `resize` pixels (a number), or both sides to `resize`
    (height, width); then `size` is cropped about the centre. All of it in floats, bilinear with antialiasing, without
    rounding. An image that has `size` already is taken as it is. Without `resize`, another size is an error.

    >>> rule = Preprocessing(size=(4, 4), resize=6, channels=3)
    >>> rule.apply(torch.zeros(2, 3, 12, 18, dtype=torch.uint8)).shape
    torch.Size([2, 3, 4, 4])
    """

    size: tuple[int, int] | None = None
    """Height and width of what the backbone sees; None takes any size."""
    resize: int | tuple[int, int] | None = None
    """The length of the shortest side, or height and width, before the crop; None leaves images as they are."""
    channels: int | None = None
    """1 for grey, 3 for RGB; None takes any number."""

    def __post_init__(self) -> None:
        if fault := find_fault(self.size, self.resize, self.channels):
            got = f"size={self.size!r:.40}, resize={self.resize!r:.40}, channels={self.channels!r:.40}"
            raise wrong("preprocessing", "a rule that can be followed", got, fault)

    def apply(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) of the model's size: those given, or floats that were resized and cropped.

        uint8 is divided by 255 first. The number of channels stays.
        """
        shape = (images.shape[2], images.shape[3])
        if self.resize is None or self.size is None or shape == self.size:
            return images
        target = self._resized(*shape)
        if target != shape:
            images = F.interpolate(to_floats(images), target, mode="bilinear", antialias=True)
        # the offsets of torchvision and timm, whose models these are
        top, left = (round((have - want) / 2) for have, want in zip(target, self.size, strict=True))
        return to_floats(images[:, :, top : top + self.size[0], left : left + self.size[1]])

    def match_channels(self, image: Tensor) -> Tensor:
        """A float image (C, H, W) in the model's channels: grey repeated, or Y = .299 R + .587 G + .114 B."""
        if self.channels in (None, image.shape[0]) or {self.channels, image.shape[0]} != {1, 3}:
            return image  # a number of channels that is neither grey nor RGB is refused where the image is normalised
        if self.channels == 3:
            return image.expand(3, -1, -1)
        weights = torch.tensor(_LUMA, dtype=image.dtype, device=image.device)
        return (image * weights[:, None, None]).sum(0, keepdim=True)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Height and width before the crop."""
        if not isinstance(self.resize, int):
            assert self.resize is not None
            return self.resize
        # the longer side is cut down to a whole number, as torchvision does
        if height <= width:
            target = self.resize, self.resize * width // height
        else:
            target = self.resize * height // width, self.resize
        if target[0] * target[1] > _MOST_PIXELS:
            got = f"{height} × {width} pixels, which becomes {target[0]} × {target[1]}"
            raise wrong("images", "less long and narrow", got, "crop it first")
        return target


def to_floats(images: Tensor) -> Tensor:
    """Images in [0, 1], in at least float32; uint8 is divided by 255."""
    floats = images.to(torch.promote_types(images.dtype, torch.float32))
    return floats / 255 if images.dtype == torch.uint8 else floats


def find_fault(size: Any, resize: Any, channels: Any) -> str:
    """What is wrong about these three, or ""."""
    if size is not None and not _is_pair(size):
        return "size is height and width, or None"
    if resize is not None and not _is_pair(resize) and not _is_side(resize):
        return "resize is the length of the shortest side, or height and width, or None"
    if resize is not None and size is None:
        return "give the size that is cropped after resizing"
    if resize is not None and size is not None:
        sides = resize if isinstance(resize, tuple) else (resize, resize)
        if sides[0] < size[0] or sides[1] < size[1]:
            return "resize to at least the size that is cropped"
    if channels is not None and not (_is_side(channels) and channels <= 64):
        return "channels is 1 for grey, 3 for RGB, another number, or None"
    return ""


def _is_pair(sides: Any) -> bool:
    return isinstance(sides, tuple) and len(sides) == 2 and all(map(_is_side, sides))


def _is_side(side: Any) -> bool:
    # not isinstance: True is an int to Python, but no length
    return type(side) is int and 1 <= side <= _LARGEST_SIDE
