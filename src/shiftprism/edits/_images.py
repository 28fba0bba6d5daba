"""Images moved a small step towards a higher score before they are scored: ODIN and Generalized ODIN.

A step of ε moves every pixel of an image in [0, 1] by ε, since a Classifier normalises inside. The public code of both
papers divides the step by the standard deviation of its normalisation, which is the same: published ε can be used.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.classifier import Classifier, check_images, evaluation_mode
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores import Score

EPSILONS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Those from which Generalized ODIN chooses."""


def perturb(classifier: Classifier, images: Tensor, score: Score, epsilon: float, batch: int = 500) -> Tensor:
    """x + ε · sign(∂ score / ∂x) with sign(0) = +1, brought back to [0, 1]: floats (N, C, H, W), on their own device.

    `score` is any differentiable function of Outputs, also one with an edit before it. It costs one forward and one
    backward an image; the weights get no gradient. With ε = 0 nothing changes, bit for bit. The public code of the
    papers lets pixels leave [0, 1]; here they stay inside, which matters where many are black or white.

    >>> from shiftprism.scores import msp
    >>> classifier = Classifier.build("digits", "vanilla", names=("cat", "dog"), channels=1)
    >>> images = torch.rand(2, 1, 8, 8)
    >>> moved = perturb(classifier, images, msp, 0.01)
    >>> bool(((moved - images).abs() <= 0.01 + 1e-6).all())
    True
    """
    pixels = _to_floats(classifier, images)
    if _check_epsilon(epsilon) == 0:
        return pixels
    with evaluation_mode(classifier):
        return torch.cat([_step(part, _direction(classifier, part, score)[0], epsilon) for part in pixels.split(batch)])


def choose_epsilon(
    classifier: Classifier, images: Tensor, score: Score, epsilons: Sequence[float] = EPSILONS, batch: int = 500
) -> float:
    """The ε whose step gives ID images the highest mean score; no OOD data are needed (Hsu et al. 2020, GODIN).

    `images` are held-out ID images. Of equally good ε the smallest is taken. One backward an image serves all ε.
    """
    if not epsilons:
        raise wrong("epsilons", "non-empty", "none", f"{EPSILONS} are its authors'")
    candidates = sorted({_check_epsilon(epsilon) for epsilon in epsilons})
    pixels = _to_floats(classifier, images)
    sums = [0.0] * len(candidates)
    with evaluation_mode(classifier):
        for part in pixels.split(batch):
            direction, style = _direction(classifier, part, score)
            with torch.no_grad():
                for place, epsilon in enumerate(candidates):
                    outputs = _outputs(classifier, _step(part, direction, epsilon))._replace(style=style)
                    sums[place] += float(score(outputs).double().sum())
    return candidates[max(range(len(candidates)), key=lambda place: sums[place])]


def odin(
    classifier: Classifier, images: Tensor, epsilon: float = 0.0014, temperature: float = 1000.0, batch: int = 500
) -> Tensor:
    """ln(K max_k softmax_k(l / T)) after a step up on it, (N,), higher = more in-distribution (Liang et al. 2018).

    ln(K · p) gives the same order as the paper's score p. At T = 1000 all probabilities are nearly 1/K, and float32
    would round different ones to ties; this form keeps their digits. ODIN's authors choose ε on OOD data. The default
    is their choice for CIFAR-10 and a DenseNet; `choose_epsilon(classifier, images, odin_score(T))` needs no OOD data.
    """
    score = odin_score(temperature)
    moved = perturb(classifier, images, score, epsilon, batch)
    with evaluation_mode(classifier), torch.no_grad():
        return torch.cat([score(_outputs(classifier, part)) for part in moved.split(batch)])


def odin_score(temperature: float = 1000.0) -> Score:
    """ODIN's score of Outputs, for `perturb` and `choose_epsilon`: ln(K max_k softmax_k(l / T)).

    >>> odin_score(1.0)(Outputs.from_logits(torch.tensor([[50.0, -50.0]])))
    tensor([0.6931])
    """
    if not temperature > 0:
        raise wrong("temperature", "positive", temperature, "1000 is its authors' choice")
    return partial(_log_top_share, temperature=temperature)


def _log_top_share(outputs: Outputs, temperature: float) -> Tensor:
    """ln(K max_k p_k) = −ln mean_k exp(b_k), with b_k = (l_k − max l)/T; by expm1 and log1p, as b is close to 0."""
    (logits,) = read_fields(outputs, "logits")
    below = (logits - logits.amax(1, keepdim=True)) / temperature
    return -torch.log1p(torch.expm1(below).mean(1))


def _to_floats(classifier: Classifier, images: Tensor) -> Tensor:
    """The images as floats in [0, 1], exactly as the classifier would read them."""
    check_images(images)
    return images.detach().to(classifier.mean.dtype) / 255 if images.dtype == torch.uint8 else images.detach()


def _direction(classifier: Classifier, part: Tensor, score: Score) -> tuple[Tensor, Tensor]:
    """±1 for each pixel, the sign of the score's gradient; and the style of the images before the step."""
    with torch.enable_grad():  # also where the caller has switched gradients off
        pixels = part.clone().requires_grad_()
        outputs = _outputs(classifier, pixels)
        values = score(outputs)
        if not values.requires_grad:
            raise wrong("score", "differentiable", "one without a gradient", "take one that is not made of ranks")
        (gradient,) = torch.autograd.grad(values.sum(), pixels)
    return torch.where(gradient >= 0, 1.0, -1.0).to(part), outputs[5]


def _step(part: Tensor, direction: Tensor, epsilon: float) -> Tensor:
    return part if epsilon == 0 else (part + epsilon * direction).clamp(0, 1)


def _outputs(classifier: Classifier, part: Tensor) -> Outputs:
    return classifier.outputs(part.to(classifier.mean.device))


def _check_epsilon(epsilon: float) -> float:
    if not 0 <= epsilon <= 1:
        raise wrong("epsilon", "from 0 to 1, a step in images of [0, 1],", epsilon, f"try one of {EPSILONS}")
    return float(epsilon)
