"""The loop, all of it visible: batches, a step, the epoch's record, and a state to resume from."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shiftprism._errors import wrong
from shiftprism.classifier import Classifier
from shiftprism.datasets import Dataset
from shiftprism.training._augmentation import augment
from shiftprism.training._network import Network
from shiftprism.training._pictures import make_mixing_pictures
from shiftprism.training._pixmix import pixmix
from shiftprism.training._precision import decide_precision
from shiftprism.training._processes import Processes, share_statistics, unshare_statistics
from shiftprism.training._rotation import Rotation
from shiftprism.training._settings import Training
from shiftprism.training._state import State, load_state, save_checkpoint, save_state


class Progress(NamedTuple):
    """Where a training run stands, reported after each step."""

    step: int
    steps: int
    epoch: int
    loss: float
    """Mean over the epoch so far of all that is minimised."""
    accuracy: float
    """Share of correct predictions in the epoch so far, on augmented images and with weights that still change."""
    images_per_second: float


def train(
    classifier: Classifier,
    data: Dataset,
    training: Training,
    progress: Callable[[Progress], None] | None = None,
    *,
    state: Path | None = None,
    checkpoints: Path | None = None,
    processes: Processes | None = None,
    record: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train in place and return a record of each epoch. Equal settings give equal weights on the same machine.

    `state` is a file that is written whole after each epoch: a run that was stopped at any moment resumes from its
    last epoch and ends with the same bits. `checkpoints` is a folder for the models that `training.keep` asks for, one
    in checkpoints/EPOCH each; without it none is kept. `progress` is called after each step, `record` with the history
    after each epoch.
    """
    _check_data(classifier, data)
    height, width = data.images.shape[2:]
    classifier.image_size = (height, width)
    processes = processes or Processes()
    device = processes.device(classifier.mean.device)
    classifier.to(device)
    images, labels = data.images.to(device), data.labels.to(device)
    training = decide_precision(training, classifier, images, processes, state)
    head, generator = classifier.head, torch.Generator().manual_seed(training.seed)
    rotation = Rotation(head.in_features, height, width).to(device) if training.rotation else None
    optimizer = _make_optimizer(classifier, rotation, training)
    current = State(classifier, optimizer, generator, rotation)
    # a stem that is set from the data, before a saved state may replace it
    if prepare := getattr(classifier.backbone, "prepare", None):
        prepare(classifier.normalise(images[:5000]))
    history = load_state(state, current, training) if state is not None and state.exists() else []
    shared = processes.count > 1
    if shared:
        share_statistics(classifier)
    # from here on `network` and `optimizer` may be wrappers; `current` keeps what they wrap, which is what is saved
    network, optimizer = processes.share(Network(classifier, training, rotation), optimizer)
    if training.compile:
        network = torch.compile(network)  # type: ignore[assignment]
    pictures = make_mixing_pictures(height, width, images.shape[1]).to(device) if training.pixmix else None
    per_epoch = math.ceil(len(images) / training.batch)
    steps = training.epochs * per_epoch
    for epoch in range(len(history), training.epochs):
        network.train()
        head.start_epoch()
        began, seen, correct, total = time.perf_counter(), 0, 0, 0.0
        turn_loss, turn_accuracy = 0.0, 0.0
        order = torch.randperm(len(images), generator=generator).to(device)
        for step, index in enumerate(order.split(training.batch), epoch * per_epoch + 1):
            for group in optimizer.param_groups:  # a head's parameters may be a group of their own
                group["lr"] = training.rate * rate_at((step - 1) / steps, training.warmup)
            # every process augments the whole batch and takes its part: the draws do not depend on their number
            batch = augment(images[index], training.crop, training.flip, generator)
            if pictures is not None and epoch >= round(training.pixmix_from * training.epochs):
                batch = pixmix(batch, pictures, training.pixmix, generator)
            rotated, turns = (None, None) if rotation is None else rotation.rotate_half(batch, generator)
            batch = processes.shard(batch)
            targets = processes.shard(labels[index])
            normalised, features, logits, turn_logits = network(
                batch, None if rotated is None else processes.shard(rotated)
            )
            loss = head.loss(logits, targets) + head.penalty(normalised, logits)
            # DDP averages gradients over processes, whose parts of the last batch may differ by one image
            loss = loss * processes.weight(len(targets), len(index))
            if rotation is not None and turns is not None:
                part = rotation.measure(turn_logits, processes.shard(turns), len(index), len(turns))
                loss = loss + processes.count * training.rotation * part.loss
                turn_loss += part.loss.item() * len(index)
                turn_accuracy += part.accuracy * len(index)
            optimizer.zero_grad()
            loss.backward()
            if training.clip:
                nn.utils.clip_grad_norm_(network.parameters(), training.clip)
            optimizer.step()
            with torch.no_grad():
                head.after_step(features, targets)
                correct += int((logits.argmax(1) == targets).sum())
            seen, total = seen + len(targets), total + loss.item() * len(index) / processes.count
            if not math.isfinite(total):
                raise FloatingPointError(f"The loss became {loss.item()} at step {step}; a smaller rate may help.")
            if progress is not None:
                speed = seen * processes.count / (time.perf_counter() - began)
                progress(Progress(step, steps, epoch + 1, total / seen, correct / seen, speed))
        head.end_epoch()
        seconds = round(time.perf_counter() - began, 3)
        loss_sum, correct_sum, count, *turn_sums = processes.total(total, correct, seen, turn_loss, turn_accuracy)
        means = {"epoch": epoch + 1, "loss": loss_sum / count, "accuracy": correct_sum / count, "seconds": seconds}
        if rotation is not None:
            means |= {"rotation_loss": turn_sums[0] / count, "rotation_accuracy": turn_sums[1] / count}
        history.append(means | _scale_quantiles(classifier, images))
        # one process writes; the others wait for it, so that none runs ahead of what is on the disk
        if processes.writes:
            with _bare_statistics(classifier, shared):
                # before the state: a run that is killed between the two writes the checkpoint again, and misses none
                if checkpoints is not None and training.keep and (epoch + 1) % training.keep == 0:
                    save_checkpoint(checkpoints / str(epoch + 1), classifier, training)
                if state is not None:
                    save_state(state, current, training, history)
            if record is not None:
                record(history)
        processes.wait()
    unshare_statistics(classifier)
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


