"""A plan: defaults are filled in once, and wrong words are refused before any work."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shiftprism.benchmark import MODELS, Plan
from shiftprism.benchmark._grid import list_cells
from shiftprism.benchmark._plan import ModelSpec, find_model
from shiftprism.calibrators import CALIBRATORS
from shiftprism.corruptions import COMMON
from shiftprism.heads import HEADS
from shiftprism.scores import SCORES
from shiftprism.training import PRESETS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """As much of a trained model's folder as a plan looks at."""
    folder = tmp_path / "my-run"
    folder.mkdir()
    (folder / "model.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"suite": ""}, "Expected `suite` to be one of digits, paper, photos but got nothing; or give your own images"),
        ({"suite": "mnist"}, "Expected `suite` to be one of digits, paper, photos but got 'mnist'"),
        ({"models": ("resnet",)}, "Expected `models` to be one of alpha, .* but got 'resnet'"),
        ({"models": ("ddu",)}, "but got ddu, which needs the backbone digits-ddu; leave it out, or choose one of "),
        ({"models": ("duq:no",)}, "Expected `models` to be names, or name:seeds but got duq:no"),
        ({"models": ("duq:0",)}, "Expected `models` to be names, or name:seeds but got duq:0"),
        ({"models": ("ensemble",)}, "Expected `models` to be with vanilla where there is ensemble"),
        (
            {"models": ("vanilla", "alpha-beta-ensemble")},
            "Expected `models` to be with alpha-beta where there is alpha-",
        ),
        ({"scores": ("ouija",)}, "Expected `scores` to be one of .* but got 'ouija'"),
        ({"calibrators": ("x",)}, "Expected `calibrators` to be one of"),
        ({"corruptions": ("rain",)}, "Expected `corruptions` to be one of"),
        ({"images": 3}, "Expected `images` to be 0 for all, or at least 10 but got 3"),
        ({"corrupted_images": -1}, "Expected `corrupted_images` to be 0 for all, or at least 10 but got -1"),
        ({"settings": {"epoch": 3}}, "Expected `config` to be made of epochs, .* but got epoch"),
        ({"runs": ("nowhere",)}, "Expected `runs` to be folders of trained models but got nowhere without model.json"),
        ({"data": "cifar10"}, "Expected `data` to be left out with the suite digits"),
        ({"suite": "paper", "data": "digits"}, "Expected `data` to be one of cifar10, cifar100 but got 'digits'"),
        ({"preset": "slow"}, "Expected `preset` to be one of .* but got 'slow'"),
        ({"backbone": "vgg"}, "Expected `backbone` to be one of .* but got 'vgg'"),
    ],
)
def test_wrong_words_are_refused_before_any_work(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**({"suite": "digits"} | words)).resolve()


def test_runs_need_their_data_and_different_names(run: Path) -> None:
    with pytest.raises(
        ValueError, match="Expected `data` to be given with runs but got none; say which it is: cifar10, "
    ):
        Plan(suite="paper", runs=(str(run),)).resolve()
    plan = Plan(suite="paper", data="cifar10", runs=(str(run), f"other={run}")).resolve()
    assert plan.runs == (f"my-run={run}", f"other={run}")
    assert [cell.key for cell in list_cells(plan, run)] == ["cifar10-pixels-0", "cifar10-my-run-0", "cifar10-other-0"]
    (run / "config.toml").write_text("seed = 4\n")
    twice = Plan(suite="paper", data="cifar10", runs=(str(run), str(run))).resolve()
    with pytest.raises(
        ValueError, match="Expected `runs` to be different models or seeds but got cifar10-my-run-4 twice"
    ):
        list_cells(twice, run)


def test_defaults_are_filled_in() -> None:
    plan = Plan(suite="digits").resolve()
    assert (plan.data, plan.data_sets, plan.preset, plan.backbone) == ("digits", ("digits",), "smoke", "digits")
    assert (plan.scores, plan.calibrators) == (tuple(SCORES), tuple(CALIBRATORS))
    assert (plan.corruptions, plan.settings) == (tuple(COMMON), {"held_out": 0.2})
    assert "ddu" not in plan.seeds_by_model  # digits have no backbone with spectral normalisation
    assert plan.seeds_by_model["vanilla"] == 3
    paper = Plan(suite="paper").resolve()
    assert paper.data_sets == ("cifar10", "cifar100")
    assert list(paper.seeds_by_model) == list(MODELS)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(suite="digits"),
        Plan(suite="digits", models=("vanilla", "duq:2", "ensemble:5"), seeds=2, settings={"held_out": 0.3}),
        Plan(suite="paper", data="cifar100", preset="paper"),
        Plan(data=".", far=".", size=32, hold_out=("a",), models=("vanilla",)),
    ],
)
def test_a_resolved_plan_stays_as_it_is(plan: Plan) -> None:
    once = plan.resolve()
    assert once.resolve() == once != plan


