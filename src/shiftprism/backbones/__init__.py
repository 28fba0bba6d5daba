"""Images in, features out. A backbone is an `nn.Module` from normalised images (N, C, H, W) to (N, `out_features`).

`BACKBONES` maps names to callables whose arguments are plain JSON values, so that a saved model can be built again.

>>> import torch
>>> backbone = BACKBONES["resnet20"](channels=1)
>>> backbone(torch.zeros(2, 1, 28, 28)).shape, backbone.out_features
(torch.Size([2, 64]), 64)
"""

from collections.abc import Callable
from functools import partial

from torch import nn

from shiftprism.backbones._arrays import load_arrays
from shiftprism.backbones._fast import FastNet
from shiftprism.backbones._residual import CifarResNet, ResNet18, SmallResNet
from shiftprism.backbones._small import DigitsCNN, Projected
from shiftprism.backbones._spectral import spectral_norm
from shiftprism.backbones._wide import WideResNet

__all__ = [
    "BACKBONES",
    "CifarResNet",
    "DigitsCNN",
    "FastNet",
    "Projected",
    "ResNet18",
    "SmallResNet",
    "WideResNet",
    "load_arrays",
    "spectral_norm",
]


def _projected(name: str, channels: int = 3, features: int = 3, relu: bool = False) -> Projected:
    return Projected(BACKBONES[name](channels=channels), features, relu)


def _spectral(
    name: str, channels: int = 3, image_size: int = 32, coefficient: float = 3.0, **arguments: "int | str | bool"
) -> nn.Module:
    backbone = BACKBONES[name](channels=channels, **arguments)
    return spectral_norm(backbone, (channels, image_size, image_size), coefficient)


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "digits": DigitsCNN,
    "digits-3d": partial(_projected, "digits", channels=1),
    "small": SmallResNet,
    "small-3d": partial(_projected, "small"),
    "fast": FastNet,
    "fast-3d": partial(_projected, "fast"),
    "resnet18": ResNet18,
    "resnet20": partial(CifarResNet, depth=20),
    "resnet20-3d": partial(_projected, "resnet20"),
    "resnet32": partial(CifarResNet, depth=32),
    "resnet44": partial(CifarResNet, depth=44),
    "resnet56": partial(CifarResNet, depth=56),
    "resnet110": partial(CifarResNet, depth=110),
    "wrn-16-2": partial(WideResNet, depth=16, width=2),
    "wrn-16-4": partial(WideResNet, depth=16, width=4),
    "wrn-28-10": partial(WideResNet, depth=28, width=10),
    # DDU's feature extractor: its residual connections, and spectral normalisation with coefficient 3
    "small-ddu": partial(_spectral, "small", residual="ddu"),
    "fast-ddu": partial(_spectral, "fast", residual="ddu", whiten=False),
    "wrn-16-4-ddu": partial(_spectral, "wrn-16-4", residual="ddu"),
    "wrn-28-10-ddu": partial(_spectral, "wrn-28-10", residual="ddu"),
    # SNGP's: spectral normalisation with coefficient 6 on the paper's own network
    "small-sngp": partial(_spectral, "small", coefficient=6.0),
    "fast-sngp": partial(_spectral, "fast", coefficient=6.0, whiten=False),
    "wrn-16-4-sngp": partial(_spectral, "wrn-16-4", coefficient=6.0),
    "wrn-28-10-sngp": partial(_spectral, "wrn-28-10", coefficient=6.0),
}
