"""Outputs and labels whose best calibration is known, for the tests of calibrators."""

import numpy as np
import torch
from torch import Tensor

from shiftprism.heads import Linear
from shiftprism.outputs import Outputs


def sample_labels(outputs: Outputs, factor: float | Tensor = 1.0, seed: int = 0) -> Tensor:
    """Labels drawn from softmax(factor · raw): the raw logits' true multiplier is `factor`."""
    probabilities = torch.softmax(outputs.raw * factor, 1)
    return torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)


def big(factor: float = 4.0, samples: int = 4000, classes: int = 5, seed: int = 0) -> Outputs:
    """Outputs of a linear head with logits as large as a trained network's."""
    torch.manual_seed(seed)
    head = Linear(8, classes).double()
    with torch.no_grad():
        head.weight.mul_(factor)
        return head.outputs(torch.rand(samples, 8, dtype=torch.float64) * 2)


def make_problem(samples: int = 3000, classes: int = 4, seed: int = 0, scale: float = 3.0) -> tuple[Outputs, Tensor]:
    """Logits with labels from an affine map of them: classes differ, some are taken for others."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(9)
    z = scale * rng.normal(size=(samples, classes))
    true = 0.5 * z + 0.3 * z @ fixed.normal(size=(classes, classes)) + fixed.normal(size=classes)
    labels = (true + rng.gumbel(size=true.shape)).argmax(1)
    return Outputs.from_logits(torch.from_numpy(z)), torch.from_numpy(labels)
