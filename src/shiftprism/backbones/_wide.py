"""Wide residual networks, the paper's backbone among them."""

from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism.backbones._residual import SLOPE, PooledShortcut, conv3x3, he_init


class WideResNet(nn.Module):
    """WRN-depth-width: three groups of (depth − 4)/6 pre-activation blocks with 16, 32 and 64 times `width` channels.

    x ↦ S(x) + conv(relu(bn(conv(relu(bn(x)))))), all convolutions 3 × 3 and without bias, no dropout; the first
    convolution of groups two and three has stride 2. Features are the global average after a last BatchNorm and ReLU.

    - `residual="conv"`, the paper's: where the shape changes, S is a strided 1 × 1 convolution of the block's input,
      elsewhere the identity. PyTorch's own initialisation, as in the authors' code.
    - `residual="ddu"`, for feature densities: S is an average pool that adds channels of zeros and has no weights;
      every ReLU is leaky with slope 0.01, so features may be negative; He's initialisation (fan out).

    Shapes: (N, channels, H, W) -> (N, 64·width). References: Zagoruyko and Komodakis, "Wide Residual Networks", 2016;
    Mukhoti et al., "Deep Deterministic Uncertainty", 2021.

    >>> import torch
    >>> WideResNet(depth=10, width=1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, depth: int = 28, width: int = 10, channels: int = 3, residual: str = "conv") -> None:
        super().__init__()
        choice("residual", residual, ("conv", "ddu"))
        if depth < 10 or (depth - 4) % 6:
            raise wrong("depth", "6 n + 4 with n of 1 or more", depth, "take 10, 16, 22, 28, 40, …")
        if width < 1:
            raise wrong("width", "1 or more", width, "take 1, 2, 4, 8, 10, …")
        blocks = (depth - 4) // 6
        self.out_features = 64 * width
        self.conv1 = conv3x3(channels, 16)
        self.layer1 = _group(16, 16 * width, blocks, 1, residual)
        self.layer2 = _group(16 * width, 32 * width, blocks, 2, residual)
        self.layer3 = _group(32 * width, 64 * width, blocks, 2, residual)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.activation = _activation(residual)
        if residual == "ddu":
            he_init(self, slope=SLOPE)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.layer3(self.layer2(self.layer1(self.conv1(images))))
        features: Tensor = self.activation(self.bn1(maps)).mean((2, 3))
        return features


class _PreActivationBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, residual: str) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.activation = _activation(residual)
        self.shortcut: nn.Module = nn.Identity()
        if residual == "ddu":
            self.shortcut = PooledShortcut(outputs - inputs, stride)
        elif stride > 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.conv1(self.activation(self.bn1(images)))
        out: Tensor = self.conv2(self.activation(self.bn2(inner))) + self.shortcut(images)
        return out


def _activation(residual: str) -> nn.Module:
    # In place: the BatchNorm before it keeps its input, not its output, for the gradient.
    return nn.LeakyReLU(SLOPE, inplace=True) if residual == "ddu" else nn.ReLU(inplace=True)


def _group(inputs: int, outputs: int, blocks: int, stride: int, residual: str) -> nn.Sequential:
    first = _PreActivationBlock(inputs, outputs, stride, residual)
    return nn.Sequential(first, *(_PreActivationBlock(outputs, outputs, 1, residual) for _ in range(blocks - 1)))
