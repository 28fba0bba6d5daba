import copy
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from shiftprism.backbones import DigitsCNN, WideResNet, spectral_norm

Part = TypeVar("Part", bound=nn.Module)


def operator_norm(convolution: Any, channels: int, height: int, width: int) -> float:
    """The largest singular value of the convolution written out as a dense matrix: no power iteration, no transpose."""
    basis = torch.eye(channels * height * width).reshape(-1, channels, height, width)
    with torch.no_grad():
        weight = convolution.weight.detach().clone()
        images = torch.nn.functional.conv2d(
            basis, weight, None, convolution.stride, convolution.padding, convolution.dilation, convolution.groups
        )
    return float(np.linalg.norm(images.flatten(1).double().numpy(), 2))


def stretched(scale: float = 10.0, **arguments: Any) -> nn.Sequential:
    """One convolution whose norm is far above the coefficient."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(**{"in_channels": 2, "out_channels": 3, "kernel_size": 3, "padding": 1} | arguments)
    with torch.no_grad():
        convolution.weight.mul_(scale)
    return nn.Sequential(convolution)


def settle(module: Part, channels: int, height: int, width: int, steps: int = 400) -> Part:
    """Training forwards until the power iteration has converged."""
    module.train()
    with torch.no_grad():
        for _ in range(steps):
            module(torch.zeros(2, channels, height, width))
    return module.eval()


def norm_of(layer: nn.Module) -> Any:
    """The parametrisation that a normalised layer carries."""
    found: Any = layer
    return found.parametrizations.weight[0]


@pytest.mark.slow
@given(
    inputs=st.integers(1, 2),
    outputs=st.integers(1, 3),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 2),
    size=st.tuples(st.integers(5, 7), st.integers(5, 7)),
)
@settings(max_examples=25, deadline=None)
def test_the_norm_of_any_convolution_comes_down_to_the_coefficient(
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: int,
    groups: int,
    size: tuple[int, int],
) -> None:
    channels = inputs * groups
    layers = stretched(
        in_channels=channels,
        out_channels=outputs * groups,
        kernel_size=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        scale=30.0,
    )
    assume(operator_norm(layers[0], channels, *size) > 2.0)
    spectral_norm(layers, (channels, *size), coefficient=2.0, iterations=5)
    settle(layers, channels, *size, steps=200)
    # From below the bound is as tight as from above: the norm is soft, not a general shrinking.
    assert operator_norm(layers[0], channels, *size) == pytest.approx(2.0, rel=5e-3)


def test_one_iteration_a_step_is_enough() -> None:
    layers = settle(spectral_norm(stretched(), (2, 6, 6)), 2, 6, 6)
    assert operator_norm(layers[0], 2, 6, 6) == pytest.approx(3.0, rel=1e-3)


def test_the_operator_is_meant_and_not_the_matrix_of_weights() -> None:
    layers = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False))
    with torch.no_grad():
        layers.get_parameter("0.weight").fill_(1.0)
    # A filter of three ones on a line of n pixels has the largest eigenvalue 1 + 2 cos(π/(n + 1)); here in two axes.
    sigma = (1 + 2 * np.cos(np.pi / 9)) ** 2
    assert operator_norm(layers[0], 1, 8, 8) == pytest.approx(sigma)  # while the weights as a matrix have norm 3
    settle(spectral_norm(layers, (1, 8, 8), coefficient=4.0), 1, 8, 8)
    torch.testing.assert_close(layers[0].weight, torch.full((1, 1, 3, 3), 4 / float(sigma)))


@pytest.mark.parametrize("coefficient", [3.0, 6.0])
def test_every_convolution_of_a_network_is_bounded(coefficient: float) -> None:
    torch.manual_seed(0)
    backbone = WideResNet(10, 1, residual="conv")
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(4.0)
    spectral_norm(backbone, (3, 4, 4), coefficient, iterations=4)
    settle(backbone, 3, 4, 4, steps=60)
    sizes = {"conv1": 4, "layer1": 4, "layer2.0.conv1": 4, "layer3.0.conv2": 1}  # of its input; 2 × 2 for the others
    tops = []
    for name, part in backbone.named_modules():
        if isinstance(part, nn.Conv2d):
            size = next((side for start, side in sizes.items() if name.startswith(start)), 2)
            tops.append(operator_norm(part, part.in_channels, size, size))
    assert len(tops) == 9
    assert max(tops) == pytest.approx(coefficient, rel=0.01)


def test_weights_below_the_coefficient_are_used_bit_for_bit() -> None:
    torch.manual_seed(0)
    plain = DigitsCNN()
    images = torch.rand(4, 1, 8, 8)
    normed = spectral_norm(copy.deepcopy(plain), (1, 8, 8), coefficient=1000.0)
    assert torch.equal(normed(images), plain(images))
    normed(images).sum().backward()
    plain(images).sum().backward()
    gradient = normed.get_parameter("layers.0.parametrizations.weight.original").grad
    torch.testing.assert_close(gradient, plain.get_parameter("layers.0.weight").grad)


def test_power_iteration_moves_in_training_alone() -> None:
    layers = spectral_norm(stretched(), (2, 6, 6))
    norm = norm_of(layers[0])
    layers.eval()
    before = norm.u.clone()
    first, second = layers(torch.ones(1, 2, 6, 6)), layers(torch.ones(1, 2, 6, 6))
    assert torch.equal(first, second)
    assert torch.equal(norm.u, before)
    layers.train()(torch.ones(1, 2, 6, 6))
    assert not torch.equal(norm.u, before)
    assert float(norm.u.norm()) == pytest.approx(1.0, rel=1e-5)


def test_state_round_trips_with_its_vector() -> None:
    layers = settle(spectral_norm(stretched(), (2, 6, 6)), 2, 6, 6, steps=3)
    assert set(layers.state_dict()) == {"0.bias", "0.parametrizations.weight.original", "0.parametrizations.weight.0.u"}
    torch.manual_seed(9)
    other = spectral_norm(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1)), (2, 6, 6)).eval()
    other.load_state_dict(layers.state_dict(), strict=True)
    images = torch.rand(2, 2, 6, 6)
    assert torch.equal(other(images), layers(images))


def test_the_gradient_is_flat_along_the_weights() -> None:
    # Above the coefficient W / (σ(W)/c) does not change when W is scaled, so the slope along W is zero.
    layers = settle(spectral_norm(stretched(), (2, 6, 6)), 2, 6, 6)
    layers(torch.rand(2, 2, 6, 6)).square().sum().backward()
    original = layers.get_parameter("0.parametrizations.weight.original")
    assert original.grad is not None
    slope = float((original.grad * original.detach()).sum())
    assert abs(slope) < 1e-4 * float(original.grad.norm() * original.detach().norm())


def test_two_forwards_before_one_backward() -> None:
    layers = spectral_norm(stretched(), (2, 6, 6)).train()
    images = torch.rand(2, 2, 6, 6)
    (layers(images).sum() + layers(images).sum()).backward()
    gradient = layers.get_parameter("0.parametrizations.weight.original").grad
    assert gradient is not None
    assert gradient.isfinite().all()


def test_weights_of_zero_keep_the_vector_alive() -> None:
    layers = spectral_norm(stretched(scale=0.0), (2, 6, 6)).train()
    layers(torch.rand(2, 2, 6, 6)).sum().backward()
    original = layers.get_parameter("0.parametrizations.weight.original")
    assert original.grad is not None
    assert original.grad.isfinite().all()
    with torch.no_grad():
        original.normal_(0, 5)
    settle(layers, 2, 6, 6)
    assert operator_norm(layers[0], 2, 6, 6) == pytest.approx(3.0, rel=1e-2)


def test_autocast_does_not_blur_the_norm() -> None:
    exact = spectral_norm(stretched(), (2, 6, 6))
    mixed = copy.deepcopy(exact)
    images = torch.rand(2, 2, 6, 6)
    exact.train()(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert mixed.train()(images).dtype == torch.bfloat16
    assert torch.equal(norm_of(mixed[0]).u, norm_of(exact[0]).u)


def test_a_normalised_backbone_can_be_made_plain_again() -> None:
    layers = settle(spectral_norm(stretched(), (2, 6, 6)), 2, 6, 6, steps=5)
    images = torch.rand(2, 2, 6, 6)
    before = layers(images)
    parametrize.remove_parametrizations(layers[0], "weight", leave_parametrized=True)
    assert set(layers.state_dict()) == {"0.weight", "0.bias"}
    assert torch.equal(layers(images), before)


def test_looking_at_the_sizes_leaves_no_trace() -> None:
    backbone = DigitsCNN().train()
    backbone.layers[1].eval()
    before = {name: buffer.clone() for name, buffer in backbone.named_buffers()}
    spectral_norm(backbone, (1, 8, 8))
    assert backbone.training
    assert not backbone.layers[1].training
    assert all(torch.equal(backbone.get_buffer(name), buffer) for name, buffer in before.items())
    assert not any(part._forward_pre_hooks for part in backbone.modules())


class Twice(nn.Module):
    """One convolution used at two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        self.unused = nn.Conv2d(1, 1, 3)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.conv(images).mean() + self.conv(images[:, :, ::2, ::2]).mean()
        return out


