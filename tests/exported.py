"""An exported detector of digits, made once for all tests of a process: to convert it takes a while."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism import Classifier, Detector
from shiftprism.datasets import load
from shiftprism.export import Report, export


class Exported(NamedTuple):
    """A file, the detector in it, and images that neither has seen, clean and noisy."""

    path: Path
    detector: Detector
    images: Tensor
    report: Report


def export_digits(folder: Path) -> Exported:
    data = load("digits", "train")
    classifier = Classifier.build("digits", "alpha-beta", data.names, 1, seed=1).eval()
    detector = Detector.fit(classifier, data.images[:500], data.labels[:500], concept="knn", copies=16)
    path = folder / "digits.onnx"
    report = export(detector, path, images=data.images[500:600])
    noise = torch.randint(0, 60, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    clean = data.images[600:800]
    return Exported(path, detector, torch.cat([clean, (clean.int() + noise).clamp_max(255).to(torch.uint8)]), report)
