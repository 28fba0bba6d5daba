"""Spectral normalisation: no convolution of a backbone stretches an input by more than a coefficient."""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from shiftprism._checks import wrong

Backbone = TypeVar("Backbone", bound=nn.Module)


def spectral_norm(
    backbone: Backbone, image_shape: Sequence[int], coefficient: float = 3.0, iterations: int = 1
) -> Backbone:
    """The same `backbone`, changed in place: each convolution weight W is used as W / max(1, σ/coefficient).

    σ is the spectral norm of the convolution A as a linear map between images, padding and stride included, not that of
    its weights as a matrix. It is estimated by power iteration, u ← A Aᵀu / |A Aᵀu|, then σ = |Aᵀu|; `iterations` steps
    with each training forward, none in eval mode. Weights with σ below the coefficient are used as they are, bit for
    bit. BatchNorms and linear layers are not changed. u is a buffer in the state dict: to load a saved backbone, build
    it, apply `spectral_norm` with the same `image_shape`, and load the state.

    Args:
        backbone: any module from images to features.
        image_shape: (C, H, W) of the images; sets the size at which each layer's norm is taken.
        coefficient: the bound. DDU takes 3, SNGP 6.
        iterations: steps of power iteration with each training forward.

    References: Gouk et al., "Regularisation of Neural Networks by Enforcing Lipschitz Continuity", 2018;
    Mukhoti et al., "Deep Deterministic Uncertainty", 2021.

    >>> layer = spectral_norm(nn.Sequential(nn.Conv2d(1, 1, 1, bias=False)), (1, 4, 4), coefficient=2.0)
    >>> _ = layer[0].parametrizations.weight.original.data.fill_(5.0)
    >>> layer(torch.ones(1, 1, 1, 1)).item()
    2.0
    """
    _check_arguments(image_shape, coefficient, iterations)
    sizes = _input_sizes(backbone, image_shape)
    if not sizes:
        raise wrong("backbone", "a module with convolutions", type(backbone).__name__, "there is nothing to normalise")
    norms = {part: _SoftNorm(part, size, float(coefficient), iterations) for part, size in sizes.items()}
    # only now that all of them could be made: an error above leaves the backbone as it was
    for convolution, norm in norms.items():
        parametrize.register_parametrization(convolution, "weight", norm)
    return backbone


class _SoftNorm(nn.Module):
    """W ↦ W / max(1, σ/coefficient), for one convolution on inputs of one size."""

    u: Tensor

    def __init__(self, convolution: nn.Conv2d, size: tuple[int, int], coefficient: float, iterations: int) -> None:
        super().__init__()
        weight = convolution.weight.detach()
        kernel, stride, padding = convolution.kernel_size, convolution.stride, _padding(convolution)
        if (kernel, padding) == ((1, 1), (0, 0)):  # it acts on each pixel alone, so one pixel has the norm of all
            size, stride = (1, 1), (1, 1)
        self.coefficient, self.iterations = coefficient, iterations
        self.geometry: dict[str, Any] = {
            "stride": stride,
            "padding": padding,
            "dilation": convolution.dilation,
            "groups": convolution.groups,
        }
        spans = [d * (k - 1) + 1 for d, k in zip(convolution.dilation, kernel, strict=True)]
        # The pixels at the far edge that no window covers; the transposed map needs them to return to the input's size.
        self.rest = [(n + 2 * p - k) % s for n, p, k, s in zip(size, padding, spans, stride, strict=True)]
        out = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, padding, spans, stride, strict=True)]
        start = torch.randn(1, convolution.out_channels, *out, dtype=weight.dtype, device=weight.device)
        self.register_buffer("u", start / start.norm())
        with torch.no_grad():
            self._iterate(weight)

    def forward(self, weight: Tensor) -> Tensor:
        # Without autocast: a norm in bfloat16 would be off by a percent. The meta device (shapes only) has no autocast.
        with torch.autocast("cpu" if weight.is_meta else weight.device.type, enabled=False):
            if self.training:
                with torch.no_grad():
                    self._iterate(weight)
            # A copy: the next forward writes to u while the gradient of this one still needs it.
            sigma = torch.linalg.vector_norm(self._transpose(weight, self.u.clone()))
            scaled: Tensor = weight / (sigma / self.coefficient).clamp_min(1.0)
        return scaled

    def _iterate(self, weight: Tensor) -> None:
        for _ in range(self.iterations):
            image = F.conv2d(self._transpose(weight, self.u), weight, **self.geometry)
            length = torch.linalg.vector_norm(image)
            self.u.copy_(torch.where(length > 0, image / length, self.u))  # a weight of zeros must not erase u

    def _transpose(self, weight: Tensor, output: Tensor) -> Tensor:
        """Aᵀ applied to an output of the convolution."""
        return F.conv_transpose2d(output, weight, output_padding=self.rest, **self.geometry)


def _check_arguments(image_shape: Sequence[int], coefficient: float, iterations: int) -> None:
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise wrong("image_shape", "(C, H, W)", tuple(image_shape), "pass the shape of one image, such as (3, 32, 32)")
    if not 0 < coefficient < float("inf"):
        raise wrong("coefficient", "positive and finite", coefficient, "take 3, or 6 for SNGP")
    if iterations < 1:
        raise wrong("iterations", "1 or more", iterations, "take 1")


def _input_sizes(backbone: nn.Module, image_shape: Sequence[int]) -> dict[nn.Conv2d, tuple[int, int]]:
    """The height and width of each convolution's input in one forward; the largest if it is used more than once."""
    sizes: dict[nn.Conv2d, tuple[int, int]] = {}

    def record(convolution: nn.Conv2d, inputs: tuple[Tensor, ...]) -> None:
        height, width = inputs[0].shape[-2:]
        sizes[convolution] = max(sizes.get(convolution, (0, 0)), (height, width))

    convolutions = [part for part in backbone.modules() if isinstance(part, nn.Conv2d)]
    if any(parametrize.is_parametrized(part, "weight") for part in convolutions):
        raise wrong("backbone", "without parametrised weights", "one that has them", "apply spectral_norm once")
    hooks = [part.register_forward_pre_hook(record) for part in convolutions]
    modes = [(part, part.training) for part in backbone.modules()]  # one by one: parts may be in different modes
    first = next(backbone.parameters())
    try:
        with torch.no_grad():
            backbone.eval()(torch.zeros(1, *image_shape, dtype=first.dtype, device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
        for part, training in modes:
            part.training = training
    return sizes


def _padding(convolution: nn.Conv2d) -> tuple[int, ...]:
    if convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
        got = f"{convolution.padding_mode} padding, {convolution.padding}"
        raise wrong("backbone", "of convolutions padded with zeros by numbers", got, "write the padding as a number")
    return convolution.padding
