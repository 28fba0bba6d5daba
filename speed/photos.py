"""Peak memory and speed of forwarding photographs from the disk, for growing numbers of them.

Run with: .venv/bin/python speed/photos.py FOLDER [--numbers 250 1000 4000]

FOLDER has image files; they are taken again and again until there are enough. Each number has a process of its own. The
network is small, so that the memory is that of images and Outputs: 224 × 224 pixels, 64 features, 1,000 classes.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from shiftprism import adapt
from shiftprism.benchmark._photos import Photographs, predict_photographs
from shiftprism.classifier import Preprocessing
from shiftprism.datasets import list_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--numbers", type=int, nargs="+", default=[250, 1000, 4000])
    parser.add_argument("--alone", action="store_true", help="in this process")
    words = parser.parse_args()
    if words.alone:
        measure(words.folder, words.numbers[0])
        return
    print("| photographs | a second | peak memory | of it Outputs |\n|--:|--:|--:|--:|", flush=True)
    for number in words.numbers:
        subprocess.run([sys.executable, __file__, str(words.folder), "--alone", "--numbers", str(number)], check=True)


def measure(folder: Path, number: int) -> None:
    """Forward so many photographs, and print a row of the table."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 64, 16, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000)
    )
    rule = Preprocessing(size=(224, 224), resize=256, channels=3)
    classifier = adapt(network, torch.rand(2, 3, 224, 224), preprocessing=rule)
    paths = list_images(folder)
    rows = torch.arange(number) % len(paths)
    labels = torch.zeros(number, dtype=torch.int64)
    images = tuple(paths[row] for row in rows.tolist())
    data = Photographs(images, labels, classifier.names, torch.arange(number))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        outputs = predict_photographs(classifier, data, Path(place) / "outputs.safetensors")
    speed = number / (time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    own = sum(field.nbytes for field in outputs) / 2**20
    print(f"| {number:,} | {speed:.0f} | {peak:.0f} MB | {own:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
