"""What made-up models say about made-up sets: evidence for figures, without training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import features_of, head_of
from rows_examples import made_results
from shiftprism import benchmark, report
from shiftprism.benchmark import Evidence, Source
from shiftprism.calibrators import AlphaBeta, Temperature
from shiftprism.datasets import Dataset
from shiftprism.shifts import Kind, Shift

SETS: tuple[tuple[str, Kind, int, float], ...] = (
    ("unseen digits", "concept", 0, 0.8),
    ("photographs", "both", 0, 0.3),
    ("fog", "covariate", 5, 0.7),
    ("motion_blur", "covariate", 1, 0.9),
    ("motion_blur", "covariate", 5, 0.5),
    ("gaussian_noise", "covariate", 5, 0.4),
)
"""Name, kind, severity, and how much shorter features are."""


def made_evidence(model: str = "vanilla", images: int = 150, features: int = 6) -> Evidence:
    """Random features through a fresh head of that name; the first class is the right one for most images."""
    head = head_of(model, features)

    def made() -> Dataset:
        raise AssertionError("figures ask for no images")

    with torch.no_grad():
        clean = head.outputs(features_of(images, features))
        labels = torch.where(torch.arange(images) % 4 == 0, (clean.predictions + 1) % 4, clean.predictions)
        shifted = []
        for seed, (name, kind, severity, scale) in enumerate(SETS, 1):
            outputs = head.outputs(features_of(images, features, seed, scale))
            shifted.append((Shift(name, kind, severity, made), outputs, labels))
    calibrators = {"temperature": Temperature.fit(clean, labels), "alpha-beta": AlphaBeta.fit(clean, labels)}
    source = Source(model, "digits", "digits", model, 0, "held-out", "")
    return Evidence(source, clean, labels, calibrators, shifted)


def publish_example(folder: Path) -> None:
    """Publish made-up results as if the outputs of their models were stored; afterwards they are not."""

    def found(folder: Path, model: str, **_: object) -> Evidence:
        return made_evidence("vanilla", features=3) if model == "features-3d" else made_evidence(model)

    made_results(1).write(folder)
    counts = np.arange(256)[None].repeat(3, 0).tolist()
    (folder / "pixels.json").write_text(json.dumps({"cifar10": {"cifar10": counts, "svhn": counts}}))
    (folder / "suite.json").write_text(json.dumps({"command": "shiftprism benchmark --suite <x>"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "evidence", found)
        report.publish(folder)