def _make_optimizer(classifier: Classifier, rotation: Rotation | None, training: Training) -> torch.optim.Optimizer:
    groups = [{"params": list(classifier.backbone.parameters()), "weight_decay": training.weight_decay}]
    groups += classifier.head.parameter_groups(training.weight_decay)
    if rotation is not None:
        groups.append({"params": list(rotation.parameters()), "weight_decay": training.weight_decay})
    nesterov = training.nesterov and training.momentum > 0  # torch refuses it without momentum
    return torch.optim.SGD(groups, lr=training.rate, momentum=training.momentum, nesterov=nesterov)


def _scale_quantiles(classifier: Classifier, images: Tensor, sample: int = 500) -> dict[str, float]:
    """5 %, 50 % and 95 % quantiles of |f|, α and β on the first images: they show whether the head works."""
    classifier.eval()
    with torch.no_grad():
        features = classifier.features(images[:sample])
        scales = {"norm": classifier.head.outputs(features).norms, **classifier.head.scales(features)}
    quantiles = {}
    for name, values in scales.items():
        for percent in (5, 50, 95):
            quantiles[f"{name}_{percent}"] = round(float(torch.quantile(values.float(), percent / 100)), 6)
    return quantiles


@contextmanager
def _bare_statistics(classifier: Classifier, shared: bool) -> Iterator[None]:
    """The network without the wrappers of `shared` statistics: saved names are the same on any number of processes."""
    unshare_statistics(classifier)
    yield
    if shared:
        share_statistics(classifier)


def _check_data(classifier: Classifier, data: Dataset) -> None:
    if len(data.images) == 0:
        raise wrong("data", "non-empty", "no images", "train on at least one")
    if data.images.dtype != torch.uint8 or data.images.ndim != 4:
        got = f"{data.images.dtype} of shape {tuple(data.images.shape)}"
        raise wrong("data.images", "uint8 of shape (N, C, H, W)", got, "load it with shiftprism.datasets.load")
    low, high, classes = int(data.labels.min()), int(data.labels.max()), classifier.head.out_features
    if low < 0 or high >= classes:
        got = f"values from {low} to {high}"
        raise wrong("data.labels", f"between 0 and {classes - 1}", got, "the model has fewer classes")
