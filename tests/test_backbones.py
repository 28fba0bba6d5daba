import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from shiftprism import datasets
from shiftprism.backbones import (
    BACKBONES,
    CifarResNet,
    DigitsCNN,
    FastNet,
    Projected,
    ResNet18,
    SmallResNet,
    WideResNet,
    load_arrays,
)

SHARED = Path(os.environ.get("SHIFTPRISM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SIZE = 8
TINY: dict[str, dict[str, Any]] = {  # the same code as the named backbone at a size that a test can afford
    "small": {"widths": [4, 6, 8]},
    **{f"small-{kind}": {"widths": [4, 6, 8], "image_size": SIZE} for kind in ("ddu", "sngp")},
    "fast": {"widths": [4, 6]},
    **{f"fast-{kind}": {"widths": [4, 6], "image_size": SIZE} for kind in ("ddu", "sngp")},
    **{f"resnet{depth}": {"depth": 8} for depth in (20, 32, 44, 56, 110)},
    **{f"wrn-{kind}": {"depth": 10, "width": 1} for kind in ("16-2", "16-4", "28-10")},
    **{
        f"wrn-{kind}": {"depth": 10, "width": 1, "image_size": SIZE}
        for kind in ("16-4-ddu", "28-10-ddu", "16-4-sngp", "28-10-sngp")
    },
}


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return BACKBONES[name](channels=2, **json.loads(json.dumps(TINY.get(name, {}))))


def some_images(count: int = 6, size: int = SIZE, channels: int = 2) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(1))


def warm_up(name: str, seed: int = 0) -> nn.Module:
    """In eval mode, with running statistics that differ from the initial ones."""
    backbone = build(name, seed)
    with torch.no_grad():
        for _ in range(3):
            backbone(some_images())
    return backbone.eval()


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# One name for each kind: the others differ from it in depth, width or coefficient alone, which TINY sets.
KINDS = [
    name for name in BACKBONES if name not in ("resnet32", "resnet44", "resnet56", "resnet110") and "16" not in name
]
every_backbone = pytest.mark.parametrize("name", KINDS)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_name_builds_at_its_full_size(name: str) -> None:
    with torch.device("meta"):
        backbone = BACKBONES[name](channels=3)
    # Memory as it comes, small images: each step of a forward pass of meta tensors takes a millisecond of Python.
    backbone = backbone.to_empty(device="cpu").eval()
    with torch.no_grad():
        assert backbone(torch.zeros(1, 3, 16, 16)).shape == (1, backbone.out_features)


@every_backbone
def test_features_have_the_promised_width(name: str) -> None:
    backbone = build(name)
    assert isinstance(backbone.out_features, int)
    assert backbone(some_images()).shape == (6, backbone.out_features)
    assert backbone.eval()(some_images(1)).shape == (1, backbone.out_features)


@every_backbone
def test_features_are_non_negative_except_behind_a_leaky_relu(name: str) -> None:
    features = warm_up(name)(some_images())
    assert bool((features < 0).any()) == name.endswith(("-ddu", "-3d"))


@every_backbone
def test_an_odd_size_is_no_error(name: str) -> None:
    assert warm_up(name)(torch.randn(2, 2, 9, 7)).isfinite().all()


@every_backbone
def test_in_eval_mode_a_row_does_not_depend_on_its_batch(name: str) -> None:
    backbone, images = warm_up(name), some_images()
    alone = torch.cat([backbone(image[None]) for image in images])
    torch.testing.assert_close(backbone(images), alone)


@every_backbone
def test_gradient_reaches_every_parameter(name: str) -> None:
    backbone = build(name)
    features = backbone(some_images())
    (features * torch.randn_like(features)).sum().backward()
    for label, parameter in backbone.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label
        assert parameter.grad.abs().sum() > 0, label


@every_backbone
def test_exports_with_a_dynamic_batch(name: str) -> None:
    backbone = warm_up(name)
    program = torch.export.export(
        backbone, (some_images(3),), dynamic_shapes={"images": {0: torch.export.Dim("batch")}}
    )
    for count in (1, 6):
        torch.testing.assert_close(program.module()(some_images(count)), backbone(some_images(count)))


@every_backbone
def test_state_round_trips_through_safetensors(name: str, tmp_path: Path) -> None:
    backbone = warm_up(name)
    save_file(backbone.state_dict(), tmp_path / "weights.safetensors")
    again = build(name, seed=7).eval()
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"), strict=True)
    assert torch.equal(again(some_images()), backbone(some_images()))


@every_backbone
def test_a_deep_copy_is_independent(name: str) -> None:
    backbone = warm_up(name)
    before = backbone(some_images())
    twin = copy.deepcopy(backbone)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(backbone(some_images()), before)
    assert not torch.equal(twin(some_images()), before)


def test_wrn_28_10_is_the_papers() -> None:
    with torch.device("meta"):
        backbone = BACKBONES["wrn-28-10"]()
        head = nn.Linear(640, 10, bias=False)
        features = backbone(torch.empty(1, 3, 32, 32))
    assert features.shape == (1, 640)
    assert parameters(backbone) + parameters(head) == 36_479_184
    parts = list(backbone.modules())
    assert not any(isinstance(part, nn.Dropout) for part in parts)
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d)]
    assert len([part for part in convolutions if part.kernel_size == (3, 3)]) == 25  # the depth less three shortcuts
    assert all(part.bias is None for part in convolutions)


