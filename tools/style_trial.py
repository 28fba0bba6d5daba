"""Does the style carry covariate shift, and is it silent on unseen classes? A logistic regression on a public network.

Run with: .venv/bin/python tools/style_trial.py RESNET20.npz [--root DATA] [--test 300]

Fitted: 4,000 training and 2,000 test images of CIFAR-10 against copies of some under CIFAR-C's four validation
corruptions (speckle noise, gaussian blur, spatter, saturate), all severities. Tested: other test images against
themselves under the 15 test corruptions and against CIFAR-100. Printed: AUROC in %, of three sets of statistics.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism.backbones import BACKBONES, load_arrays
from shiftprism.corruptions import COMMON, EXTRA, corrupt
from shiftprism.datasets import load
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.style import PixelStatistics

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FIRST = ("light dct", "blue dct", "red dct", "shifted dct", "means", "deviations", "laplacian", "clipped")
"""The groups of the first trial."""


def network(path: Path) -> Classifier:
    backbone, head = BACKBONES["resnet20"](), Linear(64, 10, bias=True)
    load_arrays(path, backbone, head)
    return Classifier(backbone, head, MEAN, STD).eval()


def columns() -> dict[str, list[int]]:
    """The statistics that each of the three sets has."""
    sizes = {name: part.shape[1] for name, part in PixelStatistics().groups(torch.zeros(1, 3, 32, 32)).items()}
    names = [name for name, size in sizes.items() for _ in range(size)]
    first = [place for place, name in enumerate(names) if name in FIRST]
    return {"first": first, "pixels": list(range(len(names))), "all": []}


class Contrast:
    """z-scores clipped at ± 8, then L2-regularised logistic regression, balanced; higher = clean."""

    def __init__(self, clean: Tensor, shifted: Tensor, strength: float) -> None:
        self.mean, self.std = clean.mean(0), clean.std(0).clamp_min(1e-6)
        rows = np.concatenate([self._scale(clean), self._scale(shifted)])
        labels = np.repeat([1, 0], [len(clean), len(shifted)])
        self.model = LogisticRegression(C=strength, class_weight="balanced", max_iter=300).fit(rows, labels)

    def __call__(self, style: Tensor) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = self.model.decision_function(self._scale(style))
        return scores

    def _scale(self, style: Tensor) -> NDArray[np.float64]:
        return ((style - self.mean) / self.std).clamp(-8, 8).double().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--test", type=int, default=300, help="Images of each test condition.")
    words = parser.parse_args()
    classifier = network(words.weights)

    def style(images: Tensor) -> Tensor:
        return predict(classifier, images)[0].style

    train, test = load("cifar10", "train", words.root).images, load("cifar10", "test", words.root).images
    fitted = torch.cat([train[:4000], test[:2000]])
    some = torch.cat([train[4000:4200], test[:200]])
    clean = style(fitted)
    shifted = torch.cat([style(corrupt(some, name, level)) for name in EXTRA for level in range(1, 6)])
    sets = {**columns(), "all": list(range(clean.shape[1]))}
    strengths = {"first": 0.01, "pixels": 0.01, "all": 0.003}
    scores = {name: Contrast(clean[:, chosen], shifted[:, chosen], strengths[name]) for name, chosen in sets.items()}
    reference = style(test[2000:4000])

    def row(label: str, *others: Tensor) -> list[float]:
        found = []
        for name, chosen in sets.items():
            inside = scores[name](reference[:, chosen])
            found.append(100 * float(np.mean([auroc(inside, scores[name](other[:, chosen])) for other in others])))
        print(f"{label:20}" + "".join(f"{value:8.1f}" for value in found), flush=True)
        return found

    print(f"S = {clean.shape[1]}; layers {', '.join(classifier.style_layers)}")
    print(" " * 20 + "".join(f"{name:>8}" for name in sets))
    other = test[4000 : 4000 + words.test]
    found = [row(name, *(style(corrupt(other, name, level)) for level in (1, 3, 5))) for name in COMMON]
    print(f"{'mean of 15':20}" + "".join(f"{value:8.1f}" for value in np.mean(found, 0)))
    row("cifar100", style(load("cifar100", "test", words.root).images[:2000]))


if __name__ == "__main__":
    main()
