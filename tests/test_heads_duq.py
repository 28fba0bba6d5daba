"""DUQ: kernel, loss, penalty and centroids, worked by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from examples import features_of
from shiftprism.heads import DUQ, HEADS


def two_classes(gamma: float = 0.9) -> DUQ:
    """Embeddings e_0 = (f_0, f_1) and e_1 = (2 f_1, 0); centroids (1, 1) and (0, 2)."""
    head = DUQ(2, 2, embedding=2, sigma=1.0, gamma=gamma).double()
    with torch.no_grad():
        head.embedding.copy_(torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 1.0], [0.0, 0.0]]]))
        head.counts.copy_(torch.tensor([10.0, 20.0]))
        head.sums.copy_(torch.tensor([[10.0, 0.0], [10.0, 40.0]]))
    return head


def test_the_kernel_by_hand() -> None:
    outputs = two_classes().outputs(torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    # e_0 = (3, 1), off by (2, 0): mean square 2; e_1 = (2, 0), off by (2, -2): mean square 4
    assert outputs.logits.tolist() == [[-1.0, -2.0]]
    assert outputs.raw is outputs.similarities is outputs.logits


def test_the_centroids_after_one_step_by_hand() -> None:
    head = two_classes()
    features = torch.tensor([[3.0, 1.0], [1.0, 3.0], [0.0, 5.0]], dtype=torch.float64)
    head.after_step(features, torch.tensor([0, 0, 1]))
    # n = 0.9 (10, 20) + 0.1 (2, 1); m_0 = 0.9 (10, 10) + 0.1 (3 + 1, 1 + 3); m_1 = 0.9 (0, 40) + 0.1 (10, 0)
    torch.testing.assert_close(head.counts, torch.tensor([9.2, 18.1], dtype=torch.float64))
    torch.testing.assert_close(head.sums, torch.tensor([[9.4, 1.0], [9.4, 36.0]], dtype=torch.float64))
    torch.testing.assert_close(head.centroids, head.sums / torch.tensor([9.2, 18.1], dtype=torch.float64))


def test_a_class_absent_from_the_batch_keeps_its_centroid() -> None:
    head = two_classes()
    head.after_step(torch.ones(3, 2, dtype=torch.float64), torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(head.centroids[:, 1], torch.tensor([0.0, 2.0], dtype=torch.float64))


def test_the_loss_is_the_binary_cross_entropy_of_the_kernels() -> None:
    logits = -features_of(20, 4) - 1e-3
    labels = torch.arange(20) % 4
    expected = F.binary_cross_entropy(logits.exp(), F.one_hot(labels).double())
    torch.testing.assert_close(DUQ(6, 4).loss(logits, labels), expected)


def test_the_loss_is_finite_where_a_wrong_kernel_is_one_or_a_right_one_is_zero() -> None:
    logits = torch.tensor([[0.0, -1e30]], requires_grad=True)
    for label in (0, 1):
        loss = DUQ(6, 2).loss(logits, torch.tensor([label]))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_the_penalty_against_differences() -> None:
    torch.manual_seed(0)
    head = DUQ(6, 4, embedding=5, sigma=1.0, weight=0.5).double()
    images = (0.3 * features_of(8)).reshape(8, 1, 2, 3).requires_grad_()
    found = head.penalty(images, head(images.flatten(1)))
    step, slopes = 1e-6, torch.zeros(8, 6, dtype=torch.float64)
    with torch.no_grad():
        for place in range(6):
            moved = F.one_hot(torch.tensor(place), 6) * step
            above, below = (head(images.flatten(1) + sign * moved).exp().sum(1) for sign in (1, -1))
            slopes[:, place] = (above - below) / (2 * step)
    expected = 0.5 * (slopes.norm(dim=1) - 1).square().mean()
    torch.testing.assert_close(found, expected)
    found.backward()
    assert head.embedding.grad is not None
    assert head.embedding.grad.abs().max() > 0


def test_the_penalty_has_finite_gradients_where_the_kernel_is_flat() -> None:
    head = two_classes()
    images = torch.tensor([[1.0, 1.0], [1e6, 1e6]], dtype=torch.float64, requires_grad=True)
    head.penalty(images, head(images)).backward()
    assert head.embedding.grad is not None
    assert head.embedding.grad.isfinite().all()


def test_published_constants() -> None:
    torch.manual_seed(0)
    head = HEADS["duq"](512, 10)
    assert isinstance(head, DUQ)
    assert (head.sigma, head.gamma, head.penalty_weight, head.needs_image_gradient) == (0.1, 0.999, 0.75, True)
    assert head.embedding.shape == (512, 10, 512)
    assert head.embedding.std().item() == pytest.approx(math.sqrt(2 / 5120), rel=0.01)
    assert head.counts.tolist() == [13] * 10
    assert head.centroids.std().item() == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("settings", [{"embedding": 0}, {"sigma": 0.0}, {"gamma": 1.0}, {"weight": -1.0}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"Expected `{next(iter(settings))}` to be"):
        DUQ(6, 4, **settings)  # type: ignore[arg-type]


def test_the_kernel_narrows_with_the_square_of_sigma() -> None:
    head = two_classes()
    head.sigma = 0.5
    outputs = head.outputs(torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    assert outputs.logits.tolist() == [[-4.0, -8.0]]  # mean squares 2 and 4, by 2 · 0.25