@pytest.mark.parametrize(
    ("make", "count"),
    [  # with a linear layer and its bias for ten classes, as these are always given
        (lambda: CifarResNet(20), 269_722),
        (lambda: CifarResNet(32), 464_154),
        (lambda: CifarResNet(44), 658_586),
        (lambda: CifarResNet(56), 853_018),
        (lambda: CifarResNet(110), 1_727_962),
        (ResNet18, 11_173_962),
    ],
)
def test_residual_networks_have_their_known_size(make: Callable[[], Any], count: int) -> None:
    with torch.device("meta"):
        backbone = make()
    assert parameters(backbone) + 10 * backbone.out_features + 10 == count


def silence(block: nn.Module) -> nn.Module:
    """The block with a last convolution of zeros: what is left is its shortcut."""
    with torch.no_grad():
        block.get_parameter("conv2.weight").zero_()
    return block.eval()


def test_the_wide_shortcut_is_a_convolution_of_the_raw_input() -> None:
    block = silence(WideResNet(10, 1).layer2[0])
    images = torch.randn(2, 16, 6, 6)
    expected = F.conv2d(images, block.get_parameter("shortcut.weight"), stride=2)
    torch.testing.assert_close(block(images), expected)
    same = silence(WideResNet(10, 1).layer1[0])
    assert torch.equal(same(images), images)


def test_the_ddu_shortcut_averages_and_adds_channels_of_zeros() -> None:
    backbone = WideResNet(10, 1, residual="ddu")
    images = torch.randn(2, 16, 6, 6)
    out = silence(backbone.layer2[0])(images)
    expected = images.reshape(2, 16, 3, 2, 3, 2).mean((3, 5))
    torch.testing.assert_close(out[:, :16], expected)
    assert torch.equal(out[:, 16:], torch.zeros(2, 16, 3, 3))
    assert {part.negative_slope for part in backbone.modules() if isinstance(part, nn.LeakyReLU)} == {0.01}
    assert not any(isinstance(part, nn.ReLU) for part in backbone.modules())


def test_the_small_network_takes_ddus_changes() -> None:
    backbone = SmallResNet(1, (4, 6, 8), residual="ddu")
    images = torch.randn(2, 4, 6, 6)
    out = silence(backbone.blocks[0])(images)
    averages = images.reshape(2, 4, 3, 2, 3, 2).mean((3, 5))
    torch.testing.assert_close(out[:, :4], F.leaky_relu(averages, 0.01))
    assert torch.equal(out[:, 4:], torch.zeros(2, 2, 3, 3))
    assert parameters(SmallResNet(1, (4, 6, 8))) - parameters(backbone) == 4 * 6 + 2 * 6 + 6 * 8 + 2 * 8
    with pytest.raises(ValueError, match="Expected `residual` to be one of conv, ddu but got 'identity'"):
        SmallResNet(residual="identity")


