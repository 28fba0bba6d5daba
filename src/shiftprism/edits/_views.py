"""Several views of an image, such as the image and its mirror image: their features averaged, and the head asked again.

Unlike in an ensemble one model sees all views, so their features have the same axes.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.classifier import Classifier, predict
from shiftprism.edits._features import _evaluate, _read_features
from shiftprism.heads import Head
from shiftprism.outputs import Outputs

if TYPE_CHECKING:
    from shiftprism.datasets import Dataset


def average_views(views: Sequence[Outputs], *, head: Head) -> Outputs:
    """The head's Outputs of the views' mean features: norms, similarities and logits are those of the mean.

    Their style is the mean of the views'.

    The views are Outputs of one classifier for the same images in the same order, each image seen in another way.

    >>> from shiftprism.heads import Linear
    >>> head = Linear(2, 3)
    >>> left, right = (head.outputs(torch.tensor([row])) for row in ([2.0, 0.0], [4.0, 8.0]))
    >>> average_views([left, right], head=head).norms
    tensor([5.])
    """
    views = list(views)
    if not views or not all(isinstance(view, Outputs) for view in views):
        raise wrong("views", "one Outputs or more", f"{[type(view).__name__ for view in views]}", "predict each view")
    features = [_read_features(view, head) for view in views]
    if len({tuple(each.shape) for each in features}) > 1 or len({view.S for view in views}) > 1:
        got = "features of shapes " + ", ".join(str(tuple(each.shape)) for each in features)
        raise wrong("views", "of the same images", got, "predict every view of the same images")
    mean = torch.stack(features).mean(0)
    # `predict` brings Outputs to the CPU, and those of a half precision to float32; the head may be elsewhere
    own = next(chain(head.parameters(), head.buffers()))
    style = torch.stack([view[5] for view in views]).mean(0)  # by number, as it may be absent
    with torch.set_grad_enabled(mean.requires_grad):
        averaged = _evaluate(views[0]._replace(style=style), head, mean.to(own))
    return Outputs(*(field.to(mean) for field in averaged))


def predict_mirrored(
    classifier: Classifier, images: "Tensor | Dataset", batch: int | None = None
) -> tuple[Outputs, Tensor | None]:
    """The Outputs of images averaged with their mirror images, and their labels or None: `predict` in two passes.

    Left and right become the same, so it suits networks that were trained with `flip`, and not digits or text.

    >>> classifier = Classifier.build("digits", "vanilla", names=("cat", "dog"), channels=1)
    >>> images = torch.rand(2, 1, 8, 8)
    >>> ours, mirrored = (predict_mirrored(classifier, view)[0] for view in (images, images.flip(3)))
    >>> torch.equal(ours.norms, mirrored.norms)
    True
    """
    pixels, labels = (images, None) if isinstance(images, Tensor) else (images.images, images.labels)
    views = [predict(classifier, view, batch)[0] for view in (pixels, pixels.flip(3))]
    return average_views(views, head=classifier.head), labels
