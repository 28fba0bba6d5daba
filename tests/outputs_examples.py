"""Outputs of made-up models on made-up sets: what figures are drawn from, without training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from examples import features_of, head_of
from rows_examples import made_results
from shiftprism import plots, report
from shiftprism._files import write_json
from shiftprism.calibrators import AlphaBeta, Temperature
from shiftprism.plots import ModelOutputs
from shiftprism.rows import Condition, ResultsFolder, Source

SETS = (
    (Condition("unseen digits", "concept", 0), 0.8),
    (Condition("photographs", "both", 0), 0.3),
    (Condition("fog", "covariate", 5), 0.7),
    (Condition("motion_blur", "covariate", 1), 0.9),
    (Condition("motion_blur", "covariate", 5), 0.5),
    (Condition("gaussian_noise", "covariate", 5), 0.4),
)
"""Each set, and the factor by which its features are shorter."""


def made_outputs(model: str = "vanilla", images: int = 150, features: int = 6) -> ModelOutputs:
    """Random features through a fresh head of that name; the predicted class is right for three of four images."""
    head = head_of(model, features)
    with torch.no_grad():
        clean = head.outputs(features_of(images, features))
        labels = torch.where(torch.arange(images) % 4 == 0, (clean.predictions + 1) % 4, clean.predictions)
        shifted = [
            (condition, head.outputs(features_of(images, features, seed, scale)), labels)
            for seed, (condition, scale) in enumerate(SETS, 1)
        ]
    calibrators = {"temperature": Temperature.fit(clean, labels), "alpha-beta": AlphaBeta.fit(clean, labels)}
    source = Source(model, "digits", "digits", model, 0, "held-out", "")
    return ModelOutputs(source, clean, labels, calibrators, shifted)


def publish_example(folder: Path) -> None:
    """Publish made-up results as if the outputs of their models were stored; afterwards they are not."""

    def read(folder: Path, model: str, **_: object) -> ModelOutputs:
        return made_outputs("vanilla", features=3) if model == "features-3d" else made_outputs(model)

    made_results(1).write(folder)
    counts = np.arange(256)[None].repeat(3, 0).tolist()
    write_json(folder / "pixels.json", {"cifar10": {"cifar10": counts, "svhn": counts}})
    ResultsFolder(folder).write_suite({}, "shiftprism benchmark --suite <x>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "read_model_outputs", read)
        report.publish(folder)
