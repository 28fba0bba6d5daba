"""The paper's schedule, for those who follow its tables to the letter."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

EPOCHS = 20
BATCH = 128


def schedule(module: nn.Module, loss: Callable[[Tensor], Tensor], samples: int, rate: float = 0.1) -> int:
    """20 epochs of SGD in batches of 128: momentum 0.9, decay 5e-4, cosine from `rate`. Returns the steps taken.

    `loss` gives the loss of the samples at the positions it is handed.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    steps = 0
    for _ in range(EPOCHS):
        for index in torch.randperm(samples).split(BATCH):
            optimizer.zero_grad()
            loss(index).backward()
            optimizer.step()
            steps += 1
        cosine.step()
    return steps
