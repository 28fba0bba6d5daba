"""Adapted models on disk: weights and a description; their code comes from the caller and never from a file."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from adapt_examples import HEADS, MEAN, POOLED, STD, Body, Convolutional, D, Distilled, K, Net, Tokens, pictures, seeded
from shiftprism import Classifier, adapt
from shiftprism.classifier import Preprocessing
from shiftprism.heads import Geometric


def make_net() -> nn.Module:
    return Net(nn.Linear(D, K))


def make_tanh() -> nn.Module:
    """The same tensors, other code."""
    model = Net(nn.Linear(D, K))
    model.body.layers[2] = nn.Tanh()
    return model


def make_classifier() -> Classifier:
    return adapt(make_net(), pictures(2))


SAVED: dict[str, Callable[[], nn.Module]] = {
    **{f"head: {name}": partial(lambda make: Net(make()), make) for name, make in HEADS.items()},
    **{
        f"conv: {name}": partial(lambda *parts: Convolutional(*(part() for part in parts)), *parts)
        for name, parts in POOLED.items()
    },
    "distilled": lambda: Distilled(True),
    "tokens": lambda: Tokens(lambda tokens: tokens[:, 0]),
}


@pytest.mark.parametrize("kind", SAVED)
def test_a_saved_model_comes_back_from_its_factory(kind: str, tmp_path: Path) -> None:
    classifier = adapt(
        seeded(SAVED[kind]), pictures(2), MEAN, STD, names="abcde", preprocessing=Preprocessing((16, 16), 20, 3)
    )
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path, model=SAVED[kind])
    assert torch.equal(loaded(pictures()), classifier(pictures()))
    assert (loaded.names, loaded.preprocessing) == (classifier.names, classifier.preprocessing)
    assert loaded.fingerprint() == classifier.fingerprint()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "model.json").read_bytes()


def test_a_factory_is_imported_only_when_its_name_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_of_mine.py").write_text(
        "from pathlib import Path\n"
        "Path('imported').touch()\n"
        "from test_classifier_saved import make_net as make\n"
        "def broken(): raise KeyError('weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    monkeypatch.delitem(sys.modules, "zoo_of_mine", raising=False)
    classifier = adapt(seeded(make_net), pictures(2), MEAN, STD, factory="zoo_of_mine:make")
    classifier.save("model")
    with pytest.raises(ValueError, match="adapted from code, made by zoo_of_mine:make; pass the function"):
        Classifier.load("model")
    assert not Path("imported").exists()
    assert torch.equal(Classifier.load("model", model="zoo_of_mine:make")(pictures()), classifier(pictures()))
    assert Path("imported").exists()
    for name, problem in (
        ("zoo_of_mine:absent", "AttributeError: .*absent"),
        ("no_such_zoo:make", "ModuleNotFoundError"),
        ("make", "no module and name with a colon"),
        ("zoo_of_mine:broken", "which raised KeyError: 'weights'"),
        ("math:pi", "which raised TypeError"),
    ):
        with pytest.raises(ValueError, match=f"Expected `model` to be .*{problem}"):
            Classifier.load("model", model=name)
    assert adapt(seeded(make_net), pictures(2), factory=make_net).adapted.factory == f"{__name__}:make_net"  # type: ignore[union-attr]


def test_code_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    adapt(seeded(make_net), pictures(2), MEAN, STD).save(tmp_path)
    assert Classifier.load(tmp_path, model=make_classifier).names == ("0", "1", "2", "3", "4")
    for model, problem in (
        (make_tanh, "code that gives other logits with the same weights"),
        (lambda: Body(), "a Body without the layer 'fc'"),
        (lambda: 3, "one that returns a int"),
        (lambda: nn.ModuleDict({"fc": nn.Linear(D, K)}), "is unknown"),
    ):
        with pytest.raises(ValueError, match=problem):
            Classifier.load(tmp_path, model=model)  # type: ignore[arg-type]
    Classifier(Body(), Geometric(D, K)).save(tmp_path / "own")
    with pytest.raises(ValueError, match="a function that returns a Classifier but got one that returns a Body"):
        Classifier.load(tmp_path / "own", model=Body)


@pytest.mark.parametrize(
    "change",
    [
        {"factory": 3},
        {"cuts": []},
        {"cuts": [["fc"]]},
        {"cuts": [["fc", "eval"]]},
        {"cuts": "fc"},
        {"shape": [3, 16]},
        {"shape": [3, 60000, 60000]},
        {"shape": [3, 16, True]},
        {"logits": ["1"] * K},
        {"logits": [1.0]},
        {"more": 1},
    ],
)
def test_a_damaged_description_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    adapt(seeded(make_net), pictures(2), MEAN, STD).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    about["adapted"] |= change
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"Expected `folder` to be a whole saved model but got .*model\.json, where"):
        Classifier.load(tmp_path, model=make_net)


def test_exported_and_pickled_programs_are_refused(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(seeded(make_net), (torch.rand(2, 3, 16, 16),)), tmp_path / "model.pt2")
    torch.save(seeded(make_net).state_dict(), tmp_path / "model.pt")
    for name in ("model.pt2", "model.pt"):
        with pytest.raises(ValueError, match="cannot be opened without running code of the file"):
            Classifier.load(tmp_path / name)
