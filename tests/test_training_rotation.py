"""Rotation prediction: what is rotated and how it counts, and that nothing of it stays in the trained classifier."""

from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor

from shiftprism.backbones import BACKBONES
from shiftprism.classifier import Classifier
from shiftprism.heads import HEADS, Linear
from shiftprism.training import PRESETS, Processes, Setup, Training, channel_statistics, read_settings, run, train
from shiftprism.training._rotation import Rotation
from shiftprism.training._settings import differences
from trained import digits

SHORT = replace(PRESETS["smoke"], epochs=3, rotation=0.5)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(5))


def few() -> Any:
    return digits("train").rows(slice(0, 200))


@pytest.mark.parametrize(("shape", "turns"), [((3, 8, 8), (1, 2, 3)), ((1, 6, 9), (2,))])
def test_half_of_a_batch_is_rotated_as_numpy_does(shape: tuple[int, int, int], turns: tuple[int, ...]) -> None:
    images, rotation = noise(41, *shape), Rotation(4, *shape[1:])
    before = images.clone()
    rotated, classes = rotation.rotate_half(images, generator())
    assert rotated.shape == (21, *shape)
    assert rotated.dtype == torch.uint8
    for image, result, number in zip(images, rotated, classes.tolist(), strict=False):
        assert np.array_equal(np.rot90(image.numpy(), turns[number - 1], (1, 2)), result.numpy())
    assert torch.equal(images, before)
    assert torch.equal(rotation.rotate_half(images, generator())[1], classes)


def test_every_rotation_is_as_likely() -> None:
    _, classes = Rotation(4, 8, 8).rotate_half(noise(3000, 1, 8, 8), generator())
    assert stats.chisquare(torch.bincount(classes).tolist()[1:]).pvalue > 1e-3
    assert int(classes.min()) == 1  # what is upright is in the batch already


@pytest.mark.parametrize(("height", "rotations"), [(8, 4), (9, 2)])
def test_the_mean_over_all_draws_is_the_published_loss(height: int, rotations: int) -> None:
    """Two images in all orders and rotations, against each image in each rotation once."""
    rotation = Rotation(4, height, 8)
    table = torch.randn(2, rotations, rotations, generator=generator(), dtype=torch.float64)
    labels = torch.arange(rotations).repeat(2)
    flat = table.reshape(-1, rotations)
    losses, shares = [], []
    for order, turn in product(permutations(range(2)), range(1, rotations)):
        logits = torch.cat([table[list(order), 0], table[order[0], turn][None]])
        part = rotation.measure(logits, torch.tensor([turn]), 2, 1)
        losses.append(part.loss.item())
        shares.append(part.accuracy)
    assert np.mean(losses) == pytest.approx(torch.nn.functional.cross_entropy(flat, labels).item())
    assert np.mean(shares) == pytest.approx((flat.argmax(1) == labels).double().mean().item())


@pytest.mark.parametrize("upright", [0, 2, 5])
@pytest.mark.parametrize("rotated", [0, 1, 3])
def test_the_parts_of_two_processes_add_up(upright: int, rotated: int) -> None:
    """Five upright and three rotated images, of which one process has so many; a part may be empty."""
    rotation, logits = Rotation(4, 8, 8), torch.randn(8, 4, generator=generator(), dtype=torch.float64)
    classes = torch.tensor([3, 1, 2])
    whole = rotation.measure(logits, classes, 5, 3)
    first = rotation.measure(torch.cat([logits[:upright], logits[5 : 5 + rotated]]), classes[:rotated], 5, 3)
    second = rotation.measure(torch.cat([logits[upright:5], logits[5 + rotated :]]), classes[rotated:], 5, 3)
    torch.testing.assert_close(first.loss + second.loss, whole.loss)
    assert first.accuracy + second.accuracy == pytest.approx(whole.accuracy)


class Alone(Processes):
    """One of two processes, without the other: nothing is averaged, so that a test can average by itself."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.count, self.rank = 2, rank


class Started(Rotation):
    """Weights other than 0, so that the first step already changes the backbone."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        torch.nn.init.normal_(self.layer.weight, generator=generator())


