"""The paper's schedule of calibration, for those who follow its tables to the letter."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from shiftprism._checks import Floats

EPOCHS = 20
BATCH = 128
NOTE = "a fixed schedule: convergence is not checked"


def train_linear(
    sizes: tuple[int, int],
    loss: Callable[[nn.Linear, Tensor], Tensor],
    samples: int,
    *,
    rate: float = 0.1,
    seed: int = 0,
) -> tuple[Floats, Floats, int]:
    """20 epochs of SGD on a fresh `nn.Linear(*sizes)`: batches of 128, momentum 0.9, decay 5e-4, cosine from `rate`.

    `loss(layer, index)` is the loss of the samples at the positions `index`. Returns weight, bias and the steps taken.
    The global random state is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(*sizes)
        optimizer = torch.optim.SGD(layer.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        steps = 0
        for _ in range(EPOCHS):
            for index in torch.randperm(samples).split(BATCH):
                optimizer.zero_grad()
                loss(layer, index).backward()
                optimizer.step()
                steps += 1
            cosine.step()
    return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy(), steps
