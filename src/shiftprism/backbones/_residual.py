"""Residual networks whose blocks end with a ReLU: those of He et al. for CIFAR, ResNet-18, and a small one for CPUs."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from shiftprism._checks import choice, wrong

SLOPE = 0.01
"""The slope of DDU's leaky ReLUs for negative inputs."""


class CifarResNet(nn.Module):
    """ResNet-20, 32, 44, 56 or 110 for CIFAR: three stages of (depth − 2)/6 blocks with 16, 32 and 64 channels.

    Shortcuts have no parameters: where the shape changes, they take every second pixel and add channels of zeros, as
    many before the old ones as after them. Shapes: (N, channels, H, W) -> (N, 64), non-negative.
    Reference: He et al., "Deep Residual Learning for Image Recognition", 2016, section 4.2.

    >>> import torch
    >>> CifarResNet(depth=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, depth: int = 20, channels: int = 3) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise wrong("depth", "6 n + 2 with n of 1 or more", depth, "take 20, 32, 44, 56 or 110")
        blocks = (depth - 2) // 6
        self.out_features = 64
        self.conv1 = conv3x3(channels, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1, _padded_shortcut)
        self.layer2 = _stage(16, 32, blocks, 2, _padded_shortcut)
        self.layer3 = _stage(32, 64, blocks, 2, _padded_shortcut)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1(images)), inplace=True)
        features: Tensor = self.layer3(self.layer2(self.layer1(maps))).mean((2, 3))
        return features


class ResNet18(nn.Module):
    """ResNet-18 for small images: a 3 × 3 stem without pooling, then two blocks each of 64, 128, 256 and 512 channels.

    Shapes: (N, channels, H, W) -> (N, 512), non-negative. Reference: He et al., 2016.
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.out_features = 512
        self.conv1 = conv3x3(channels, 64)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, 2, 1, _convolution_shortcut)
        self.layer2 = _stage(64, 128, 2, 2, _convolution_shortcut)
        self.layer3 = _stage(128, 256, 2, 2, _convolution_shortcut)
        self.layer4 = _stage(256, 512, 2, 2, _convolution_shortcut)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1(images)), inplace=True)
        features: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(maps)))).mean((2, 3))
        return features


class SmallResNet(nn.Module):
    """A residual network that trains in minutes on two CPU cores: a stem, then one block of stride 2 for each width.

    `residual="ddu"` changes it as DDU does: shortcuts that average and add channels of zeros, leaky ReLUs (0.01).
    Shapes: (N, channels, H, W) -> (N, widths[-1]), non-negative unless the ReLUs are leaky.

    >>> import torch
    >>> SmallResNet(widths=(8, 16, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """

    def __init__(self, channels: int = 3, widths: Sequence[int] = (32, 64, 128, 256), residual: str = "conv") -> None:
        super().__init__()
        choice("residual", residual, ("conv", "ddu"))
        if len(widths) < 2 or min(widths) < 1:
            raise wrong("widths", "two or more positive numbers", widths, "take (32, 64, 128, 256)")
        self.out_features = widths[-1]
        self.conv1 = conv3x3(channels, widths[0])
        self.bn1 = nn.BatchNorm2d(widths[0])
        shortcut, self.slope = (_pooled_shortcut, SLOPE) if residual == "ddu" else (_convolution_shortcut, 0.0)
        self.blocks = nn.Sequential(*(_Block(a, b, 2, shortcut(a, b, 2), self.slope) for a, b in pairwise(widths)))
        he_init(self, self.slope)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(rectify(self.bn1(self.conv1(images)), self.slope)).mean((2, 3))
        return features


class _Block(nn.Module):
    """x ↦ relu(S(x) + bn(conv(relu(bn(conv(x)))))), with leaky ReLUs of `slope`."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: nn.Module, slope: float = 0.0) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut, self.slope = shortcut, slope

    def forward(self, images: Tensor) -> Tensor:
        inner = rectify(self.bn1(self.conv1(images)), self.slope)
        return rectify(self.bn2(self.conv2(inner)) + self.shortcut(images), self.slope)


class _PaddedShortcut(nn.Module):
    """Every stride-th pixel; half of the new channels, all zero, come before the old ones and half after them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.each_side, self.stride = (outputs - inputs) // 2, stride

    def forward(self, images: Tensor) -> Tensor:
        return F.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.each_side, self.each_side))


class PooledShortcut(nn.Module):
    """The average of each stride × stride window, with `extra` channels of zeros after the old ones."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, images: Tensor) -> Tensor:
        if self.stride > 1:  # ceil_mode: at odd sizes the parallel convolution has a last, partial window too
            images = F.avg_pool2d(images, self.stride, ceil_mode=True)
        return F.pad(images, (0, 0, 0, 0, 0, self.extra))


def rectify(maps: Tensor, slope: float) -> Tensor:
    """ReLU in place, or a leaky one where `slope` is not 0."""
    return F.leaky_relu(maps, slope, inplace=True) if slope else F.relu(maps, inplace=True)


def _pooled_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    return PooledShortcut(outputs - inputs, stride)


def _padded_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Identity() if inputs == outputs and stride == 1 else _PaddedShortcut(inputs, outputs, stride)


def _convolution_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _stage(
    inputs: int, outputs: int, blocks: int, stride: int, shortcut: Callable[[int, int, int], nn.Module]
) -> nn.Sequential:
    first = _Block(inputs, outputs, stride, shortcut(inputs, outputs, stride))
    return nn.Sequential(first, *(_Block(outputs, outputs, 1, nn.Identity()) for _ in range(blocks - 1)))


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3 × 3 convolution that keeps the size (or halves it), without bias: a BatchNorm follows or precedes."""
    if inputs < 1:
        raise wrong("channels", "1 or more", inputs, "take 3 for colour images, 1 for grey ones")
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def he_init(module: nn.Module, slope: float = 0.0) -> None:
    """Draw every convolution's weights from N(0, 2/((1 + slope²)·fan out)), so that gradients keep their size.

    Reference: He et al., "Delving Deep into Rectifiers", 2015.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, slope, mode="fan_out")