@pytest.mark.parametrize("images", [4, 5, 7])
def test_a_step_of_two_processes_is_the_step_of_one(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGD without momentum: the mean of the weights after each process's own step is what their mean gradient gives."""
    data = digits("train").rows(slice(0, images))
    step = Training(epochs=1, batch=images, rate=0.5, momentum=0.0, crop=0, flip=False, rotation=0.7)
    monkeypatch.setattr("shiftprism.training._loop.Rotation", Started)

    def train_one_step(processes: Processes | None, step: Training = step) -> dict[str, Tensor]:
        torch.manual_seed(0)
        body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 6), torch.nn.Tanh())  # no batch statistics
        classifier = Classifier(body, Linear(6, 7))
        train(classifier, data, step, processes=processes)
        return classifier.double().state_dict()

    whole, first, second = (train_one_step(processes) for processes in (None, Alone(0), Alone(1)))
    for name in whole:
        torch.testing.assert_close((first[name] + second[name]) / 2, whole[name], rtol=1e-5, atol=1e-7)
    plain = train_one_step(None, replace(step, rotation=0.0))
    name = "backbone.1.weight"
    assert (plain[name] - whole[name]).abs().max() > 100 * ((first[name] + second[name]) / 2 - whole[name]).abs().max()


def test_it_starts_at_chance_and_draws_nothing() -> None:
    before = torch.get_rng_state()
    rotation = Rotation(4, 8, 8)
    assert torch.equal(torch.get_rng_state(), before)
    part = rotation.measure(rotation(torch.randn(12, 4)), torch.tensor([1, 2, 3, 1]), 8, 4)
    assert part.loss.item() == pytest.approx(np.log(4))


def test_digits_and_their_rotations_are_learned() -> None:
    data = digits("train")
    classifier = Classifier.build("digits", "alpha-beta", data.names, 1, *channel_statistics(data.images))
    history = train(classifier, data, replace(SHORT, epochs=6))
    losses = [entry["rotation_loss"] for entry in history]
    assert losses[-1] < losses[0] < 1.2 * np.log(4)
    assert history[-1]["loss"] < history[0]["loss"]
    # chance is a quarter; 0, 1, 2 and 5 look much the same after half a turn
    assert history[-1]["rotation_accuracy"] > 0.45
    assert history[-1]["accuracy"] > 0.8


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head_trains_with_it_and_with_pixmix(head: str) -> None:
    data = few()
    classifier = Classifier.build("digits", head, data.names, 1, *channel_statistics(data.images))
    history = train(classifier, data, replace(SHORT, epochs=2, pixmix=0.7))
    assert 0 < history[-1]["rotation_loss"] < 1.5
    assert all(bool(tensor.isfinite().all()) for tensor in classifier.state_dict().values())


def test_the_head_sees_upright_images_alone() -> None:
    class Watching(Linear):
        seen: tuple[int, ...] = ()

        def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
            self.seen += (len(images), len(logits))
            return logits.new_zeros(())

        def after_step(self, features: Tensor, labels: Tensor) -> None:
            self.seen += (len(features), len(labels))

    head, data = Watching(64, 7), digits("train").rows(slice(0, 64))
    train(Classifier(BACKBONES["digits"](channels=1), head), data, replace(SHORT, epochs=1))
    assert head.seen == (64,) * 4


def test_the_loss_is_the_weighted_sum() -> None:
    """At a rate of 0 without augmentation every weight sees the same images: the loss is linear in the weight."""
    data = few()
    still = replace(SHORT, epochs=1, rate=0.0, crop=0, batch=200)

    def measure(weight: float) -> dict[str, Any]:
        classifier = Classifier.build("digits", "vanilla", data.names, 1)
        return train(classifier, data, replace(still, rotation=weight))[0]

    one, three = measure(1.0), measure(3.0)
    assert one["rotation_loss"] == three["rotation_loss"] == pytest.approx(np.log(4), abs=1e-6)
    assert three["loss"] - one["loss"] == pytest.approx(2 * np.log(4), abs=1e-5)
    assert "rotation_loss" not in measure(0.0)


class Stopped(Exception):
    pass