def test_the_cifar_shortcut_takes_every_second_pixel_and_pads_both_sides() -> None:
    out = silence(CifarResNet(8).layer2[0])(images := torch.randn(2, 16, 6, 6))
    assert torch.equal(out[:, 8:24], images[:, :, ::2, ::2].relu())
    assert torch.equal(out[:, :8], torch.zeros(2, 8, 3, 3))
    assert torch.equal(out[:, 24:], torch.zeros(2, 8, 3, 3))


def test_the_pre_activation_block_by_hand() -> None:
    torch.manual_seed(0)
    block: Any = WideResNet(10, 1).layer3[0].eval()
    images = torch.randn(2, 32, 4, 4)
    eps = 1 / np.sqrt(1 + 1e-5)  # a fresh BatchNorm in eval mode
    inner = F.conv2d((images * eps).relu(), block.conv1.weight, stride=2, padding=1)
    inner = F.conv2d((inner * eps).relu(), block.conv2.weight, padding=1)
    torch.testing.assert_close(block(images), inner + block.shortcut(images))


def test_initialisation() -> None:
    torch.manual_seed(0)
    paper, ddu = WideResNet(10, 2), WideResNet(10, 2, residual="ddu")
    default, he = paper.get_parameter("layer3.0.conv2.weight"), ddu.get_parameter("layer3.0.conv2.weight")
    assert default.abs().max().item() == pytest.approx((9 * 128) ** -0.5, rel=1e-3)  # uniform, 1/√fan in
    assert he.std().item() == pytest.approx((2 / 1.0001 / (9 * 128)) ** 0.5, rel=0.02)


@given(scale=st.floats(0.0, 100.0))
@settings(max_examples=20, deadline=None)
def test_projected_features_shrink_with_the_inner_ones(scale: float) -> None:
    torch.manual_seed(0)
    inner: Any = nn.Flatten()
    inner.out_features = 4
    projected, rectified = Projected(inner, 3), Projected(inner, 3, relu=True)
    rectified.load_state_dict(projected.state_dict())
    images = torch.rand(4, 1, 2, 2)
    torch.testing.assert_close(projected(scale * images), scale * projected(images))
    assert torch.equal(rectified(images), projected(images).relu())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WideResNet(27, 10), "`depth` to be 6 n \\+ 4 .* but got 27"),
        (lambda: WideResNet(4, 1), "`depth`"),
        (lambda: WideResNet(28, 0), "`width`"),
        (lambda: WideResNet(28, 1, residual="identity"), "`residual` to be one of conv, ddu"),
        (lambda: CifarResNet(18), "`depth` to be 6 n \\+ 2"),
        (lambda: SmallResNet(widths=(8,)), "`widths`"),
        (lambda: ResNet18(channels=0), "`channels`"),
        (lambda: Projected(DigitsCNN(), 0), "`features`"),
        (lambda: Projected(nn.Flatten()), "`out_features`"),
    ],
)
def test_impossible_networks_are_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# Arrays


def arrays_of(backbone: nn.Module, linear: nn.Module) -> dict[str, Any]:
    arrays = {
        name: tensor.numpy().copy() for name, tensor in backbone.state_dict().items() if "num_batches" not in name
    }
    return arrays | {f"linear.{name}": tensor.numpy().copy() for name, tensor in linear.state_dict().items()}