def test_a_plan_with_runs_resolves_to_itself(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    once = Plan(suite="digits", runs=("my-run",)).resolve()
    monkeypatch.chdir("/")
    assert once.resolve() == once
    assert once.seeds_by_model == {}  # nothing is trained beside given runs


def test_paths_are_made_whole_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell may run in another folder. `_absolute` that hands every path back, or resolves a name, fails."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = Plan(data="mine", far="mine", root="mine", models=("vanilla",)).resolve()
    assert (plan.data, plan.far, plan.root) == (str(tmp_path / "mine"),) * 3
    plan = Plan(suite="paper", data="cifar10", far="svhn").resolve()
    assert (plan.data, plan.far, plan.root) == ("cifar10", "svhn", "")


def test_a_plan_survives_json(run: Path) -> None:
    plan = Plan(suite="digits", runs=(str(run),), settings={"epochs": 2}).resolve()
    stored: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    assert plan.differences(stored) == []
    assert plan.differences(stored | {"scores": [[], {}]})  # an edited file is another plan, not a TypeError
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
    assert Plan(**fields) == plan


def test_seeds_of_a_model_are_its_own_or_the_plans() -> None:
    plan = Plan(suite="digits", models=("vanilla", "duq:2", "gsd", "ensemble:3"))
    assert plan.seeds_by_model == {"vanilla": 3, "duq": 2, "gsd": 1, "ensemble": 1}
    plan = Plan(suite="digits", models=plan.models, seeds=4)
    assert plan.seeds_by_model == {"vanilla": 4, "duq": 2, "gsd": 4, "ensemble": 1}


def test_a_registered_head_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new head needs no line in the benchmark; heads of models there keep those models' settings."""
    monkeypatch.setitem(HEADS, "mine", replace(HEADS["vanilla"], name="mine"))
    plan = Plan(suite="digits", models=("mine:2", "cosine", "euclidean")).resolve()
    assert plan.seeds_by_model == {"mine": 2, "cosine": 1, "euclidean": 1}
    assert find_model("mine") == ModelSpec("mine")
    assert (plan.training("cosine", 0).clip, plan.training("mine", 0).clip) == (1.0, PRESETS["smoke"].clip)
    assert "mine" not in Plan(suite="digits").resolve().seeds_by_model  # the usual grid stays as it is


def test_an_own_score_is_a_score_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_score.py").write_text("def ratio(outputs): return outputs.logits.amax(1)\nNUMBER = 3\n")
    (tmp_path / "broken_score.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    plan = Plan(suite="digits", scores=("u",), score=("own_score:ratio",)).resolve()
    assert (plan.scores, plan.score) == (("u", "own_score:ratio"), ())
    assert plan.resolve() == plan
    assert Plan(suite="digits", score=("own_score:ratio",)).resolve().scores == (*SCORES, "own_score:ratio")
    assert plan.differences(Plan(suite="digits", scores=("u",)).resolve().to_json()) == []  # it may be added
    for text, message in {
        "no_such_module:f": "ModuleNotFoundError",
        "own_score:f": "has no attribute 'f'",
        "own_score:NUMBER": "a function or a Fitted class but got own_score:NUMBER, 3",
        "broken_score:f": "ZeroDivisionError",
        "pathlib:Path": "a function or a Fitted class but got pathlib:Path",
    }.items():
        with pytest.raises(ValueError, match=message):
            Plan(suite="digits", score=(text,)).resolve()


def test_models_keep_their_own_settings() -> None:
    plan = Plan(suite="paper", data="cifar10", settings={"epochs": 7}).resolve()
    assert plan.backbone == "fast"
    assert plan.seeds_by_model["vanilla"] == 3
    assert plan.seeds_by_model["sngp"] == 1
    assert (plan.training("sngp", 4).rate, plan.training("ddu", 4).rate) == (0.16, 0.2)
    assert (plan.training("duq", 4).clip, plan.training("odin", 4).clip) == (1, 1)
    assert plan.training("duq", 4).rate == PRESETS["laptop"].rate
    assert plan.training("gsd", 4).rate == PRESETS["laptop"].rate
    assert (plan.training("vanilla", 4).seed, plan.training("vanilla", 4).epochs) == (4, 7)
    assert Plan(suite="paper", preset="paper").resolve().backbone == "wrn-28-10"


def test_an_unknown_model_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="nosuch"):
        _ = Plan(suite="digits", models=("vanilla", "nosuch")).seeds_by_model
