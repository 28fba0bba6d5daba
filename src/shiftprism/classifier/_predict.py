"""A whole data set through a classifier, once: in order, in bounded memory, by one process or by several."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.classifier._classifier import Classifier, bytes_of
from shiftprism.outputs import Outputs


def predict(
    classifier: Classifier, images: Any, batch: int | None = None, cache: str | Path | None = None
) -> tuple[Outputs, Tensor | None]:
    """The whole of `images` through the classifier once: (Outputs, labels or None), on the CPU and in order.

    `images` is a tensor (N, C, H, W), a `Dataset`, or an iterable of batches: tensors or (images, labels) pairs.
    With `cache`, a file that holds the Outputs of these weights and images is read instead; any other is replaced.
    `batch` images go through at a time: 128 by default on a CPU, whose caches hold no more, 512 elsewhere.
    Among several processes each forwards its part of a tensor or `Dataset`, and every one gets the whole.
    """
    labels = None
    if hasattr(images, "images"):
        images, labels = images.images, images.labels
    if isinstance(images, Tensor):
        check_images(images)
        batch = batch or (128 if classifier.mean.device.type == "cpu" else 512)
        if cache is not None:
            return _cached(classifier, images, batch, Path(cache), labels), labels
        return _whole(classifier, images, batch), labels
    if cache is not None:
        advice = "pass the images as one tensor to have them fingerprinted"
        raise wrong("cache", "None for a loader", str(cache), advice)
    return _forward(classifier, images)


def _whole(classifier: Classifier, images: Tensor, batch: int) -> Outputs:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _forward(classifier, images.split(batch))[0]
    parts = images.tensor_split(dist.get_world_size())
    # a process without an image of its own forwards one, and gives none of its rows
    own = parts[dist.get_rank()] if len(parts[dist.get_rank()]) else images[:1]
    outputs, _ = _forward(classifier, own.split(batch))
    sizes = [len(part) for part in parts]
    return Outputs(*(_gathered(field.to(classifier.mean.device), sizes).cpu() for field in outputs))


def _gathered(own: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes in order; each sends as many as the one that has most."""
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    everyone = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(everyone, padded)
    return torch.cat([rows[:size] for rows, size in zip(everyone, sizes, strict=True)])


def _forward(classifier: Classifier, batches: Iterable[Any]) -> tuple[Outputs, Tensor | None]:
    device, training = classifier.mean.device, classifier.training
    outputs, labels = [], []
    classifier.eval()
    try:
        with torch.no_grad():
            for item in batches:
                images, targets = (item[0], item[1]) if isinstance(item, tuple | list) else (item, None)
                check_images(images)
                outputs.append(classifier.outputs(images.to(device)).to("cpu"))
                labels.append(targets)
    finally:
        classifier.train(training)
    if not outputs:
        raise wrong("images", "non-empty", "no batches", "pass at least one image")
    known = [torch.as_tensor(part) for part in labels if part is not None]
    return Outputs.concat(outputs).check(), torch.cat(known) if len(known) == len(outputs) else None


def _cached(classifier: Classifier, images: Tensor, batch: int, path: Path, labels: Tensor | None) -> Outputs:
    fingerprint = hashlib.sha256(classifier.fingerprint().encode() + bytes_of(images)).hexdigest()
    try:
        return Outputs.load(path, fingerprint)[0]
    except (ValueError, OSError):  # absent, cut off, or of another model or other data: made anew
        outputs = _whole(classifier, images, batch)
        if not dist.is_initialized() or dist.get_rank() == 0:
            outputs.save(path, labels, fingerprint)
        return outputs


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of uint8 images, or of floats in [0, 1]."""
    if not isinstance(images, Tensor):
        raise wrong("images", "a tensor (N, C, H, W)", type(images).__name__, "convert it with torch.as_tensor")
    if len(images) == 0:
        raise wrong("images", "non-empty", f"shape {tuple(images.shape)}", "pass at least one image")
    if images.is_floating_point():
        low, high = float(images.min()), float(images.max())
        if not (low >= -1e-6 and high <= 1 + 1e-6):
            got = f"values from {low:.4g} to {high:.4g}"
            raise wrong(
                "images", "in [0, 1]", got, "the classifier normalises inside: pass images before normalisation"
            )