def test_arrays_load_into_the_network_they_came_from(tmp_path: Path) -> None:
    backbone, linear = CifarResNet(8), nn.Linear(64, 10)
    np.savez(tmp_path / "a.npz", **arrays_of(backbone, linear))
    again, top = CifarResNet(8), nn.Linear(64, 10)
    load_arrays(tmp_path / "a.npz", again, top)
    images = some_images(channels=3)
    assert torch.equal(top(again.eval()(images)), linear(backbone.eval()(images)))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bn1.weight", None, "with no bn1.weight;"),
        ("conv9.weight", np.zeros(3), "an unknown conv9.weight"),
        ("linear.bias", np.zeros(9), r"linear.bias of shape \(9,\) in place of \(10,\)"),
        ("bn1.bias", np.full(16, np.nan, np.float32), "bn1.bias of values that are not finite"),
        ("bn1.bias", np.array(["a"] * 16), "bn1.bias of dtype"),
        ("bn1.bias", np.array([{}] * 16, dtype=object), "an .npz file of plain arrays"),
    ],
)
def test_wrong_arrays_are_named_and_change_nothing(name: str, value: Any, message: str, tmp_path: Path) -> None:
    arrays = arrays_of(CifarResNet(8), nn.Linear(64, 10))
    arrays[name] = value
    np.savez(tmp_path / "a.npz", **{key: array for key, array in arrays.items() if array is not None})
    backbone, linear = CifarResNet(8), nn.Linear(64, 10)
    before = copy.deepcopy(backbone.state_dict())
    with pytest.raises(ValueError, match=message):
        load_arrays(tmp_path / "a.npz", backbone, linear)
    assert all(torch.equal(tensor, before[key]) for key, tensor in backbone.state_dict().items())


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "whole.npz", a=np.zeros(300))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:500])
    for name in ("one.npy", "text.npz", "cut.npz"):
        with pytest.raises(ValueError, match=r"an .npz file of plain arrays"):
            load_arrays(tmp_path / name, CifarResNet(8), nn.Linear(64, 10))


def test_a_public_resnet20_loads_into_its_own_network_alone() -> None:
    path = SHARED / "data" / "resnet20_cifar10.npz"
    if not path.exists():
        pytest.skip(f"no {path}: set SHIFTPRISM_SHARED to the folder that has data/resnet20_cifar10.npz")
    backbone, linear = CifarResNet(20), nn.Linear(64, 10)
    load_arrays(path, backbone, linear)
    with pytest.raises(ValueError, match=r"no layer1\.3\.conv1\.weight"):
        load_arrays(path, CifarResNet(32), linear)
    with pytest.raises(ValueError, match=r"an unknown linear\.bias"):
        load_arrays(path, backbone, nn.Linear(64, 10, bias=False))


@pytest.mark.slow
def test_a_public_resnet20_reaches_its_accuracy_on_cifar10() -> None:
    path = SHARED / "data" / "resnet20_cifar10.npz"
    try:
        data = datasets.load("cifar10", "test")
    except FileNotFoundError as error:
        pytest.skip(f"no CIFAR-10: {error}")
    if not path.exists():
        pytest.skip(f"no {path}: set SHIFTPRISM_SHARED to the folder that has data/resnet20_cifar10.npz")
    backbone, linear = CifarResNet(20).eval(), nn.Linear(64, 10)
    load_arrays(path, backbone, linear)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    right = 0
    with torch.no_grad():
        for images, labels in zip(data.images.split(500), data.labels.split(500), strict=True):
            right += int((linear(backbone((images / 255 - mean) / std)).argmax(1) == labels).sum())
    assert right / len(data.labels) == pytest.approx(0.9173, abs=0.0005)


def test_the_prepared_stem_whitens_the_patches() -> None:
    images = torch.randn(200, 2, 8, 8, generator=torch.Generator().manual_seed(2)).cumsum(3)  # neighbours are alike
    backbone = FastNet(channels=2, widths=(4,))
    backbone.prepare(images)
    said = backbone.stem(images).double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(
        said[:8] @ said[:8].T / said.shape[1], torch.eye(8, dtype=torch.float64), atol=0.01, rtol=0
    )
    assert torch.equal(said[8:], -said[:8])
    plain = FastNet(channels=2, widths=(4,), whiten=False)
    before = copy.deepcopy(plain.state_dict())
    plain.prepare(images)
    assert all(torch.equal(before[name], value) for name, value in plain.state_dict().items())


def test_a_projected_backbone_prepares_its_inner_one() -> None:
    inner = FastNet(channels=2)
    Projected(inner).prepare(some_images(50))
    alone = FastNet(channels=2)
    alone.prepare(some_images(50))
    assert torch.equal(inner.state_dict()["stem.filters"], alone.state_dict()["stem.filters"])
