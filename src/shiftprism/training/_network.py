"""A classifier as the loop calls it."""

import torch
from torch import Tensor, nn

from shiftprism.classifier import Classifier
from shiftprism.training._settings import Training


class Network(nn.Module):
    """A classifier as the loop calls it: all outputs in one forward, so that DDP and compile see every parameter."""

    def __init__(self, classifier: Classifier, training: Training) -> None:
        super().__init__()
        self.classifier = classifier
        self.low_precision = training.precision == "bfloat16"
        self.format = torch.channels_last if training.channels_last else torch.contiguous_format

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(normalised images, features, logits)."""
        normalised = self.classifier.normalise(images).to(memory_format=self.format)
        if self.classifier.head.needs_image_gradient:
            normalised.requires_grad_()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.low_precision):
            features = self.classifier.backbone(normalised)
        features = features.float()  # the head computes norms and angles, which need float32's digits
        return normalised, features, self.classifier.head(features)
