"""The smallest backbones: one for 8 × 8 digits, and any other narrowed to a few features."""

from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.backbones._residual import conv3x3


class DigitsCNN(nn.Module):
    """Three convolutions for images of 8 × 8 and up, global average pooling last: features are non-negative.

    Shapes: (N, channels, H, W) -> (N, width).

    >>> import torch
    >>> DigitsCNN()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 64])
    """

    def __init__(self, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.out_features = width
        self.layers = nn.Sequential(
            conv3x3(channels, 32),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            conv3x3(32, width, stride=2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            conv3x3(width, width),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images).mean((2, 3))
        return features


class Projected(nn.Module):
    """Another backbone's features mapped to a few, P f or relu(P f): three for the paper's figure of the feature space.

    P has no bias, so that images with small features in the inner backbone stay close to the origin. `relu=True` makes
    the features non-negative again, like those of the paper's other networks. It is not the default: ten classes then
    share one octant, and a unit that is always 0 stops learning, which costs accuracy (see docs/backbones.md).

    Shapes: (N, channels, H, W) -> (N, features).

    >>> import torch
    >>> Projected(DigitsCNN())(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, backbone: nn.Module, features: int = 3, relu: bool = False) -> None:
        super().__init__()
        if features < 1:
            raise wrong("features", "1 or more", features, "take 3 for the paper's figure")
        inner = getattr(backbone, "out_features", None)
        if not isinstance(inner, int):
            raise wrong("backbone", "a module with `out_features`", type(backbone).__name__, "give it that attribute")
        self.out_features = features
        self.backbone = backbone
        self.linear = nn.Linear(inner, features, bias=False)
        self.activation = nn.ReLU() if relu else nn.Identity()

    def prepare(self, images: Tensor) -> None:
        """Prepare the inner backbone with the training images, if it has a `prepare`."""
        if prepare := getattr(self.backbone, "prepare", None):
            prepare(images)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.activation(self.linear(self.backbone(images)))
        return features