def stop(history: list[dict[str, Any]]) -> None:
    if len(history) == 2:
        raise Stopped


def stop_after_two_epochs(training: Training, path: Path) -> Classifier:
    data = few()
    stopped = Classifier.build("digits", "alpha-beta", data.names, 1)
    with pytest.raises(Stopped):
        train(stopped, data, training, state=path, record=stop)
    return Classifier.build("digits", "alpha-beta", data.names, 1, seed=9)


@pytest.mark.parametrize("change", [{}, {"pixmix": 0.7, "pixmix_from": 1 / 3, "nesterov": True}])
def test_a_stopped_run_resumes_to_the_same_weights(change: dict[str, Any], tmp_path: Path) -> None:
    training, data = replace(SHORT, **change), few()
    undisturbed, plain = (Classifier.build("digits", "alpha-beta", data.names, 1) for _ in range(2))
    history = train(undisturbed, data, training)
    train(plain, data, replace(training, rotation=0.0))
    assert undisturbed.fingerprint() != plain.fingerprint()
    assert undisturbed.state_dict().keys() == plain.state_dict().keys()
    resumed = stop_after_two_epochs(training, tmp_path / "state")
    again = train(resumed, data, training, state=tmp_path / "state")
    assert resumed.fingerprint() == undisturbed.fingerprint()
    assert again[-1]["rotation_loss"] == history[-1]["rotation_loss"]


def test_a_state_without_the_layer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    resumed = stop_after_two_epochs(SHORT, path)
    tensors = load_file(path)
    assert tensors["rotation.layer.weight"].abs().max() > 0
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    for digest in ("digest", "digest of metadata"):  # or it would be refused as changed
        metadata.pop(digest)
    del tensors["rotation.layer.weight"]
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=r"where layer\.weight is missing; remove it to start again"):
        train(resumed, few(), SHORT, state=path)


def test_off_it_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("made although it is off")

    monkeypatch.setattr("shiftprism.training._loop.Rotation", refuse)
    data = few()
    history = train(
        Classifier.build("digits", "vanilla", data.names, 1), data, replace(SHORT, rotation=0.0), state=tmp_path / "s"
    )
    assert not any("rotation" in name for name in [*history[0], *load_file(tmp_path / "s")])


def test_images_that_are_not_square_turn_by_half(tmp_path: Path) -> None:
    data = few()
    data = data._replace(images=data.images[..., 1:7].contiguous())
    classifier = Classifier.build("digits", "vanilla", data.names, 1)
    history = train(classifier, data, SHORT, state=tmp_path / "state")
    assert load_file(tmp_path / "state")["rotation.layer.bias"].shape == (2,)
    assert 0 < history[0]["rotation_loss"] < 2 * np.log(2)


def test_a_saved_run_has_no_such_layer_and_one_from_before_is_loaded(tmp_path: Path) -> None:
    setup = Setup("digits", "digits", "vanilla", replace(PRESETS["smoke"], epochs=1, rotation=0.5))
    done = run(tmp_path / "on", setup)
    assert not any("rotation" in name for name in load_file(tmp_path / "on" / "weights.safetensors"))
    assert Classifier.load(tmp_path / "on").fingerprint() == done.classifier.fingerprint()
    assert read_settings(tmp_path / "on" / "config.toml")["rotation"] == 0.5

    plain = setup._replace(training=replace(setup.training, rotation=0.0))
    run(tmp_path / "off", plain)
    config = tmp_path / "off" / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "rotation" not in line))
    assert len(run(tmp_path / "off", plain, resume=True).history) == 1
    with pytest.raises(ValueError, match=r"rotation 0\.5 for 0\.0"):
        run(tmp_path / "off", setup, resume=True)


def test_its_setting() -> None:
    assert differences({"rotation": 0.0}, {}) == []  # a state from before has none
    assert differences({"rotation": 0.5}, {}) == ["rotation 0.5 for 0.0"]
    assert {preset.rotation for preset in PRESETS.values()} == {0.0}
    with pytest.raises(ValueError, match=r"Expected `rotation` to be a finite number of at least 0 but got -1"):
        Training(rotation=-1.0)
