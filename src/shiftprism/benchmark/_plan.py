"""What a benchmark is asked to do: data, models, seeds, scores, calibrators; checked before any work is done."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism._errors import choice, wrong
from shiftprism.training.settings import PRESETS, Training, read_settings, resolve


class Model(NamedTuple):
    """A model by name: its head, its backbone's variant, and the settings it cannot do without."""

    head: str
    variant: str = ""
    """Stands behind the backbone's name."""
    most_rate: float = float("inf")
    clip: float = 0.0
    """The largest gradient; 0 leaves the preset's."""


MODELS: dict[str, Model] = {
    "vanilla": Model("vanilla"),
    "alpha": Model("alpha"),
    "beta": Model("beta"),
    "alpha-beta": Model("alpha-beta"),
    "gsd": Model("gsd"),
    # cosines change fast while weights are short: unclipped, short schedules diverge
    "odin": Model("cosine", clip=1.0),
    "hyper-free": Model("hyper-free", clip=1.0),
    "inner": Model("inner"),
    "ddu": Model("vanilla", "-ddu"),
    # its authors' rate 0.08 for 128 images a step
    "sngp": Model("sngp", "-sngp", most_rate=0.16),
    # its authors' rate 0.05 for 128 images a step; the gradient penalty is steep
    "duq": Model("duq", most_rate=0.1, clip=1.0),
    "ensemble": Model("vanilla"),
    "features-3d": Model("vanilla", "-3d"),
}
"""The models of the paper's tables, and the one of its Fig. 5 (three features).

"ensemble" is not trained: it is the mean of all vanilla models of the grid.
"""
HEADS_COMPARED = ("vanilla", "alpha", "beta", "alpha-beta")
SUITES = ("digits", "paper")
_PAPER_DATA = ("cifar10", "cifar100")
_FREE = ("data", "models", "runs", "root")
"""What may differ between two commands that fill the same folder."""


@dataclass(frozen=True)
class Plan:
    """Everything that was asked; plain JSON values, so that it travels to other processes and into a file."""

    suite: str
    """digits, paper, or own: a user's own data."""
    data: tuple[str, ...]
    models: Mapping[str, int]
    """How many seeds of each."""
    backbone: str
    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the preset."""
    runs: tuple[tuple[str, str], ...] = ()
    """(model, folder) of runs that are taken as they are."""
    scores: tuple[str, ...] = ()
    calibrators: tuple[str, ...] = ()
    corruptions: tuple[str, ...] = ()
    images: int = 0
    """At most so many of each shifted set; 0 for all."""
    corrupted_images: int = 0
    """At most so many of each corrupted one; 0 for as many as `images` says."""
    hold_out: tuple[str, ...] = ()
    far: str = ""
    size: int = 0
    held_out: float = 0.0
    """The share that given runs without a config.toml were not trained on."""
    root: str = ""

    def training(self, model: str, seed: int) -> Training:
        """The preset, with what this model needs, then with what the user set, and this seed."""
        base, need = PRESETS[self.preset], MODELS[model]
        own: dict[str, Any] = {"rate": min(base.rate, need.most_rate), "clip": need.clip or base.clip}
        return replace(resolve(self.preset, own, dict(self.settings)), seed=seed)

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """What differs from the plan in a file, a phrase each; models, seeds, scores and suites' data may be added."""
        ours, theirs = _flat(as_json(self)), {"corrupted_images": 0} | _flat(other)  # older folders do not say
        if set(theirs.get("scores", ())) < set(self.scores):
            theirs["scores"] = ours["scores"]
        # two folders of a user's may have the same name
        fixed = [name for name in {**ours, **theirs} if name not in _FREE or (name, self.suite) == ("data", "own")]
        changed = [name for name in fixed if ours.get(name) != theirs.get(name)]
        return [f"{name} {ours.get(name)!r} for {theirs.get(name)!r}" for name in changed]


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON has it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}


def _flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    """With each setting of training beside the rest, so that a difference is told by its own name."""
    return {**{name: value for name, value in plan.items() if name != "settings"}, **plan.get("settings", {})}


