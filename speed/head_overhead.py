"""What the α-β head costs: a training step of WRN-16-4 with it over one without, interleaved in one run.

Run with: .venv/bin/python speed/head_overhead.py [--rounds 12] [--batch 64]

The two networks take turns, so that noise of the machine meets both alike. Reported: the ratio of the best times, the
median of the ratios of neighbouring steps, and the parameters added, 2 (D + 1).
"""

import argparse
import time
from statistics import median

import torch
from torch import nn

from shiftprism.backbones import BACKBONES
from shiftprism.heads import HEADS


def network(head: str) -> nn.Sequential:
    torch.manual_seed(0)
    body = BACKBONES["wrn-16-4"](channels=3)
    made = nn.Sequential(body, HEADS[head](256, 10))
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    words = parser.parse_args()
    images = torch.rand(words.batch, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (words.batch,))
    networks = {name: network(name) for name in ("vanilla", "alpha-beta")}
    optimizers = {name: torch.optim.SGD(n.parameters(), lr=0.01, momentum=0.9) for name, n in networks.items()}
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for number in range(words.rounds + 2):
        for name, made in networks.items():
            began = time.perf_counter()
            optimizers[name].zero_grad()
            nn.functional.cross_entropy(made(images), labels).backward()
            optimizers[name].step()
            if number >= 2:  # the first steps choose kernels
                seconds[name].append(time.perf_counter() - began)
    ratios = [b / a for a, b in zip(seconds["vanilla"], seconds["alpha-beta"], strict=True)]
    counts = {name: sum(p.numel() for p in made.parameters()) for name, made in networks.items()}
    print(f"best step: vanilla {min(seconds['vanilla']):.3f} s, alpha-beta {min(seconds['alpha-beta']):.3f} s")
    print(f"ratio of the best: {min(seconds['alpha-beta']) / min(seconds['vanilla']):.3f} (goal: at most 1.02)")
    print(f"median ratio of neighbours: {median(ratios):.3f} over {len(ratios)}")
    print(f"parameters added: {counts['alpha-beta'] - counts['vanilla']} = 2 (256 + 1)")


if __name__ == "__main__":
    main()
