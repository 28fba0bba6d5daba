"""A whole data set through a classifier, once: in order, in bounded memory, by one process or by several."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism._files import tensor_bytes
from shiftprism.classifier._classifier import Classifier
from shiftprism.outputs import Outputs
from shiftprism.style import VERSION

_COPIES_ASIDE = ("cuda",)
"""Types of devices that copy between pinned memory and their own while they compute."""


def predict(
    classifier: Classifier, images: Any, batch: int | None = None, cache: str | Path | None = None
) -> tuple[Outputs, Tensor | None]:
    """The Outputs of all `images`, each forwarded once, and their labels or None; on the CPU and in order.

    The work is done where the model is, in its own precision. The Outputs of a float16 or bfloat16 model come back in
    float32, so that scores are computed in it; those of a double model stay double.
    `images` is a tensor (N, C, H, W), a `Dataset`, or an iterable of batches: tensors or (images, labels) pairs.
    With `cache`, a file that holds the Outputs of these weights and images is read instead; any other is replaced.
    `batch` images go through at a time: 128 by default on a CPU, whose caches hold no more, 512 elsewhere.
    Among several processes, each forwards its part of a tensor or `Dataset`, and all get the Outputs of the whole.
    """
    labels = None
    if hasattr(images, "images"):
        images, labels = images.images, images.labels
    if isinstance(images, Tensor):
        check_images(images)
        batch = batch or (128 if classifier.mean.device.type == "cpu" else 512)
        if cache is not None:
            return _predict_with_cache(classifier, images, batch, Path(cache), labels), labels
        return _predict_tensor(classifier, images, batch), labels
    if cache is not None:
        advice = "pass the images as one tensor to have them fingerprinted"
        raise wrong("cache", "None for a loader", str(cache), advice)
    return _predict_batches(classifier, images)


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of uint8 images, or of floats in [0, 1]."""
    if not isinstance(images, Tensor):
        raise wrong("images", "a tensor (N, C, H, W)", type(images).__name__, "convert it with torch.as_tensor")
    if len(images) == 0:
        raise wrong("images", "non-empty", f"shape {tuple(images.shape)}", "pass at least one image")
    if images.is_floating_point():
        low, high = float(images.min()), float(images.max())
        if not (low >= -1e-6 and high <= 1 + 1e-6):  # in this form NaN is refused too
            got, advice = f"values from {low:.4g} to {high:.4g}", "pass images before normalisation"
            raise wrong("images", "in [0, 1]", got, f"the classifier normalises inside: {advice}")


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and back in its own mode afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def _predict_with_cache(
    classifier: Classifier, images: Tensor, batch: int, path: Path, labels: Tensor | None
) -> Outputs:
    model = f"{classifier.fingerprint()} {VERSION}"  # Outputs of the same weights with another style are others
    fingerprint = hashlib.sha256(model.encode() + tensor_bytes(images)).hexdigest()
    try:
        return Outputs.load(path, fingerprint)[0]
    except (ValueError, OSError):  # absent, cut off, or of another model or other data: computed again
        outputs = _predict_tensor(classifier, images, batch)
        if not dist.is_initialized() or dist.get_rank() == 0:
            outputs.save(path, labels, fingerprint)
        return outputs


def _predict_tensor(classifier: Classifier, images: Tensor, batch: int) -> Outputs:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _predict_batches(classifier, images.split(batch))[0]
    parts = images.tensor_split(dist.get_world_size())
    # A process without images of its own still has to take part in the gathering: it forwards one and sends no rows.
    part = parts[dist.get_rank()] if len(parts[dist.get_rank()]) else images[:1]
    outputs, _ = _predict_batches(classifier, part.split(batch))
    sizes = [len(part) for part in parts]
    return Outputs(*(_gather_rows(field.to(classifier.mean.device), sizes).cpu() for field in outputs))


def _gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes in order; all_gather needs equal shapes, so each sends as many as the largest part."""
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])


def _predict_batches(classifier: Classifier, batches: Iterable[Any]) -> tuple[Outputs, Tensor | None]:
    labels: list[Any] = []

    def forward() -> Iterator[Outputs]:
        for item in batches:
            images, targets = (item[0], item[1]) if isinstance(item, tuple | list) else (item, None)
            check_images(images)
            labels.append(targets)
            yield classifier.outputs(_send(images, classifier.mean.device))

    with evaluation_mode(classifier), torch.no_grad():
        outputs = [_widen(part) for part in _bring_back(forward(), classifier.mean.device)]
    if not outputs:
        raise wrong("images", "non-empty", "no batches", "pass at least one image")
    given = [torch.as_tensor(part).cpu() for part in labels if part is not None]
    return Outputs.concat(outputs).check(), torch.cat(given) if len(given) == len(outputs) else None


def _send(images: Tensor, device: torch.device) -> Tensor:
    if device.type in _COPIES_ASIDE and images.device.type == "cpu":
        return images.pin_memory().to(device, non_blocking=True)
    return images.to(device)


def _bring_back(batches: Iterable[Outputs], device: torch.device) -> Iterator[Outputs]:
    """The same Outputs on the CPU, in order.

    From a device that copies aside, one batch late: it comes back while the next one is computed.
    """
    if device.type not in _COPIES_ASIDE:
        yield from (outputs.to("cpu") for outputs in batches)
        return
    pending: tuple[Outputs, Any] | None = None
    for outputs in batches:
        # into pinned memory, which torch allocates for such a copy; its values are not there before the event
        copied = Outputs(*(field.to("cpu", non_blocking=True) for field in outputs))
        # on the stream of the model's device, which need not be torch's current one
        event = torch.cuda.current_stream(outputs[4].device).record_event()
        if pending is not None:
            yield _wait_for(*pending)
        pending = copied, event
    if pending is not None:
        yield _wait_for(*pending)


def _wait_for(copied: Outputs, event: Any) -> Outputs:
    event.synchronize()
    # out of pinned memory, of which a machine has little, and which the next batch uses again
    return Outputs(*(field.clone() for field in copied))


def _widen(outputs: Outputs) -> Outputs:
    """Half types as float32, wider ones as they are."""
    return Outputs(*(field.to(torch.promote_types(field.dtype, torch.float32)) for field in outputs))
