"""Saved scores: folders that score the same when loaded, older files, and damage that is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import features_of, head_of
from python_device import register
from shiftprism._files import read_json, write_json, write_tensors
from shiftprism.outputs import Outputs
from shiftprism.scores import KNN, SCORES, Fitted, load

FITTED = sorted(name for name, entry in SCORES.items() if entry.fitted)


def draw_outputs(samples: int = 120, seed: int = 1) -> Outputs:
    """What one linear head says about random features."""
    with torch.no_grad():
        features = features_of(samples, seed=seed)
        return head_of("vanilla").outputs(features)._replace(style=features.clone())


def fit(name: str) -> Fitted:
    held_out, shifted = draw_outputs(50, seed=3), draw_outputs(50, seed=4)
    labels = torch.arange(120) % 4
    score = SCORES[name].fit(draw_outputs(), labels, head=head_of("vanilla"), reference=held_out, shifted=shifted)
    assert isinstance(score, Fitted)
    return score


@pytest.mark.parametrize("name", FITTED)
def test_saved_and_loaded_it_scores_the_same(name: str, tmp_path: Path) -> None:
    score, new = fit(name), draw_outputs(30, seed=2)
    assert list(score.parameters()) == []
    score.save(tmp_path / "score")
    assert sorted(path.name for path in (tmp_path / "score").iterdir()) == ["score.json", "weights.safetensors"]
    again = load(tmp_path / "score")
    assert type(again) is type(score)
    assert torch.equal(again(new), score(new))
    assert repr(again) == repr(score)


@pytest.mark.parametrize("name", FITTED)
def test_fitted_on_another_device_it_stays_there(name: str) -> None:
    """A buffer that is made on the CPU would stop a GPU."""
    register()

    def there(outputs: Outputs) -> Outputs:
        return Outputs(*(field.to("other") for field in outputs))

    known, reference, shifted, new = (there(draw_outputs(n, seed)) for n, seed in ((120, 1), (50, 3), (50, 4), (30, 2)))
    labels, head = (torch.arange(120) % 4).to("other"), head_of("vanilla").to("other")
    score = SCORES[name].fit(known, labels, head=head, reference=reference, shifted=shifted)
    assert isinstance(score, Fitted)
    assert {key for key, tensor in score.state_dict().items() if tensor.device.type != "other"} == set()
    found = score(new)
    assert found.device.type == "other"
    torch.testing.assert_close(found.cpu(), fit(name)(draw_outputs(30, seed=2)))


@pytest.mark.parametrize("name", FITTED)
def test_a_single_file_of_an_older_version_is_read_with_a_warning(name: str, tmp_path: Path) -> None:
    score, new = fit(name), draw_outputs(30, seed=2)
    about = {"format": "shiftprism-score-1", "score": type(score).__name__, "settings": json.dumps(score.settings)}
    write_tensors(tmp_path / "old.safetensors", score.state_dict(), about)
    words = r"old\.safetensors is a score in an older format; save it again, to a folder"
    with pytest.warns(UserWarning, match=words) as caught:
        again = load(tmp_path / "old.safetensors")
    assert caught[0].filename == __file__  # it points at the line that loads
    assert torch.equal(again(new), score(new))
    assert repr(again) == repr(score)


def test_what_is_no_saved_score_is_refused_by_name(tmp_path: Path) -> None:
    draw_outputs().save(tmp_path / "outputs.safetensors")
    with pytest.raises(ValueError, match="Expected `path` to be a file of format shiftprism-score-1"):
        load(tmp_path / "outputs.safetensors")
    (tmp_path / "cut").write_bytes(b"x")
    with pytest.raises(ValueError, match="Expected `path` to be a whole safetensors file"):
        load(tmp_path / "cut")
    with pytest.raises(ValueError, match=r"Expected `path` to be a saved score but got .*nowhere/score.json \(No such"):
        load(tmp_path / "nowhere")
    write_json(tmp_path / "model" / "score.json", {"format": "shiftprism-model-1"})
    with pytest.raises(ValueError, match=r"to be a score of format shiftprism-score-2 .* of format shiftprism-model-1"):
        load(tmp_path / "model")
    write_tensors(tmp_path / "bare", {"bank": torch.ones(2)}, {"format": "shiftprism-score-1", "score": "KNN"})
    with pytest.raises(ValueError, match="Expected `path` to be a whole saved score"):
        load(tmp_path / "bare")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("mahalanobis", {"space": "featureS"}), ("mahalanobis", {}), ("knn", {"k": "5"}), ("prism", {"j": 5})],
)
def test_settings_that_a_score_does_not_know_are_refused(name: str, settings: Any, tmp_path: Path) -> None:
    fit(name).save(tmp_path)
    about = read_json(tmp_path / "score.json", "", "")
    write_json(tmp_path / "score.json", about | {"settings": settings})
    with pytest.raises(ValueError, match=f"a score with settings but got {tmp_path} with "):
        load(tmp_path)


def test_damaged_folders_are_refused_by_name(tmp_path: Path) -> None:
    KNN.fit(draw_outputs()).save(tmp_path / "knn")
    KNN.fit(draw_outputs(seed=4)).save(tmp_path / "other")
    weights, about = tmp_path / "knn" / "weights.safetensors", read_json(tmp_path / "knn" / "score.json", "", "")

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "knn")

    for change, message in (
        ({"settings": None}, "Expected `path` to be a score with settings"),
        ({"score": "SHE"}, r"Expected `path` to be the tensors of SHE .*bank, patterns is missing or unknown"),
        ({"score": "Oracle"}, r"Expected `path` to be a saved score, one of .*KNN, .* but got .*knn of 'Oracle'"),
    ):
        write_json(tmp_path / "knn" / "score.json", {**about, **change})
        refused(message)
    write_json(tmp_path / "knn" / "score.json", about)
    load(tmp_path / "knn")
    weights.write_bytes(weights.read_bytes()[:-8])
    refused(r"Expected `path` to be a whole safetensors file but got .*weights\.safetensors")
    (tmp_path / "other" / "weights.safetensors").replace(weights)
    refused("Expected `folder` to be a whole saved score but got .* with the weights of another fit")
