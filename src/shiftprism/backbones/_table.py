"""The table of backbones: names for the command line and for saved models."""

from collections.abc import Callable
from functools import partial

from torch import nn

from shiftprism.backbones._fast import FastNet
from shiftprism.backbones._residual import CifarResNet, ResNet18, SmallResNet
from shiftprism.backbones._small import DigitsCNN, Projected
from shiftprism.backbones._spectral import spectral_norm
from shiftprism.backbones._wide import WideResNet


def _build_projected(name: str, channels: int = 3, features: int = 3, relu: bool = False) -> Projected:
    return Projected(BACKBONES[name](channels=channels), features, relu)


def _build_spectral(
    name: str, channels: int = 3, image_size: int = 32, coefficient: float = 3.0, **arguments: "int | str | bool"
) -> nn.Module:
    backbone = BACKBONES[name](channels=channels, **arguments)
    return spectral_norm(backbone, (channels, image_size, image_size), coefficient)


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "digits": DigitsCNN,
    "digits-3d": partial(_build_projected, "digits", channels=1),
    "small": SmallResNet,
    "small-3d": partial(_build_projected, "small"),
    "fast": FastNet,
    "fast-3d": partial(_build_projected, "fast"),
    "resnet18": ResNet18,
    "resnet20": partial(CifarResNet, depth=20),
    "resnet20-3d": partial(_build_projected, "resnet20"),
    "resnet32": partial(CifarResNet, depth=32),
    "resnet44": partial(CifarResNet, depth=44),
    "resnet56": partial(CifarResNet, depth=56),
    "resnet110": partial(CifarResNet, depth=110),
    "wrn-16-2": partial(WideResNet, depth=16, width=2),
    "wrn-16-4": partial(WideResNet, depth=16, width=4),
    "wrn-28-10": partial(WideResNet, depth=28, width=10),
    # DDU's feature extractor: its residual connections, and spectral normalisation with coefficient 3. `fast` has a
    # learned stem here, since spectral normalisation would undo the whitening.
    "small-ddu": partial(_build_spectral, "small", residual="ddu"),
    "fast-ddu": partial(_build_spectral, "fast", residual="ddu", whiten=False),
    "wrn-16-4-ddu": partial(_build_spectral, "wrn-16-4", residual="ddu"),
    "wrn-28-10-ddu": partial(_build_spectral, "wrn-28-10", residual="ddu"),
    # SNGP's: spectral normalisation with coefficient 6 on the paper's own network
    "small-sngp": partial(_build_spectral, "small", coefficient=6.0),
    "fast-sngp": partial(_build_spectral, "fast", coefficient=6.0, whiten=False),
    "wrn-16-4-sngp": partial(_build_spectral, "wrn-16-4", coefficient=6.0),
    "wrn-28-10-sngp": partial(_build_spectral, "wrn-28-10", coefficient=6.0),
}
