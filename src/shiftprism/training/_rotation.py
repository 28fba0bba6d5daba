"""Rotation prediction: a second task that needs no labels, trained beside the classes and thrown away afterwards.

Reference: Hendrycks, Mazeika, Kadavath and Song, "Using Self-Supervised Learning Can Improve Model Robustness and
Uncertainty", 2019. It forwards each image in all four rotations, at four times the cost of plain training. Here half of
the batch is forwarded once more, each image in one rotation, at one and a half times the cost: see `Rotation.measure`.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Measured(NamedTuple):
    """One process's part of the loss and of the share of rotations that are recognised."""

    loss: Tensor
    accuracy: float


class Rotation(nn.Module):
    """The linear layer that tells from the features by how many quarter turns an image was rotated.

    Class 0 is upright; class c is `turns[c - 1]` quarter turns. Square images have three such classes. Others have one,
    half a turn, because a quarter turn would change their shape.

    >>> Rotation(64, 8, 8)(torch.zeros(2, 64)).shape, Rotation(64, 8, 12).turns
    (torch.Size([2, 4]), (2,))
    """

    def __init__(self, in_features: int, height: int, width: int) -> None:
        super().__init__()
        self.turns = (1, 2, 3) if height == width else (2,)
        with torch.random.fork_rng(devices=[]):  # what else is drawn must not depend on this task
            self.layer = nn.Linear(in_features, 1 + len(self.turns))
        # a softmax regression may start at 0, so that no seed is needed
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.layer(features)
        return logits

    def rotate_half(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The first half of a batch (N, C, H, W), each image rotated by turns drawn for it, and the classes (⌈N/2⌉,).

        A training batch is in random order, so its first half is a random one.
        """
        half = images[: (len(images) + 1) // 2]
        classes = torch.randint(1, 1 + len(self.turns), (len(half),), generator=generator).to(images.device)
        rotated = torch.empty_like(half)
        for number, turns in enumerate(self.turns, 1):
            rows = (classes == number).nonzero().squeeze(1)
            rotated.index_copy_(0, rows, torch.rot90(half.index_select(0, rows), turns, (2, 3)))
        return rotated, classes

    def measure(self, logits: Tensor, classes: Tensor, upright: int, rotated: int) -> "Measured":
        """This process's part of loss and accuracy: summed over processes they are means over R rotations.

        L = 1/R · mean of −ln p(0 | x) over the batch + (R − 1)/R · mean of −ln p(c | x rotated) over the rotated half.

        With R = 4 its expectation is the published loss, the mean over all images in all four rotations. `logits` are
        those of upright images, then of rotated ones of these `classes`. `upright` and `rotated` are their numbers over
        all processes: a part may be empty.
        """
        first = len(logits) - len(classes)
        classes = torch.cat([classes.new_zeros(first), classes])
        share = 1 / logits.shape[1]
        weights = logits.new_full((len(logits),), (1 - share) / rotated)
        weights[:first] = share / upright
        correct = (logits.detach().argmax(1) == classes).to(weights)
        return Measured(weights @ F.cross_entropy(logits, classes, reduction="none"), float(weights @ correct))
