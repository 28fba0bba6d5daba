"""Scores of Outputs that stay in their file: the same numbers, a few rows at a time."""

from pathlib import Path

import pytest
import torch

from shiftprism.heads import Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, energy, score_rows

NAMES = sorted(set(SCORES) - {"kernel"})
"""`kernel` is max_logit of a DUQ head."""


def draw(samples: int, seed: int, head: Linear) -> Outputs:
    torch.manual_seed(seed)
    with torch.no_grad():
        features = (torch.randn(samples, 7) + 3 * torch.eye(7)[torch.arange(samples) % 4]).relu()
        return head.outputs(features)._replace(style=torch.randn(samples, 3))


@pytest.mark.parametrize("name", NAMES)
def test_a_mapped_file_is_fitted_and_scored_as_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftprism.scores._moments.CHUNK", 64)
    monkeypatch.setattr("shiftprism.scores._templates.CHUNK", 64)
    torch.manual_seed(0)
    head = Linear(7, 4, bias=True)
    known, reference = draw(300, 1, head), draw(100, 2, head)
    shifted = known._replace(style=known.style + 1)
    known.save(tmp_path / "known.safetensors", torch.arange(300) % 4)
    mapped, labels = Outputs.load(tmp_path / "known.safetensors", mapped=True)
    scores = [SCORES[name].fit(one, labels, head=head, reference=reference, shifted=shifted) for one in (known, mapped)]
    expected = scores[0](known)
    torch.testing.assert_close(score_rows(scores[1], mapped, rows=37), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(score_rows(scores[0], known, rows=300), expected)


def test_what_cannot_be_scored_in_rows() -> None:
    outputs = Outputs.from_logits(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="Expected `rows` to be a positive whole number but got 0"):
        score_rows(energy, outputs, rows=0)
    with pytest.raises(ValueError, match="no rows"):
        score_rows(energy, outputs.rows([]))
