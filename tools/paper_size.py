"""How long the paper's grid takes on GPUs, from counted operations: python tools/paper_size.py [--gpus 8] [--seeds 3]

Nobody here has run it on a GPU. Multiply-adds of convolutions and linear layers are counted on one image. Training is
three forward passes (forward, gradient of the inputs, gradient of the weights), at two operations a multiply-add. A GPU
reaches a share of its peak, which is assumed: the two ends of SHARES. Everything else in a step (normalisation, memory)
is in that share. Corruptions, scores and calibrators run on the CPU and are not counted.
"""

import argparse
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shiftprism.backbones import BACKBONES
from shiftprism.benchmark import MODELS, Plan
from shiftprism.training import PRESETS

A100_TF32 = 156e12
"""Operations a second by NVIDIA's data sheet; PyTorch's convolutions use TF32 for float32 by default."""
SHARES = (0.15, 0.40)
"""Of the peak, slowest and fastest: an assumption."""
TRAINING_IMAGES = 50_000
MEASURED_IMAGES = 75 * 10_000 + 3 * 10_000 + 26_032
"""Of one network: 15 corruptions × 5 severities, clean, the other CIFAR, Tiny ImageNet, SVHN."""
PENALTY = {"duq": 2.0}
"""How many times as much a step costs where a gradient of a gradient is needed: an estimate."""


class Grid(NamedTuple):
    """A grid of networks, in units of one network without a penalty."""

    networks: int
    units: float


def count_multiply_adds(backbone: nn.Module, channels: int = 3, size: int = 32) -> int:
    """Multiply-adds of all convolutions and linear layers for one image; the backbone may be on the meta device."""
    total = 0

    def add(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d | nn.Linear)
        total += output.numel() * module.weight[0].numel()

    hooks = [one.register_forward_hook(add) for one in backbone.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    place = next(backbone.parameters()).device
    with torch.no_grad():
        backbone.eval()(torch.zeros(1, channels, size, size, device=place))
    for hook in hooks:
        hook.remove()
    return total


def hours_of_network(multiply_adds: int, share: float, peak: float = A100_TF32) -> float:
    """Training with the preset `paper` and one pass over everything that is measured."""
    trained = 3 * TRAINING_IMAGES * PRESETS["paper"].epochs
    return 2 * multiply_adds * (trained + MEASURED_IMAGES) / (share * peak) / 3600


def count_grid(seeds: int) -> Grid:
    """The networks of `shiftprism benchmark --suite paper --preset paper --seeds N`; an ensemble is of others."""
    plan = Plan(suite="paper", preset="paper", seeds=seeds).resolve()
    counts = {model: count for model, count in plan.seeds_by_model.items() if not MODELS[model].members}
    units = sum(count * PENALTY.get(model, 1.0) for model, count in counts.items())
    return Grid(len(plan.data_sets) * sum(counts.values()), len(plan.data_sets) * units)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="of each model (3)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8], help="how many GPUs (1 8)")
    parser.add_argument("--tflops", type=float, default=A100_TF32 / 1e12, help="peak of one GPU (an A100's TF32: 156)")
    asked = parser.parse_args()
    with torch.device("meta"):
        backbone = BACKBONES["wrn-28-10"]()
    multiply_adds = count_multiply_adds(backbone)
    print(f"wrn-28-10: {multiply_adds / 1e9:.2f} G multiply-adds an image of 32 × 32")
    slow, fast = (hours_of_network(multiply_adds, share, asked.tflops * 1e12) for share in SHARES)
    print(f"One network: {fast:.1f} to {slow:.1f} hours ({SHARES[1]:.0%} to {SHARES[0]:.0%} of the peak)")
    grid = count_grid(asked.seeds)
    for gpus in asked.gpus:
        rounds = math.ceil(grid.units / gpus)  # a network is on one GPU from start to end
        print(f"{grid.networks} networks on {gpus} GPU: {rounds * fast:.0f} to {rounds * slow:.0f} hours")


if __name__ == "__main__":
    main()
