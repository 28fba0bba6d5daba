"""Style: statistics of pixels against scipy and by hand, layers found by themselves, and both in every Outputs."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor, nn

from shiftprism import Classifier, adapt, predict
from shiftprism.backbones import BACKBONES
from shiftprism.style import GROUPS, PixelStatistics, attach_taps, channel_statistics, collect_layers, find_layers

FLOOR = math.log(1e-6)
STATISTICS = PixelStatistics().double()


def pictures(count: int = 5, channels: int = 3, side: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, side, side, dtype=torch.float64, generator=generator)


def small(**arguments: object) -> Classifier:
    return Classifier.build("small", "vanilla", names=("cat", "dog"), widths=[8, 32, 40], **arguments).eval()  # type: ignore[arg-type]


def block_energies(plane: np.ndarray, step: int = 8) -> np.ndarray:
    """ln of the mean squared DCT coefficients of the 8 × 8 blocks, by scipy; a column of blocks each `step` pixels."""
    blocks = [
        plane[row : row + 8, column : column + 8]
        for row in range(0, plane.shape[0] - 7, 8)
        for column in range(0, plane.shape[1] - 7, step)
    ]
    energies = np.mean([dctn(block, norm="ortho") ** 2 for block in blocks], 0)
    return np.asarray(np.log(energies + 1e-6).ravel())


@pytest.mark.parametrize("side", [16, 28, 32])
def test_block_energies_are_those_of_scipy(side: int) -> None:
    images = pictures(2, side=side)
    found = STATISTICS.groups(images)
    for number, (red, green, blue) in enumerate(images.numpy()):
        light = 0.299 * red + 0.587 * green + 0.114 * blue
        planes = {"light": light, "shifted": light[4:-4, 4:-4], "blue": 0.564 * (blue - light)}
        planes["red"] = 0.713 * (red - light)
        for name, plane in planes.items():
            expected = block_energies(plane, 16 if name in ("blue", "red") else 8)
            np.testing.assert_allclose(found[f"{name} dct"][number], expected, rtol=1e-9)


def test_a_constant_image_by_hand() -> None:
    image = torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)[None, :, None, None].expand(1, 3, 32, 32)
    found = {name: values[0] for name, values in STATISTICS.groups(image).items()}
    light = 0.299 * 0.2 + 0.587 * 0.4 + 0.114 * 0.6
    assert found["light dct"][0] == pytest.approx(math.log((8 * light) ** 2 + 1e-6))
    # nothing varies: every other energy, step and deviation is 0, and neighbours are equal
    torch.testing.assert_close(found["light dct"][1:], torch.full((63,), FLOOR, dtype=torch.float64))
    torch.testing.assert_close(found["bands"], torch.full((15,), FLOOR, dtype=torch.float64))
    torch.testing.assert_close(found["steps"], torch.full((6,), FLOOR, dtype=torch.float64))
    assert found["means"].tolist() == pytest.approx([0.2, 0.4, 0.6])
    assert found["deviations"].tolist() == pytest.approx([0, 0, 0])
    assert found["laplacian"].tolist() == pytest.approx([math.log(1e-3)] * 4 + [0])
    assert found["darkest channel"].tolist() == pytest.approx([0.2] * 5)
    assert found["brightest channel"].tolist() == pytest.approx([0.6] * 5)
    assert found["saturation"].tolist() == pytest.approx([0.4 / (0.6 + 1 / 255), 0])
    assert found["clipped"].tolist() == [0, 0]
    assert found["repeats"].tolist() == pytest.approx([1, 1, 0, 0, 0])
    assert found["directions"].tolist() == pytest.approx([0, 0, 0])


def test_a_checkerboard_by_hand() -> None:
    board = ((torch.arange(16)[:, None] + torch.arange(16)) % 2).double().expand(1, 1, 16, 16)
    found = {name: values[0] for name, values in STATISTICS.groups(board).items()}
    # each step to a neighbour is 1, each along a diagonal 0; |L| is 4 everywhere
    assert found["steps"].tolist() == pytest.approx([0, 0, FLOOR, FLOOR, FLOOR, FLOOR], abs=1e-5)
    assert found["laplacian"].tolist() == pytest.approx([math.log(4.001)] * 4 + [math.log(2)], abs=1e-3)
    assert (found["means"].item(), found["deviations"].item()) == (0.5, 0.5)
    assert found["clipped"].tolist() == [0.5, 0.5]
    assert found["repeats"].tolist() == pytest.approx([0, 0, 0, 0, 0])
    # 64 pixels a block at a distance of 1/2 from their mean have the energy 16, most of it in the highest band
    bands = found["bands"].exp().unflatten(0, (3, 5))
    assert bands.sum(0).tolist() == pytest.approx([16] * 5, abs=1e-4)
    assert (bands[2] > 0.9 * 16).all()


def test_shares_of_zeros_are_counts_of_whole_levels_and_change_little_with_rounding() -> None:
    """Rounding after a resize moves values by far less than a level: no share may jump with it."""
    levels = torch.randint(0, 4, (2, 1, 32, 32), generator=torch.Generator().manual_seed(0)).double()
    found = STATISTICS.groups(levels / 255)
    steps = levels[..., ::2, 1:] - levels[..., ::2, :-1]
    torch.testing.assert_close(found["repeats"][:, 0], (steps[..., ::2] == 0).double().mean((1, 2, 3)))
    torch.testing.assert_close(found["clipped"][:, 0], (levels == 0).double().mean((1, 2, 3)))
    generator = torch.Generator().manual_seed(1)
    for size in (0.0, 0.25, 0.5, 1.0):  # steps and values at every place of the ramp, its ends among them
        values = levels * size / 255
        moved = values + 1e-6 * (torch.rand(values.shape, dtype=torch.float64, generator=generator) - 0.5)
        torch.testing.assert_close(STATISTICS(moved), STATISTICS(values), atol=3e-3, rtol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_lines_that_repeat_by_hand(turned: bool) -> None:
    """Steps of 4 grey levels between columns, and one of 0: what pixelate leaves. Rows are all alike."""
    steps = torch.full((16,), 4.0, dtype=torch.float64)
    steps[7] = 0
    image = (steps.cumsum(0) / 255).expand(1, 1, 16, 16)
    smallest = STATISTICS.groups(image.transpose(2, 3) if turned else image)["repeats"][0, 2:]
    # beside a step of 0 there are two of 4, and elsewhere all are alike
    assert smallest.tolist() == pytest.approx([math.log(1e-6) - math.log((4 / 255) ** 2 + 1e-6), 0, 0])


def test_one_image_at_a_time_gives_what_a_batch_gives() -> None:
    images = pictures(6, side=40)
    alone = torch.cat([STATISTICS(image[None]) for image in images])
    torch.testing.assert_close(alone, STATISTICS(images))


@pytest.mark.parametrize(
    ("channels", "height", "width", "count"),
    [
        *((3, 32, 32, 315), (3, 224, 224, 315), (3, 40, 100, 315), (4, 32, 32, 171)),
        *((1, 28, 28, 171), (1, 8, 8, 92), (1, 2, 2, 17), (3, 1, 1, 25)),
    ],
)
def test_what_does_not_fit_is_left_out(channels: int, height: int, width: int, count: int) -> None:
    found = STATISTICS(torch.rand(2, channels, height, width))
    assert found.shape == (2, count)
    assert found.isfinite().all()


def test_a_large_image_is_read_in_tiles_on_the_grid_of_blocks() -> None:
    """A period of 8 looks the same everywhere on that grid, so tiles give what the whole image would."""
    patch = pictures(1, side=8)
    small_one, large = patch.repeat(1, 1, 4, 4), patch.repeat(1, 1, 29, 27)
    for name in ("light dct", "shifted dct", "red dct", "bands", "means", "deviations"):
        torch.testing.assert_close(STATISTICS.groups(large)[name], STATISTICS.groups(small_one)[name])


def test_bytes_are_read_as_floats_and_other_numbers_refused() -> None:
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(STATISTICS(images), STATISTICS(images.double() / 255))
    with pytest.raises(ValueError, match="Expected `images` to be uint8, or floats"):
        STATISTICS(images.long())


def test_half_models_and_autocast_have_the_statistics_of_float32() -> None:
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    expected = PixelStatistics()(images)
    assert PixelStatistics().half()(images).equal(expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert PixelStatistics()(images).equal(expected)


# layers


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"wrn-28-10", "wrn-28-10-ddu", "wrn-28-10-sngp"}))
def test_every_backbone_has_four_layers(name: str) -> None:
    assert len(find_layers(BACKBONES[name](channels=1))) in (3, 4)


def test_layers_at_two_fifths_of_the_depth() -> None:
    """Those that our trials took for the distance that a calibrator reads."""
    assert find_layers(BACKBONES["fast"]())[1] == "blocks.1.bn1"
    assert find_layers(BACKBONES["resnet20"]())[1] == "layer2.0.bn1"


def test_channel_statistics_by_hand() -> None:
    """48 channels in 24 groups of two: the mean of their means, then of their deviations."""
    network = nn.Sequential(nn.Conv2d(3, 48, 3), nn.ReLU(inplace=True))
    images = torch.rand(4, 3, 8, 8)
    maps = network[0](images).detach()
    assert attach_taps(network) == ("0",)
    with collect_layers() as layers:
        network(images)
    pairs = maps.flatten(2).unflatten(1, (GROUPS, 2))
    expected = torch.cat([pairs.mean((2, 3)), pairs.std(3, correction=0).mean(2)], 1)
    torch.testing.assert_close(channel_statistics(layers["0"]), expected)
    network(images)  # nobody asks
    assert list(layers) == ["0"]


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (24, 24), (25, 13), (64, 22), (2048, 24)])
def test_at_most_24_groups_and_the_last_may_be_smaller(channels: int, groups: int) -> None:
    maps = torch.arange(channels, dtype=torch.float64)[None, :, None, None].expand(1, channels, 2, 2)
    found = channel_statistics(maps)
    size = math.ceil(channels / groups)
    expected = [np.mean(np.arange(channels)[first : first + size]) for first in range(0, channels, size)]
    assert found[0].tolist() == pytest.approx([*expected, *[0] * groups])


def test_tokens_have_their_channels_last() -> None:
    network = nn.Sequential(nn.Flatten(2), nn.LayerNorm(48))
    attach_taps(network)
    images = torch.rand(2, 3, 6, 8)
    with collect_layers() as layers:
        tokens = network(images)
    pairs = tokens.unflatten(2, (GROUPS, 2))
    expected = torch.cat([pairs.mean((1, 3)), pairs.std(1, correction=0).mean(2)], 1)
    torch.testing.assert_close(channel_statistics(layers["1"]), expected)


def test_a_classifier_puts_pixels_and_layers_into_one_field() -> None:
    classifier, images = small(), torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        outputs = classifier.outputs(images)
    # 32 and 40 channels in pairs: two layers of each
    assert outputs.S == 315 + 2 * (16 + 16 + 20 + 20)
    torch.testing.assert_close(outputs.style[:, :315], PixelStatistics()(images))
    assert outputs.check() is outputs
    assert not classifier.head.outputs(outputs.features).has_style
    assert not any(name.startswith("pixel_statistics") for name in classifier.state_dict())


def test_style_is_a_constant_to_autograd() -> None:
    images = torch.rand(2, 3, 32, 32, requires_grad=True)
    outputs = small().outputs(images)
    assert outputs.logits.requires_grad
    assert not outputs.style.requires_grad


def test_style_does_not_depend_on_the_batch_or_the_threads() -> None:
    classifier, images = small(), torch.rand(12, 3, 32, 32)
    expected = predict(classifier, images)[0].style
    torch.testing.assert_close(predict(classifier, images, batch=1)[0].style, expected, atol=1e-4, rtol=1e-4)
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda image: classifier.outputs(image[None]).style.detach(), images))
    torch.testing.assert_close(torch.cat(parts), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_have_a_finite_style(dtype: torch.dtype) -> None:
    classifier, images = small(), torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    expected = predict(classifier, images)[0].style
    found = predict(copy.deepcopy(classifier).to(dtype), images)[0].style
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.02)


def test_copies_channels_last_and_saved_models_agree(tmp_path: Path) -> None:
    classifier, images = small(), torch.rand(2, 3, 32, 32)
    expected = predict(classifier, images)[0].style
    classifier.save(tmp_path)
    others = (copy.deepcopy(classifier), Classifier.load(tmp_path), small().to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    for other in others:
        torch.testing.assert_close(predict(other, images)[0].style, expected, atol=1e-4, rtol=1e-4)


class Own(nn.Module):
    """A user's network: one normalisation sees parts of images as a batch, one never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 30, 3), nn.BatchNorm2d(30))
        self.parts = nn.BatchNorm2d(30)
        self.idle = nn.BatchNorm2d(30)
        self.fc = nn.Linear(30, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stem(images)
        halves = self.parts(torch.cat(maps.split(3, 2)))
        logits: Tensor = self.fc(maps.mean((2, 3)) + halves[: len(images)].mean((2, 3)))
        return logits


def test_layers_of_an_adapted_model_are_found() -> None:
    adapted = adapt(Own(), torch.rand(2, 1, 8, 8))
    assert adapted.style_layers == ("model.stem.1", "model.parts", "model.idle")
    assert predict(adapted, torch.rand(5, 1, 8, 8))[0].S == 92 + 2 * 15
    double = adapt(Own().double(), torch.rand(2, 1, 8, 8))
    assert predict(double, torch.rand(5, 1, 8, 8))[0].style.dtype == torch.float64
    plain = adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), torch.rand(2, 1, 8, 8))
    assert plain.style_layers == ()
    assert predict(plain, torch.rand(5, 1, 8, 8))[0].S == 92


def test_a_classifier_with_style_exports() -> None:
    class Styled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = Classifier.build("digits", "vanilla", names=("cat", "dog"), channels=1).eval()

        def forward(self, images: Tensor) -> Tensor:
            return self.classifier.outputs(images).style

    module, images = Styled(), torch.rand(4, 1, 16, 16)
    program = torch.export.export(module, (images,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(program.module()(images[:3]), module(images[:3]))
    # without counterparts in ONNX
    used = {str(node.target) for node in program.graph.nodes}
    assert not used & {"aten.median.dim", "aten.searchsorted.Tensor", "aten.new_empty.default", "aten.var_mean.dim"}
