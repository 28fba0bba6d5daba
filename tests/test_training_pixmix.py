"""PixMix: which images it mixes, within which bounds, the same each time; and the pictures that it mixes in."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage, stats
from torch import Tensor

from shiftprism.classifier import Classifier
from shiftprism.training import PRESETS, Setup, Training, make_mixing_pictures, pixmix, read_settings, run, train
from shiftprism.training._pixmix import _affine_grid, _combine, _distort
from trained import digits

SHORT = replace(PRESETS["smoke"], epochs=3, pixmix=0.7, pixmix_from=1 / 3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(5))


def drawing(seed: int = 0) -> Any:
    numbers = generator(seed)
    return lambda *shape: torch.rand(*shape, generator=numbers)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_share_of_the_images_is_mixed(share: float) -> None:
    """Of the images that are drawn a tenth stays as it is: no round (1 in 5), and not distorted at first (1 in 2)."""
    images = noise(3000, 1, 8, 8)
    mixed = pixmix(images, noise(20, 1, 12, 12), share, generator())
    changed = int((mixed != images).flatten(1).any(1).sum())
    assert stats.binomtest(changed, 3000, 0.9 * share).pvalue > 1e-3 if share > 0 else changed == 0
    assert mixed.dtype == torch.uint8


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (2, 9, 14)])
def test_any_size_and_number_of_channels(shape: tuple[int, int, int]) -> None:
    images = noise(40, *shape)
    pictures = make_mixing_pictures(*shape[1:], shape[0], count=6)
    assert pictures.shape == (6, shape[0], math.ceil(1.5 * shape[1]), math.ceil(1.5 * shape[2]))
    mixed = pixmix(images, pictures, 1.0, generator())
    assert mixed.shape == images.shape
    assert len(pixmix(images[:0], pictures, 1.0, generator())) == 0


def test_equal_seeds_give_equal_images_and_leave_the_input_alone() -> None:
    images, pictures = noise(30, 3, 8, 8), noise(5, 3, 12, 12)
    before = images.clone()
    first, again, other = (pixmix(images, pictures, 0.7, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before)


def test_weights_of_the_mixture_are_betas() -> None:
    """Grey is 0 among values in [−1, 1] and 1 among values in [0, 2]: what is left of x there tells a."""
    x = torch.full((40000, 1, 1, 1), 0.6)
    mixed = _combine(x, torch.full_like(x, 0.5), drawing()).flatten()
    # Four kinds with equal probability: x + a or x^a, with a from Beta(3, 1) below 1 and from 1 + Beta(1, 3) above.
    below = stats.beta(3, 1).mean()
    assert float((mixed < 0.6).float().mean()) == pytest.approx(0.5, abs=0.02)
    sums = (0.5 + 0.1 * below + 0.5 + 0.1 * (1 + stats.beta(1, 3).mean())) / 2
    powers = [stats.beta(3, 1).expect(lambda a: 1.2**a / 2), stats.beta(1, 3).expect(lambda a: 1.2 ** (1 + a) / 2)]
    assert float(mixed.mean()) == pytest.approx((sums + np.mean(powers)) / 2, abs=2e-4)


def test_mixing_with_black_stays_finite_and_in_range() -> None:
    black, white = torch.zeros(500, 1, 2, 2), torch.ones(500, 1, 2, 2)
    for x in (black, white):
        for y in (black, white):
            mixed = _combine(x, y, drawing())
            assert bool(((mixed >= 0) & (mixed <= 1)).all())


def test_every_distortion_occurs_and_is_small() -> None:
    """A smooth bright image: shifts move less than 3 of 32 pixels, and tones change only as a threshold or steps do."""
    ramp = (torch.arange(32.0) / 31).expand(600, 1, 32, 32)
    done = _distort(ramp, drawing())
    middle = done[:, 0, 8:24, 8:24]
    levels = torch.tensor([len(image.unique()) for image in middle])
    moved = (middle - ramp[:, 0, 8:24, 8:24]).abs().amax((1, 2))
    tone = levels <= 16
    assert 0.1 < float((levels <= 10).float().mean()) < 0.3  # posterised: few levels
    assert float(moved[~tone].max()) < 0.13  # 3 pixels of 32, or 9° and .18 over 16 pixels


def test_rotations_shears_and_shifts_agree_with_scipy() -> None:
    """A rotation, a shear and a shift, in pixels of an image that is not square."""
    height, width = 20, 30
    image = ndimage.gaussian_filter(np.random.default_rng(0).random((height, width)), 2).astype(np.float32)
    middle = (np.array([height, width]) - 1) / 2
    angle = math.radians(9)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])  # (row, column)
    cases = [(0, True, turn, 0.0), (1, True, np.array([[1, 0], [0.18, 1]]), 0.0)]
    cases += [(1, False, np.array([[1, 0.18], [0, 1]]), 0.0), (2, True, np.eye(2), 3 / 32 * width)]
    for kind, across, matrix, shift in cases:
        images = torch.tensor(image)[None, None]
        grid = _affine_grid(torch.tensor([kind]), torch.ones(1), torch.tensor([across]), images)
        ours = torch.nn.functional.grid_sample(images, grid, align_corners=False)
        offset = middle - matrix @ middle + np.array([0, shift])
        theirs = ndimage.affine_transform(image, matrix, offset, order=1)
        assert np.abs(ours[0, 0].numpy() - theirs)[4:-4, 4:-4].max() < 1e-4, kind


def test_pictures_are_a_fixed_set_and_full_of_structure() -> None:
    pictures = make_mixing_pictures(16, 16, 3, count=40)
    make_mixing_pictures.cache_clear()
    assert torch.equal(pictures, make_mixing_pictures(16, 16, 3, count=40))
    assert len(pictures.flatten(1).unique(dim=0)) == 40
    spread = pictures.float().std((1, 2, 3))
    assert float(spread.min()) > 5
    edges = pictures.float().diff(dim=3).abs().mean((1, 2, 3))
    assert float(edges.median()) > 10  # CIFAR's images have about 12


def test_larger_images_get_fewer_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    make_mixing_pictures.cache_clear()  # another test may have made some of these sizes
    monkeypatch.setattr("shiftprism.training._pictures._PICTURES", (4, 50))
    monkeypatch.setattr("shiftprism.training._pictures._PIXELS", 10 * 12 * 12)
    assert [len(make_mixing_pictures(side, side, 1)) for side in (2, 8, 40)] == [50, 10, 4]
    make_mixing_pictures.cache_clear()


def test_a_stopped_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    """Stopped after the second epoch, the first with PixMix: the third has the same draws as without a stop."""
    data = digits("train").rows(slice(0, 200))
    undisturbed, stopped, resumed, plain = (Classifier.build("digits", "vanilla", data.names, 1) for _ in range(4))
    train(undisturbed, data, SHORT)
    train(plain, data, replace(SHORT, pixmix=0.0))
    assert undisturbed.fingerprint() != plain.fingerprint()

    def stop(history: list[dict[str, Any]]) -> None:
        if len(history) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(stopped, data, SHORT, state=tmp_path / "state", record=stop)
    train(resumed, data, SHORT, state=tmp_path / "state")
    assert resumed.fingerprint() == undisturbed.fingerprint()


def test_the_first_epochs_are_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits("train").rows(slice(0, 60))
    shares: list[float] = []

    def count(images: Tensor, pictures: Tensor, share: float, generator: torch.Generator) -> Tensor:
        shares.append(share)
        return images

    monkeypatch.setattr("shiftprism.training._loop.pixmix", count)
    train(Classifier.build("digits", "vanilla", data.names, 1), data, replace(SHORT, epochs=6))
    assert shares == [0.7] * 4  # one step in each of the last four epochs of six


def test_digits_are_learned_with_it() -> None:
    data = digits("train")
    classifier = Classifier.build("digits", "alpha-beta", data.names, 1, seed=0)
    history = train(classifier, data, replace(PRESETS["smoke"], epochs=6, pixmix=0.7))
    assert history[-1]["accuracy"] > 0.6


def test_a_run_from_before_pixmix_is_still_loaded(tmp_path: Path) -> None:
    setup = Setup("digits", "digits", "vanilla", replace(PRESETS["smoke"], epochs=1))
    run(tmp_path, setup)
    config = tmp_path / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "pixmix" not in line))
    assert "pixmix" not in read_settings(config)
    assert len(run(tmp_path, setup, resume=True).history) == 1
    with pytest.raises(ValueError, match=r"pixmix 0\.5 for 0\.0"):
        run(tmp_path, setup._replace(training=replace(setup.training, pixmix=0.5)), resume=True)


def test_its_settings() -> None:
    robust, plain = PRESETS["laptop-robust"], PRESETS["laptop"]
    assert (robust.pixmix, plain.pixmix, PRESETS["paper"].pixmix) == (0.3, 0, 0)
    assert replace(robust, pixmix=0.0, pixmix_from=0.0) == plain
    assert Training(pixmix=1.0).pixmix == 1
    with pytest.raises(ValueError, match=r"Expected `pixmix` to be in \[0, 1\] but got 1\.1"):
        Training(pixmix=1.1)