def make_plan(
    suite: str | None = None,
    data: str | None = None,
    *,
    models: Sequence[str] | None = None,
    seeds: int | None = None,
    runs: Sequence[str] = (),
    held_out: float = 0.0,
    scores: Sequence[str] | None = None,
    calibrators: Sequence[str] | None = None,
    corruptions: Sequence[str] | None = None,
    images: int = 0,
    corrupted_images: int = 0,
    backbone: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    hold_out: Sequence[str] = (),
    far: str | None = None,
    size: int = 0,
    root: str | Path | None = None,
) -> Plan:
    """A plan from words, each looked at here: a wrong one is an error now and not hours later.

    `suite` is "digits" or "paper", or `data` names a user's own. `models` are names of `MODELS`, "duq:2" for two seeds;
    `seeds` those of every model that does not say; without it three for the paper's four heads, one for the others.
    `runs` are "model=FOLDER" or FOLDER. `images` are the most of any shifted set, `corrupted_images` of a corrupted
    one: there are 75 of these on CIFAR, and a few of the others.

    >>> make_plan("digits", models=["vanilla", "duq:2"], seeds=1).models
    {'vanilla': 1, 'duq': 2}
    """
    from shiftprism.backbones import BACKBONES
    from shiftprism.calibrators import CALIBRATORS
    from shiftprism.corruptions import COMMON, CORRUPTIONS
    from shiftprism.scores import SCORES

    if suite is None and data is None:
        raise wrong("suite", f"one of {', '.join(SUITES)}", "nothing", "or give your own images as data")
    if suite == "digits" and data not in (None, "digits"):
        raise wrong("data", "left out with the suite digits", data, "leave the suite out for your own data")
    if suite == "paper" and data is not None:
        choice("data", data, _PAPER_DATA)
    known_suite = "own" if suite is None else choice("suite", suite, SUITES)
    preset = preset or {"digits": "smoke"}.get(known_suite, "laptop")
    choice("preset", preset, PRESETS)
    fallback = "wrn-28-10" if preset == "paper" else "fast"
    backbone = choice("backbone", backbone or ("digits" if known_suite == "digits" else fallback), BACKBONES)
    given = tuple(_named_run(text) for text in runs)
    usual = [name for name in MODELS if backbone + MODELS[name].variant in BACKBONES]
    counted = _seeds(([] if given else usual) if models is None else models, seeds)
    for name in counted:
        if backbone + MODELS[name].variant not in BACKBONES:
            variant = MODELS[name].variant
            known = ", ".join(other for other in BACKBONES if other + variant in BACKBONES)
            got = f"{name}, which needs the backbone {backbone}{variant}"
            raise wrong("models", f"ones that {backbone} has a backbone for", got, f"leave it out, or take {known}")
    if "ensemble" in counted and "vanilla" not in counted:
        raise wrong("models", "with vanilla where there is an ensemble", "none", "add vanilla: they are its members")
    own = {"held_out": 0.2} if known_suite == "digits" else {}
    names = _PAPER_DATA if data is None else (_absolute(data),)
    plan = Plan(
        known_suite,
        ("digits",) if known_suite == "digits" else names,
        counted,
        backbone,
        preset,
        own | dict(settings or {}),
        given,
        _chosen("scores", scores, SCORES, list(SCORES)),
        _chosen("calibrators", calibrators, CALIBRATORS, list(CALIBRATORS)),
        _chosen("corruptions", corruptions, CORRUPTIONS, COMMON),
        images,
        corrupted_images,
        tuple(hold_out),
        "" if far is None else _absolute(far),
        size,
        held_out,
        "" if root is None else _absolute(root),
    )
    if given and len(plan.data) > 1:
        raise wrong("data", "given where runs are", "none", f"say which it is: {', '.join(plan.data)}")
    for name, most in (("images", images), ("corrupted_images", corrupted_images)):
        if most < 0 or 0 < most < 10:
            raise wrong(name, "0 for all, or at least 10", most, "a few hundred give an AUROC to a few per cent")
    for name in counted:
        plan.training(name, 0)  # wrong settings are refused now
    return plan


def _seeds(models: Sequence[str], seeds: int | None) -> dict[str, int]:
    """How many seeds each model has: what it says itself, or `seeds`, or the usual number; an ensemble is one."""
    found = {}
    for text in models:
        name, _, count = text.partition(":")
        choice("models", name, MODELS)
        if count and not (count.isdigit() and int(count)):
            raise wrong("models", "names, or name:seeds", text, "write duq:2 for two seeds of duq")
        usual = seeds or (3 if name in HEADS_COMPARED else 1)
        found[name] = 1 if name == "ensemble" else int(count or usual)
    return found


def _absolute(path: str | Path) -> str:
    """What exists as a path, in full: a cell may run in another folder, or on another machine."""
    return str(Path(path).resolve()) if Path(path).exists() else str(path)


def _chosen(argument: str, names: Sequence[str] | None, known: Any, usual: Sequence[str]) -> tuple[str, ...]:
    return tuple(usual) if names is None else tuple(choice(argument, name, known) for name in names)


def _named_run(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    path = Path(folder if equals else text)
    if not (path / "model.json").is_file():
        advice = "name a folder that `shiftprism train` finished or Classifier.save wrote"
        raise wrong("runs", "folders of trained models", f"{path} without model.json", advice)
    return (name if equals else path.resolve().name), str(path.resolve())


class Cell(NamedTuple):
    """One model of one seed on one data set: what is trained, forwarded and measured by itself."""

    plan: Plan
    out: str
    data: str
    model: str
    seed: int
    run: str = ""
    """The folder of a given run; empty for one that is trained here."""

    @property
    def key(self) -> str:
        """The name of its folder."""
        return f"{slug(Path(self.data).name)}-{slug(self.model)}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Where all of it is."""
        return Path(self.out) / "cells" / self.key


def slug(name: str) -> str:
    """A name as files and folders may have it.

    >>> slug("unseen digits")
    'unseen-digits'
    """
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)


def file_name(shift: str, severity: int) -> str:
    """Of what is stored about one set."""
    return f"{slug(shift)}-{severity}.safetensors"


def cells(plan: Plan, out: Path) -> list[Cell]:
    """All cells: what stands by itself first, ensembles last."""
    found = []
    for data in plan.data:
        found.append(Cell(plan, str(out), data, "pixels", 0))
        found += [
            Cell(plan, str(out), data, name, seed) for name, count in plan.models.items() for seed in range(count)
        ]
        numbers = Counter[str]()
        for name, folder in plan.runs:
            config = Path(folder) / "config.toml"
            seed = int(read_settings(config)["seed"]) if config.exists() else numbers[name]
            numbers[name] += 1
            found.append(Cell(plan, str(out), data, name, seed, folder))
    keys = Counter(cell.key for cell in found)
    if twice := [key for key, count in keys.items() if count > 1]:
        raise wrong("runs", "different models or seeds", f"{', '.join(twice)} twice", "give each its name: name=FOLDER")
    return sorted(found, key=lambda cell: cell.model == "ensemble")
