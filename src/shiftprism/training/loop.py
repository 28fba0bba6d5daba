"""The loop, all of it visible: batches, a step, the epoch's record, and a state to go on from."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.classifier import Classifier
from shiftprism.datasets import Dataset
from shiftprism.training.augmentation import augment
from shiftprism.training.network import Network
from shiftprism.training.precision import settled
from shiftprism.training.processes import Processes, restore, share_statistics
from shiftprism.training.settings import Training
from shiftprism.training.state import State, load_state, save_state, stored_settings


class Progress(NamedTuple):
    """Where a training run stands, told after each step."""

    step: int
    steps: int
    epoch: int
    loss: float
    """Mean over the epoch so far."""
    accuracy: float
    """Share of right predictions in the epoch so far, on augmented images and with weights still moving."""
    images_per_second: float


def train(
    classifier: Classifier,
    data: Dataset,
    training: Training,
    progress: Callable[[Progress], None] | None = None,
    state: Path | None = None,
    processes: Processes | None = None,
    record: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train in place and return a record of each epoch. Equal settings give equal weights on the same machine.

    With `state`, a file written whole after each epoch, a run that was stopped at any moment goes on from its last
    epoch and ends with the same bits. `record` is told the history after each epoch.
    """
    _check(classifier, data)
    together = processes or Processes()
    device = together.device(classifier.mean.device)
    classifier.to(device)
    images, labels = data.images.to(device), data.labels.to(device)
    saved = state if state is not None and state.exists() else None
    before = stored_settings(saved).get("precision") if saved else None
    training = settled(training, classifier, images, together, before)
    head, generator = classifier.head, torch.Generator().manual_seed(training.seed)
    groups = [{"params": list(classifier.backbone.parameters()), "weight_decay": training.weight_decay}]
    groups += head.parameter_groups(training.weight_decay)
    nesterov = training.nesterov and training.momentum > 0
    sgd = torch.optim.SGD(groups, lr=training.rate, momentum=training.momentum, nesterov=nesterov)
    optimizer: torch.optim.Optimizer = sgd
    moving = State(classifier, optimizer, generator)
    if prepare := getattr(classifier.backbone, "prepare", None):
        prepare(classifier.normalise(images[:5000]))  # a stem that is set from the data, before a state may replace it
    history = load_state(saved, moving, training) if saved else []
    if together.count > 1:
        share_statistics(classifier)
    network, optimizer = together.share(Network(classifier, training), optimizer)
    if training.compile:
        network = torch.compile(network)  # type: ignore[assignment]
    per_epoch = math.ceil(len(images) / training.batch)
    steps = training.epochs * per_epoch
    for epoch in range(len(history), training.epochs):
        network.train()
        head.start_epoch()
        began, seen, right, total = time.perf_counter(), 0, 0, 0.0
        order = torch.randperm(len(images), generator=generator).to(device)
        for step, index in enumerate(order.split(training.batch), epoch * per_epoch + 1):
            for group in optimizer.param_groups:
                group["lr"] = training.rate * rate_at((step - 1) / steps, training.warmup)
            batch = together.own(augment(images[index], training.crop, training.flip, generator))
            targets = together.own(labels[index])
            normalised, features, logits = network(batch)
            loss = head.loss(logits, targets) + head.penalty(normalised, logits)
            optimizer.zero_grad()
            (loss * together.weight(len(targets), len(index))).backward()
            if training.clip:
                nn.utils.clip_grad_norm_(classifier.parameters(), training.clip)
            optimizer.step()
            with torch.no_grad():
                head.after_step(features, targets)
                right += int((logits.argmax(1) == targets).sum())
            seen, total = seen + len(targets), total + loss.item() * len(targets)
            if not math.isfinite(total):
                raise FloatingPointError(f"The loss became {loss.item()} at step {step}; a smaller rate may help.")
            if progress is not None:
                speed = seen * together.count / (time.perf_counter() - began)
                progress(Progress(step, steps, epoch + 1, total / seen, right / seen, speed))
        head.end_epoch()
        sums = together.total(total, right, seen)
        history.append(_record(epoch + 1, sums, time.perf_counter() - began) | _scales(classifier, images))
        _keep(together, state, moving, training, history, record)
    restore(classifier)
    classifier.eval()
    return history


def rate_at(part: float, warmup: float) -> float:
    """The factor on the learning rate when `part` of all steps is done: a ramp, then half a cosine.

    >>> [rate_at(part, 0.2) for part in (0.0, 0.1, 0.2, 0.6, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if part < warmup:
        return part / warmup
    return (1 + math.cos(math.pi * (part - warmup) / (1 - warmup))) / 2


def _record(epoch: int, sums: list[float], seconds: float) -> dict[str, Any]:
    total, right, seen = sums
    return {"epoch": epoch, "loss": total / seen, "accuracy": right / seen, "seconds": round(seconds, 3)}


def _scales(classifier: Classifier, images: Tensor, sample: int = 500) -> dict[str, float]:
    """5 %, 50 % and 95 % quantiles of α, β and |f| on the first images: they tell whether the head works."""
    classifier.eval()
    with torch.no_grad():
        features = classifier.features(images[:sample])
        found = {"norm": classifier.head.outputs(features).norms, **classifier.head.scales(features)}
    parts = torch.tensor([0.05, 0.5, 0.95], device=features.device)
    named = {name: torch.quantile(values.float(), parts).tolist() for name, values in found.items()}
    return {
        f"{name}_{part}": round(v, 6) for name, row in named.items() for part, v in zip((5, 50, 95), row, strict=True)
    }


def _keep(
    together: Processes,
    path: Path | None,
    moving: State,
    training: Training,
    history: list[dict[str, Any]],
    record: Callable[[list[dict[str, Any]]], None] | None,
) -> None:
    """One process writes; the others wait for it, so that none runs ahead of what is on the disk."""
    if together.writes:
        shared = together.count > 1
        if shared:
            restore(moving.network)  # the state has the same names on one process and on many
        if path is not None:
            save_state(path, moving, training, history)
        if shared:
            share_statistics(moving.network)
        if record is not None:
            record(history)
    together.wait()


def _check(classifier: Classifier, data: Dataset) -> None:
    if len(data.images) == 0:
        raise wrong("data", "non-empty", "no images", "train on at least one")
    if data.images.dtype != torch.uint8 or data.images.ndim != 4:
        got = f"{data.images.dtype} of shape {tuple(data.images.shape)}"
        raise wrong("data.images", "uint8 of shape (N, C, H, W)", got, "load it with shiftprism.datasets.load")
    low, high, known = int(data.labels.min()), int(data.labels.max()), classifier.head.out_features
    if low < 0 or high >= known:
        got = f"values from {low} to {high}"
        raise wrong("data.labels", f"between 0 and {known - 1}", got, "the model has fewer classes")
