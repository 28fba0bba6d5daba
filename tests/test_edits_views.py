"""Views of one image: the mean of the features, and a head that is asked again."""

import pytest
import torch

from shiftprism.classifier import Classifier, predict
from shiftprism.edits import average_views, predict_mirrored
from shiftprism.heads import HEADS, Linear
from shiftprism.outputs import Outputs
from trained import digits, train_on_digits

NAMES = ("a", "b", "c")


def classifier_of(head: str) -> Classifier:
    return Classifier.build("digits", head, NAMES, 1, seed=1).eval()


@pytest.mark.parametrize("head", sorted(HEADS))
def test_the_head_is_asked_about_the_mean(head: str) -> None:
    """By hand: all fields are the head's for (f(x) + f(mirrored x)) / 2; its mode does not matter and is kept."""
    classifier, images = classifier_of(head), digits("test").images[:20]
    with torch.no_grad():
        mean = (classifier.features(images) + classifier.features(images.flip(3))) / 2
        expected = classifier.head.outputs(mean)
    classifier.train()
    ours, labels = predict_mirrored(classifier, images)
    views = [predict(classifier, view)[0].style for view in (images, images.flip(3))]
    torch.testing.assert_close(ours.style, (views[0] + views[1]) / 2)
    assert classifier.head.training
    assert labels is None
    for field, theirs in zip(ours[:5], expected[:5], strict=True):  # the sixth, style, is above
        torch.testing.assert_close(field, theirs)
    torch.testing.assert_close(ours.norms, ours.features.norm(dim=1))
    assert not ours.logits.requires_grad


def test_an_image_and_its_mirror_image_are_the_same() -> None:
    classifier, data = train_on_digits("alpha-beta")[0], digits("test").rows(slice(0, 50))
    ours, labels = predict_mirrored(classifier, data, batch=7)
    mirrored, _ = predict_mirrored(classifier, data._replace(images=data.images.flip(3)))
    torch.testing.assert_close(ours.logits, mirrored.logits)
    assert labels is data.labels
    symmetric = torch.maximum(data.images, data.images.flip(3))
    torch.testing.assert_close(
        predict_mirrored(classifier, symmetric)[0].logits, predict(classifier, symmetric)[0].logits
    )


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float64])
def test_the_precision_is_that_of_predict(precision: torch.dtype) -> None:
    classifier, images = classifier_of("alpha-beta").to(precision), digits("test").images[:5]
    assert predict_mirrored(classifier, images)[0].logits.dtype == predict(classifier, images)[0].logits.dtype


def test_a_gradient_passes() -> None:
    head = Linear(4, 3)
    features = torch.rand(2, 4, requires_grad=True)
    average_views([head.outputs(features), head.outputs(2 * features)], head=head).norms.sum().backward()
    assert features.grad is not None
    assert bool((features.grad != 0).any())


def test_views_that_do_not_fit_are_refused() -> None:
    head = Linear(4, 3)
    one, two = head.outputs(torch.rand(2, 4)), head.outputs(torch.rand(3, 4))
    with pytest.raises(ValueError, match=r"Expected `views` to be of the same images but got .*\(2, 4\), \(3, 4\)"):
        average_views([one, two], head=head)
    with pytest.raises(ValueError, match="Expected `views` to be one Outputs or more"):
        average_views([], head=head)
    with pytest.raises(ValueError, match="Expected `head` to be a shiftprism head of 4 features"):
        average_views([one, one], head=Linear(5, 3))
    with pytest.raises(ValueError, match="with features, but got one made from logits alone"):
        average_views([Outputs.from_logits(torch.zeros(2, 3))], head=head)
