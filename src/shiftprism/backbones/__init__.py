"""Images in, features out. A backbone is an `nn.Module` from normalised images (N, C, H, W) to (N, `out_features`).

`BACKBONES` maps names to callables whose arguments are plain JSON values, so that a saved model can be built again.

>>> import torch
>>> backbone = BACKBONES["resnet20"](channels=1)
>>> backbone(torch.zeros(2, 1, 28, 28)).shape, backbone.out_features
(torch.Size([2, 64]), 64)
"""

from shiftprism.backbones._arrays import load_arrays
from shiftprism.backbones._fast import FastNet
from shiftprism.backbones._residual import CifarResNet, ResNet18, SmallResNet
from shiftprism.backbones._small import DigitsCNN, Projected
from shiftprism.backbones._spectral import spectral_norm
from shiftprism.backbones._table import BACKBONES
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
