"""Classifiers trained on digits once, for every test that looks at them: 0 to 6 are known, 7 to 9 are not."""

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from shiftprism.classifier import Classifier
from shiftprism.datasets import Dataset, load
from shiftprism.shifts import hold_out
from shiftprism.training import PRESETS, channel_statistics, train

UNSEEN = ("7", "8", "9")


def digits(split: str) -> Dataset:
    return hold_out(load("digits", split), UNSEEN)[0]


def unseen_digits() -> Tensor:
    """The digits 7 to 9 of both splits: no model was trained on any of them."""
    return torch.cat([hold_out(load("digits", split), UNSEEN)[1].images for split in ("train", "test")])


def train_on_digits(head: str, backbone: str = "digits", **change: Any) -> tuple[Classifier, list[dict[str, Any]]]:
    """Train with the smoke preset and these changes; residual backbones get a size that fits 8 × 8.

    Tests share the result: do not change it.
    """
    return _train(head, backbone, tuple(change.items()))


@cache
def _train(head: str, backbone: str, change: tuple[tuple[str, Any], ...]) -> tuple[Classifier, list[dict[str, Any]]]:
    data = digits("train")
    sizes: dict[str, Any] = {} if backbone == "digits" else {"widths": [16, 32, 64], "image_size": 8}
    classifier = Classifier.build(backbone, head, data.names, 1, *channel_statistics(data.images), seed=0, **sizes)
    return classifier, train(classifier, data, replace(PRESETS["smoke"], **dict(change)))
