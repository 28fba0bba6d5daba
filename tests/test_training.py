"""The loop learns with every head, repeats itself bit for bit, and says why it stops."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from shiftprism.backbones import BACKBONES
from shiftprism.backbones._fast import whitening_filters
from shiftprism.classifier import Classifier, predict
from shiftprism.heads import HEADS, Linear
from shiftprism.metrics import accuracy
from shiftprism.training import PRESETS, Progress, Training, augment, channel_statistics, train
from trained import digits, train_on_digits

SHORT = replace(PRESETS["smoke"], epochs=4)


def train_short(head: str, training: Training = SHORT, seed: int = 0) -> tuple[Classifier, list[dict[str, Any]]]:
    data = digits("train")
    classifier = Classifier.build("digits", head, data.names, 1, *channel_statistics(data.images), seed=seed)
    return classifier, train(classifier, data, training)


QUICK = ("alpha-beta", "vanilla")
"""The others are trained in the slow tests."""


@pytest.mark.parametrize("head", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in HEADS])
def test_every_head_learns_digits(head: str) -> None:
    classifier, history = train_on_digits(head)
    assert history[-1]["loss"] < history[0]["loss"]
    outputs, labels = predict(classifier, digits("test"))
    assert labels is not None
    assert accuracy(torch.softmax(outputs.logits.double(), 1), labels) > 0.9


def test_equal_seeds_give_equal_weights() -> None:
    first, again = (train_short("alpha-beta")[0].fingerprint() for _ in range(2))
    assert first == again
    assert first != train_short("alpha-beta", replace(SHORT, seed=1))[0].fingerprint()


class Stopped(Exception):
    pass


@pytest.mark.parametrize("head", ["hyper-free", "sngp", "duq"])
def test_what_a_head_accumulates_survives_a_stop(head: str, tmp_path: Path) -> None:
    """Stopped after the second of three epochs and resumed by another classifier: the same bits."""
    data = digits("train").rows(slice(0, 200))
    undisturbed, stopped = (Classifier.build("digits", head, data.names, 1, seed=0) for _ in range(2))
    training = replace(SHORT, epochs=3)
    train(undisturbed, data, training)

    def stop(history: list[dict[str, Any]]) -> None:
        if len(history) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        train(stopped, data, training, state=tmp_path / "state", record=stop)
    resumed = Classifier.build("digits", head, data.names, 1, seed=9)
    train(resumed, data, training, state=tmp_path / "state")
    assert resumed.fingerprint() == undisturbed.fingerprint()


def test_the_penalty_gets_the_normalised_images() -> None:
    """With a thousand times their mean as penalty, the loss tells what they were; cross entropy starts near ln 7."""

    class Watching(Linear):
        needs_image_gradient = True

        def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
            assert images.requires_grad
            assert images.is_leaf
            return 1000 * images.mean()

    data = digits("train").rows(slice(0, 64))
    classifier = Classifier(BACKBONES["digits"](channels=1), Watching(64, 7), (0.25,), (0.5,))
    (entry,) = train(classifier, data, replace(SHORT, epochs=1, crop=0, rate=0.0))
    mean = (data.images.double().mean().item() / 255 - 0.25) / 0.5
    assert entry["loss"] == pytest.approx(1000 * mean + math.log(7), abs=1)


def test_progress_counts_every_step() -> None:
    data = digits("train")
    reports: list[Progress] = []
    classifier = Classifier.build("digits", "vanilla", data.names, 1)
    history = train(classifier, data, replace(SHORT, epochs=2), reports.append)
    assert [now.step for now in reports] == list(range(1, reports[-1].steps + 1))
    assert [entry["epoch"] for entry in history] == [1, 2]
    assert history[-1]["accuracy"] == reports[-1].accuracy
    assert not classifier.training


def test_alpha_and_beta_are_recorded() -> None:
    _, history = train_short("alpha-beta", replace(SHORT, epochs=1))
    record = history[0]
    assert 0 < record["alpha_5"] <= record["alpha_50"] <= record["alpha_95"] < 1
    assert 0 < record["beta_5"] <= record["beta_50"] <= record["beta_95"]
    assert record["norm_50"] > 0


@pytest.mark.parametrize("change", [{"precision": "bfloat16"}, {"channels_last": False}, {"nesterov": True}])
def test_ways_to_train_that_must_learn_too(change: dict[str, Any]) -> None:
    _, history = train_short("alpha-beta", replace(SHORT, **change))
    assert history[-1]["accuracy"] > 0.8


def test_augmentation_is_a_shift_of_the_padded_image() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (50, 2, 6, 5), dtype=torch.uint8, generator=generator)
    moved = augment(images, 2, True, generator)
    assert moved.shape == images.shape
    assert moved.dtype == torch.uint8
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    for image, result in zip(padded, moved, strict=True):
        windows = [image[:, y : y + 6, x : x + 5] for y in range(5) for x in range(5)]
        mirrored = torch.nn.functional.pad(image[:, 2:-2, 2:-2].flip(2), (2, 2, 2, 2))
        windows += [mirrored[:, y : y + 6, x : x + 5] for y in range(5) for x in range(5)]
        assert any(torch.equal(window, result) for window in windows)
    assert not torch.equal(moved, images)
    assert torch.equal(augment(images, 0, False, generator), images)


def test_channel_statistics_agree_with_torch() -> None:
    images = torch.randint(0, 256, (40, 3, 7, 5), dtype=torch.uint8)
    mean, std = channel_statistics(images)
    values = images.double() / 255
    assert mean == pytest.approx(values.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(values.std((0, 2, 3), correction=0).tolist())


def test_a_loss_that_is_not_a_number_stops_the_run() -> None:
    data = digits("train")
    classifier = Classifier.build("digits", "vanilla", data.names, 1)
    with pytest.raises(FloatingPointError, match="at step"):
        train(classifier, data, replace(SHORT, rate=1e30))


@pytest.mark.parametrize(
    "change", [{"epochs": 0}, {"batch": 0}, {"rate": -1.0}, {"rate": float("nan")}, {"warmup": 1.0}]
)
def test_impossible_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Expected `{next(iter(change))}` to be"):
        replace(SHORT, **change)


def test_data_that_do_not_fit_are_refused() -> None:
    data = digits("train")
    few = Classifier.build("digits", "vanilla", ("a", "b"), 1)
    with pytest.raises(ValueError, match=r"Expected `data\.labels` to be between 0 and 1 but got values from 0 to 6"):
        train(few, data, SHORT)
    with pytest.raises(ValueError, match=r"Expected `data\.images` to be uint8"):
        train(few, data._replace(images=data.images.float()), SHORT)
    with pytest.raises(ValueError, match="Expected `data` to be non-empty"):
        train(few, data.rows(slice(0, 0)), SHORT)


def test_measuring_the_precision_changes_nothing_else() -> None:
    """Whichever is faster: the weights are those of a run with that precision."""
    auto, _ = train_short("alpha-beta", replace(SHORT, epochs=1, precision="auto"))
    explicit = {
        name: train_short("alpha-beta", replace(SHORT, epochs=1, precision=name))[0] for name in ("float32", "bfloat16")
    }
    assert auto.fingerprint() in {classifier.fingerprint() for classifier in explicit.values()}


def test_a_backbone_is_prepared_with_the_training_images() -> None:
    data = digits("train")
    classifier = Classifier.build("fast", "alpha-beta", data.names, 1, seed=0, widths=[16, 32])
    before = classifier.backbone.state_dict()["stem.filters"].clone()
    train(classifier, data, replace(SHORT, epochs=1))
    filters = classifier.backbone.state_dict()["stem.filters"]
    assert not torch.equal(before, filters)
    assert torch.equal(filters, whitening_filters(classifier.normalise(data.images[:5000])))
