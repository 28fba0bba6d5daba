"""A classifier as the loop calls it."""

import torch
from torch import Tensor, nn

from shiftprism.classifier import Classifier
from shiftprism.training._rotation import Rotation
from shiftprism.training._settings import Training


class Network(nn.Module):
    """A classifier as the loop calls it: all outputs in one forward, so that DDP and compile see every parameter."""

    def __init__(self, classifier: Classifier, training: Training, rotation: Rotation | None = None) -> None:
        super().__init__()
        self.classifier = classifier
        self.rotation = rotation
        self.low_precision = training.precision == "bfloat16"
        self.format = torch.channels_last if training.channels_last else torch.contiguous_format

    def forward(self, images: Tensor, rotated: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """(normalised images, features, logits, logits of rotations); the last are those of `images`, then `rotated`.

        Both go through the backbone as one batch, as published: its batch statistics are those of both together.
        """
        normalised = self._normalise(images)
        if self.classifier.head.needs_image_gradient:
            normalised.requires_grad_()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.low_precision):
            features = self.classifier.backbone(
                _join(normalised, None if rotated is None else self._normalise(rotated))
            )
        features = features.float()  # the head computes norms and angles, which need float32's digits
        if self.rotation is None or rotated is None:
            return normalised, features, self.classifier.head(features), None
        rotations = self.rotation(features)
        features = features[: len(images)]  # the head never sees a rotated image
        return normalised, features, self.classifier.head(features), rotations

    def _normalise(self, images: Tensor) -> Tensor:
        return self.classifier.normalise(images).to(memory_format=self.format)


def _join(images: Tensor, others: Tensor | None) -> Tensor:
    return images if others is None else torch.cat([images, others])
