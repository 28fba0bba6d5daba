"""Which precision a run trains in: the one place where `precision="auto"` becomes float32 or bfloat16."""

import copy
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from shiftprism.classifier import Classifier
from shiftprism.training._network import Network
from shiftprism.training._processes import Processes
from shiftprism.training._settings import Training
from shiftprism.training._state import read_state_settings

CLEARLY_FASTER = 1.2
"""How many times as fast bfloat16 must be to be chosen: noise must not decide, and float32 has more digits."""


def decide_precision(
    training: Training, classifier: Classifier, images: Tensor, processes: Processes, state: Path | None
) -> Training:
    """The settings with `precision="auto"` replaced: by that of the saved `state`, or else by what is faster here."""
    if training.precision != "auto":
        return training
    if state is not None and state.exists():
        return replace(training, precision=read_state_settings(state).get("precision", "float32"))
    # the mean over all processes, so that all of them decide alike
    speedup = processes.total(_speedup(training, classifier, processes.shard(images[: training.batch])))[0]
    faster = speedup / processes.count > CLEARLY_FASTER
    return replace(training, precision="bfloat16" if faster else "float32")


def _speedup(training: Training, classifier: Classifier, images: Tensor, rounds: int = 4) -> float:
    """Seconds of a step in float32 over those in bfloat16; each is the best of some steps, the first not counted."""
    device = classifier.mean.device
    images = images.to(device)
    best = {"float32": float("inf"), "bfloat16": float("inf")}
    # the weights of the run must not depend on whether this was measured; without a list, fork_rng takes every GPU
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for turn in range(rounds):
            for precision in best:
                network = Network(copy.deepcopy(classifier), replace(training, precision=precision)).train()
                began = time.perf_counter()
                _, _, logits, _ = network(images)
                logits.logsumexp(1).mean().backward()
                # a GPU only queues the step: reading a gradient waits for its end
                next(p.grad for p in network.parameters() if p.grad is not None).sum().item()
                if turn:
                    best[precision] = min(best[precision], time.perf_counter() - began)
    return best["float32"] / best["bfloat16"]
