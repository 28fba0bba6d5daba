"""What `Classifier.compile` and lower precisions bring: images a second over those of the same network as it is.

Run with: .venv/bin/python speed/inference.py [--rounds 9] [--batch 64] [--threads 1]

The networks of speed/style.py. The ways take turns. Reported: the ratio of the best passes, the seconds of the first
compiled pass, and what the options change: the largest difference of a logit, relative to the largest logit, and the
share of images whose predicted class stays. The weights of `fast` are random, so its last column says little.
"""

import argparse
import time
from copy import deepcopy

import torch
from torch import Tensor

from shiftprism import Classifier
from style import networks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    print(
        "| network | option | times as fast | first pass | logits differ by | same class |\n|---|---|--:|--:|--:|--:|"
    )
    for name, classifier, side, _ in networks():
        images = torch.rand(words.batch, 3, side, side, generator=torch.Generator().manual_seed(0))
        compare(name, classifier.eval(), images, words.rounds)


@torch.no_grad()
def compare(name: str, classifier: Classifier, images: Tensor, rounds: int) -> None:
    """Print a row for each option."""
    options = {"as it is": classifier, "bfloat16": deepcopy(classifier).bfloat16(), "compiled": deepcopy(classifier)}
    options["compiled"].compile()
    logits = classifier.outputs(images).logits
    first, best = {}, dict.fromkeys(options, float("inf"))
    for option, own in options.items():
        began = time.perf_counter()
        own.outputs(images)
        first[option] = time.perf_counter() - began
    for _ in range(rounds):
        for option, own in options.items():
            began = time.perf_counter()
            own.outputs(images)
            best[option] = min(best[option], time.perf_counter() - began)
    for option, own in options.items():
        found = own.outputs(images).logits.float()
        apart = float((found - logits).abs().max() / logits.abs().max())
        same = float((found.argmax(1) == logits.argmax(1)).double().mean())
        ratio = best["as it is"] / best[option]
        print(f"| {name} | {option} | {ratio:.2f} | {first[option]:.1f} s | {apart:.1g} | {same:.0%} |", flush=True)


if __name__ == "__main__":
    main()
