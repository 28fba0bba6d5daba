"""A user's own score: found by `module:Name`, fitted like the others, and refused where it returns something else."""

import sys
from pathlib import Path

import pytest
import torch

from examples import features_of, head_of
from shiftprism.benchmark._measure import Measurement
from shiftprism.recommend import Labelled, fit_scores
from shiftprism.rows import Source
from shiftprism.scores import find_score

TEXT = """
from torch import Tensor
from shiftprism.scores import Fitted

def margin(outputs):
    top = outputs.logits.topk(2, 1).values
    return top[:, 0] - top[:, 1]

class Centre(Fitted):
    centre: Tensor

    @classmethod
    def fit(cls, outputs, labels):
        return cls({"centre": outputs.features[labels == 0].mean(0)})

    def forward(self, outputs):
        return -(outputs.features - self.centre).norm(dim=1)

def table(outputs):
    return outputs.logits

def holes(outputs):
    return margin(outputs) * float("nan")
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Labelled:
    """ID data; the module `someones_scores` is in the current folder."""
    (tmp_path / "someones_scores.py").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    with torch.no_grad():
        outputs = head_of("vanilla", 6).outputs(features_of(40, 6))
    return Labelled(outputs, outputs.predictions)


def test_functions_and_classes_are_fitted_like_the_others(data: Labelled) -> None:
    names = ["someones_scores:margin", "someones_scores:Centre", "msp"]
    fitted, left_out = fit_scores(names, data, data, None, strict=True)
    assert (list(fitted), left_out) == (names, {})
    top = data.outputs.logits.sort(1).values
    assert torch.allclose(fitted[names[0]](data.outputs), top[:, -1] - top[:, -2])
    centre = data.outputs.features[data.labels == 0].mean(0)
    distances = torch.linalg.vector_norm(data.outputs.features - centre, dim=1)
    assert torch.allclose(fitted[names[1]](data.outputs), -distances, atol=1e-5)
    assert find_score(names[1]).needs == ("labels",)


@pytest.mark.parametrize("name", ["table", "holes"])
def test_what_is_no_score_is_refused_with_its_name(data: Labelled, name: str) -> None:
    fitted, _ = fit_scores([f"someones_scores:{name}"], data, data, None, strict=True)
    source = Source("vanilla", "mine", "small", "vanilla", 0, "held-out", "")
    with pytest.raises(ValueError, match=f"Expected `someones_scores:{name}` to be a score that returns 40 finite"):
        Measurement(source, data, fitted, {})
