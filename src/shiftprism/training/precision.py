"""Which precision is faster on this machine for this network: measured, not assumed."""

import copy
import time
from dataclasses import replace

import torch
from torch import Tensor, nn

from shiftprism.classifier import Classifier
from shiftprism.training.network import Network
from shiftprism.training.processes import Processes
from shiftprism.training.settings import Training

CLEARLY = 1.2
"""How many times as fast bfloat16 must be to be chosen: noise must not decide, and float32 has more digits."""


def settled(
    training: Training, classifier: Classifier, images: Tensor, together: Processes, before: str | None
) -> Training:
    """The settings with `precision="auto"` replaced by what a run `before` took, or else by what is faster here."""
    if training.precision != "auto":
        return training
    if before is None:
        (gain,) = together.total(_gain(training, classifier, together.own(images[: training.batch])))
        before = "bfloat16" if gain / together.count > CLEARLY else "float32"
    return replace(training, precision=before)


def _gain(training: Training, classifier: Classifier, images: Tensor, rounds: int = 4) -> float:
    """Seconds of a step in float32 over those in bfloat16, each the best of some, taken in turn after a first one."""
    images = images.to(classifier.mean.device)
    best = {"float32": float("inf"), "bfloat16": float("inf")}
    with torch.random.fork_rng():
        for turn in range(rounds):
            for precision in best:
                network = Network(copy.deepcopy(classifier), replace(training, precision=precision)).train()
                began = time.perf_counter()
                _step(network, images)
                if turn:
                    best[precision] = min(best[precision], time.perf_counter() - began)
    return best["float32"] / best["bfloat16"]


def _step(network: nn.Module, images: Tensor) -> None:
    _, _, logits = network(images)
    logits.logsumexp(1).mean().backward()