def test_a_shared_convolution_takes_its_largest_size_and_an_unused_one_stays() -> None:
    module = spectral_norm(Twice(), (1, 8, 8))
    assert norm_of(module.conv).u.shape == (1, 1, 8, 8)
    assert not parametrize.is_parametrized(module.unused)


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (nn.Sequential(nn.Conv2d(1, 1, 3)), {"image_shape": (8, 8)}, "`image_shape` to be \\(C, H, W\\)"),
        (nn.Sequential(nn.Conv2d(1, 1, 3)), {"coefficient": 0.0}, "`coefficient`"),
        (nn.Sequential(nn.Conv2d(1, 1, 3)), {"coefficient": float("nan")}, "`coefficient`"),
        (nn.Sequential(nn.Conv2d(1, 1, 3)), {"iterations": 0}, "`iterations`"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), {}, "a module with convolutions"),
        (nn.Sequential(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3, padding="same")), {}, "padded with zeros"),
        (nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")), {}, "padded with zeros"),
        (spectral_norm(nn.Sequential(nn.Conv2d(1, 1, 3)), (1, 8, 8)), {}, "apply spectral_norm once"),
    ],
)
def test_what_cannot_be_normalised_is_refused(module: nn.Module, arguments: dict[str, Any], message: str) -> None:
    before = list(module.state_dict())
    with pytest.raises(ValueError, match=message):
        spectral_norm(module, **{"image_shape": (1, 8, 8)} | arguments)
    assert list(module.state_dict()) == before
