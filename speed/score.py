"""Verdicts on image files beside `predict` on the same images in memory: throughput and memory.

Run with: .venv/bin/python speed/score.py [IMAGES] [ROUNDS] [MODEL]

IMAGES (10,000) CIFAR-10 test images, or random ones where CIFAR-10 is not there, are written as PNG files. Parts of
them go in turn through `predict` from memory and through `score_files` from the files, so that both meet the same load
of the machine. MODEL is a detector (cifar10).
"""

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from shiftprism import Detector, predict
from shiftprism.datasets import load
from shiftprism.detector import score_files


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else 10_000
    rounds = int(sys.argv[2]) if sys.argv[2:] else 10
    detector = Detector.load(sys.argv[3] if sys.argv[3:] else "cifar10")
    assert detector.classifier is not None
    images = read(count)
    with tempfile.TemporaryDirectory() as folder:
        paths = write(images, Path(folder))
        part = count // rounds
        predict(detector.classifier, images[:256])
        ratios, peaks = [], []
        for number in range(rounds):
            rows = slice(number * part, (number + 1) * part)
            began = time.perf_counter()
            predict(detector.classifier, images[rows])
            middle = time.perf_counter()
            scored = sum(file.verdict is not None for file in score_files(detector, paths[rows]))
            ended = time.perf_counter()
            assert scored == part
            ratios.append((middle - began) / (ended - middle))
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            print(
                f"{part / (middle - began):7.0f} images/s in memory, {part / (ended - middle):7.0f} from files",
                flush=True,
            )
        print(
            f"score / predict: {statistics.median(ratios):.2f} (median of {rounds}; "
            f"{min(ratios):.2f} to {max(ratios):.2f})"
        )
        print(f"peak memory: {peaks[0]:.0f} MB after {part} images, {peaks[-1]:.0f} MB after {count}")


def read(count: int) -> torch.Tensor:
    try:
        return load("cifar10", "test").images[:count]
    except FileNotFoundError:
        return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)


def write(images: torch.Tensor, folder: Path) -> list[Path]:
    paths = [folder / f"{number:05}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path, compress_level=1)
    return paths


if __name__ == "__main__":
    main()
