"""The evidence that the package carries: python tools/bundle.py VANILLA_RUN ALPHA_BETA_RUN --root DATA

Takes two finished runs of `shiftprism train --data cifar10 --preset laptop` (seed 0) and forwards evenly spaced samples
of the held-out and test images, of CIFAR-100, SVHN and Tiny ImageNet, and of the 15 corruptions at severities 1, 3, 5.
"""

import argparse
from functools import partial
from pathlib import Path

import torch

from shiftprism.benchmark import Source, gather
from shiftprism.benchmark._bundle import write_bundle
from shiftprism.benchmark._suites import few
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import COMMON
from shiftprism.datasets import Dataset, load
from shiftprism.shifts import Shift, covariate, suite
from shiftprism.training.runs import split
from shiftprism.training.settings import Training, read_settings

PACKAGE = Path(__file__).resolve().parents[1] / "src/shiftprism/benchmark/cifar10.safetensors"


def _some(shift: Shift) -> Dataset:
    return few(shift.make(), 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=PACKAGE)
    words = parser.parse_args()
    test = few(load("cifar10", "test", words.root), 2000)
    others = [one._replace(make=partial(_some, one)) for one in suite("near-far", "cifar10", root=words.root)]
    shifts = others + list(covariate(few(test, 400), COMMON, (1, 3, 5)))
    found = []
    for folder in words.runs:
        config = read_settings(folder / "config.toml")
        classifier = Classifier.load(folder)
        held = few(split("cifar10", Training(held_out=config["held_out"]), words.root)[1], 2000)
        names = (config["head"], "cifar10", config["backbone"], config["head"])
        source = Source(*names, config["seed"], "held-out", classifier.fingerprint()[:12])
        evidence = gather(source, classifier, held, test, shifts)
        found.append((evidence, predict(classifier, held)[0], held.labels))
        right = (evidence.clean.predictions == test.labels).float().mean()
        print(f"{source.model}: {right:.2%} of {len(test.labels)} test images right")
    write_bundle(words.out, found, "shiftprism train --data cifar10 --backbone fast --preset laptop --seed 0")
    print(f"{words.out}: {words.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
