"""Single images of files in the form that a model takes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from shiftprism.classifier import Classifier


def prepare_for(classifier: Classifier) -> Callable[[Tensor], Tensor]:
    """`classifier.prepare` for files: grey and RGB become what the model takes, even where its rule names no channels.

    An image that fits already stays uint8: a quarter of the memory, and the same outputs.
    """
    # one mean may serve all channels of a model made of other code
    known = len(classifier.mean) if len(classifier.mean) > 1 or classifier.recipe is not None else None
    rule = replace(classifier.preprocessing, channels=classifier.preprocessing.channels or known)

    def prepare(image: Tensor) -> Tensor:
        if (
            rule.channels == len(image)
            and rule.size == tuple(image.shape[1:])
            and classifier.mean.dtype == torch.float32
        ):
            return image
        if rule.channels not in (None, len(image)):
            image = rule.match_channels(image.float() / 255)
        return classifier.prepare(image)

    return prepare


def stack_images(images: Sequence[Tensor]) -> Tensor:
    """One batch; where some images are floats, the others become floats in [0, 1]."""
    if len({image.dtype for image in images}) > 1:
        images = [image.float() / 255 if image.dtype == torch.uint8 else image.float() for image in images]
    return torch.stack(list(images))
