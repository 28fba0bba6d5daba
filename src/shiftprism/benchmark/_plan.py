"""What a benchmark is asked to do: data, models, seeds, scores, calibrators; checked before any work is done."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism._errors import choice, wrong
from shiftprism.training import PRESETS, Training, resolve


class ModelSpec(NamedTuple):
    """A model by name: its head, the variant of its backbone, and the settings it cannot do without."""

    head: str
    variant: str = ""
    """A suffix of the backbone's name."""
    max_rate: float = float("inf")
    clip: float = 0.0
    """The largest gradient norm; 0 keeps the preset's."""
    members: str = ""
    """Of an ensemble, the model whose networks it is the mean of. It is not trained."""


MODELS: dict[str, ModelSpec] = {
    "vanilla": ModelSpec("vanilla"),
    "alpha": ModelSpec("alpha"),
    "beta": ModelSpec("beta"),
    "alpha-beta": ModelSpec("alpha-beta"),
    "gsd": ModelSpec("gsd"),
    # cosines change fast while weights are short: unclipped, short schedules diverge
    "odin": ModelSpec("cosine", clip=1.0),
    "hyper-free": ModelSpec("hyper-free", clip=1.0),
    "inner": ModelSpec("inner"),
    # its authors' rate 0.1 for 128 images a step; on held-out images better than 0.4 (docs/heads.md)
    "ddu": ModelSpec("vanilla", "-ddu", max_rate=0.2),
    # its authors' rate 0.08 for 128 images a step; on held-out images better than 0.4 (docs/heads.md)
    "sngp": ModelSpec("sngp", "-sngp", max_rate=0.16),
    # the gradient penalty is steep; clipped, the rate 0.4 is better on held-out images than 0.1 or 1 (docs/heads.md)
    "duq": ModelSpec("duq", clip=1.0),
    "ensemble": ModelSpec("vanilla", members="vanilla"),
    "alpha-beta-ensemble": ModelSpec("alpha-beta", members="alpha-beta"),
    "features-3d": ModelSpec("vanilla", "-3d"),
}
"""The models of the paper's tables, and the one of its Fig. 5 (three features).

An ensemble is not trained: it is the mean of all networks of its members' model in the grid. A head without a line here
is a model too: see `find_model`.
"""
HEADS_COMPARED = ("vanilla", "alpha", "beta", "alpha-beta")
SUITES = ("digits", "paper", "photos")
_PAPER_DATA = ("cifar10", "cifar100")
_PHOTO_CALIBRATORS = ("temperature", "alpha-beta", "shift-aware")
"""For photographs unless others are asked for: models of them have a thousand classes, and a matrix of a thousand by a
thousand takes hours to fit."""
_TOO_LARGE = ("gmm",)
"""Not measured on photographs unless asked for: a thousand covariances of a thousand features take gigabytes."""
_FREE = ("data", "models", "seeds", "runs", "model", "root", "mirror")
"""Fields that may differ between two commands that fill the same folder."""
_LATER = {"corrupted_images": 0, "score": [], "near": ""}
"""Fields that older folders do not have, and the value they stood for."""


def _option(default: Any, text: str, **more: Any) -> Any:
    """A field that is also a flag of the command line: `text` is its help, `more` its limits."""
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class Plan:
    """Everything a benchmark is asked for. Its fields are the flags of `shiftprism benchmark`.

    An empty field asks for the default, which `resolve` fills in. All values are plain, so that a plan travels to other
    processes and into a JSON file.
    """

    suite: str = _option(
        "", "digits (minutes, nothing to download), paper (CIFAR-10 and CIFAR-100) or photos (--data, --runs)."
    )
    data: str = _option("", "Your own images: a folder of class folders, a file or a name. With paper: one CIFAR.")
    models: tuple[str, ...] = _option((), "vanilla,duq:2,…: names, or name:seeds. (all that the backbone can)")
    seeds: int = _option(0, "Seeds of each model. (3 for the paper's four heads, 1 for others)", min=1)
    runs: tuple[str, ...] = _option(
        (),
        "A trained model's folder, NAME=FOLDER or NAME=RUN/checkpoints; may be repeated. Nothing else is trained then.",
        repeat=True,
    )
    model: str = _option("", "What makes the code of --runs that were adapted: package.module:function.")
    held_out: float = _option(
        0.0, "Share that --runs without a config.toml were not trained on. (0, the paper's)", min=0, max=0.9
    )
    scores: tuple[str, ...] = _option((), "u,msp,…: see shiftprism list scores. (all)")
    score: tuple[str, ...] = _option(
        (),
        "Your own score beside them, as MODULE:NAME of a file here or an installed module; may be repeated.",
        repeat=True,
    )
    calibrators: tuple[str, ...] = _option((), "temperature,alpha-beta,…: see shiftprism list calibrators. (all)")
    mirror: bool = _option(False, "Measure each model on images averaged with their mirror images, too.")
    corruptions: tuple[str, ...] = _option((), "motion_blur,fog,… (the 15 of CIFAR-C)")
    images: int = _option(0, "The most images of a shifted set. (all)", min=0)
    corrupted_images: int = _option(0, "The most images of a corruption: there are 75 such sets. (as --images)", min=0)
    hold_out: tuple[str, ...] = _option(
        (), "Classes of your own data that no model learns, or none where all are learned. (every fifth)"
    )
    far: str = _option("", "Images of another kind and style than your own.")
    near: str = _option("", "With photos: a folder of images of other classes in the same style.")
    size: int = _option(0, "Scale your images to size × size. (as they are)", min=0)
    backbone: str = _option("", "digits, fast, resnet18, wrn-28-10, … (fast; wrn-28-10 for the preset paper)")
    preset: str = _option("", "How to train: smoke, laptop, laptop-long, laptop-robust or paper. (laptop)")
    root: str = _option("", "The folder of the data sets.")
    settings: Mapping[str, Any] = field(default_factory=dict, metadata={"flag": False})
    """Training settings that differ from the preset."""

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The ID data sets: one cell a model, seed and data set."""
        return (self.data,) if self.data else _PAPER_DATA

    @property
    def seeds_by_model(self) -> dict[str, int]:
        """How many seeds each model has; an ensemble is one, whatever was asked."""
        found = {}
        for text in self.models:
            name, _, count = text.partition(":")
            spec = find_model(name)
            if count and not (count.isdigit() and int(count)):
                raise wrong("models", "names, or name:seeds", text, "write duq:2 for two seeds of duq")
            default = self.seeds or (3 if name in HEADS_COMPARED else 1)
            found[name] = 1 if spec.members else int(count or default)
        return found

    def training(self, model: str, seed: int) -> Training:
        """The preset with what this model needs, then with the user's settings, and this seed."""
        preset, spec = PRESETS[self.preset], find_model(model)
        needed: dict[str, Any] = {"rate": min(preset.rate, spec.max_rate), "clip": spec.clip or preset.clip}
        return replace(resolve(self.preset, needed, dict(self.settings)), seed=seed)

    def differences(self, stored: Mapping[str, Any]) -> list[str]:
        """What differs from the plan in a file, a phrase each.

        Models, seeds, scores, calibrators and data sets may be added.
        """
        ours, theirs = _flatten(self.to_json()), {**_LATER, **_flatten(stored)}
        if isinstance(theirs.get("data"), list):  # older folders have a list
            theirs["data"] = ",".join(map(str, theirs["data"]))
        for name in ("scores", "calibrators"):
            if set(map(str, theirs.get(name) or ())) < set(getattr(self, name)):
                theirs[name] = ours[name]
        # two folders of a user's images may have the same name, so own data may not differ
        fixed = [name for name in {**ours, **theirs} if name not in _FREE or (name, self.suite) == ("data", "own")]
        changed = [name for name in fixed if ours.get(name) != theirs.get(name)]
        return [f"{name} {ours.get(name)!r} for {theirs.get(name)!r}" for name in changed]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def resolve(self) -> "Plan":
        """The plan with every default filled in. Every name is checked: a wrong one is an error now, not hours later.

        >>> Plan(suite="digits", models=("vanilla", "duq:2"), seeds=1).resolve().seeds_by_model
        {'vanilla': 1, 'duq': 2}
        """
        from shiftprism.calibrators import CALIBRATORS
        from shiftprism.corruptions import COMMON, CORRUPTIONS
        from shiftprism.scores import SCORES, find_score

        suite = self._resolve_suite()
        usual = [name for name in SCORES if suite != "photos" or name not in _TOO_LARGE]
        preset = choice("preset", self.preset or {"digits": "smoke"}.get(suite, "laptop"), PRESETS)
        plan = replace(
            self,
            suite=suite,
            data="digits" if suite == "digits" else _absolute(self.data),
            preset=preset,
            backbone=self.backbone or _default_backbone(suite, preset),
            runs=tuple("=".join(parse_run(one)) for text in self.runs for one in list_checkpoints(text)),
            scores=tuple(find_score(name).name for name in dict.fromkeys((*(self.scores or usual), *self.score))),
            score=(),  # from here on they are scores like the others
            calibrators=_check_names("calibrators", self.calibrators, CALIBRATORS)
            or (_PHOTO_CALIBRATORS if suite == "photos" else tuple(CALIBRATORS)),
            corruptions=_check_names("corruptions", self.corruptions, CORRUPTIONS) or tuple(COMMON),
            far=_absolute(self.far),
            near=_absolute(self.near),
            held_out=self.held_out or (0.5 if suite == "photos" else 0.0),
            root=_absolute(self.root),
            settings=({"held_out": 0.2} if suite == "digits" else {}) | dict(self.settings),
        )
        plan = replace(plan, models=_resolve_models(plan))
        plan._check_numbers()
        return plan

    def _resolve_suite(self) -> str:
        suite = self.suite or "own"
        if suite == "own" and not self.data:
            raise wrong("suite", f"one of {', '.join(SUITES)}", "nothing", "or give your own images as data")
        if suite == "digits" and self.data not in ("", "digits"):
            raise wrong("data", "left out with the suite digits", self.data, "leave the suite out for your own data")
        if suite == "photos":
            self._check_photos()
        elif self.near:
            raise wrong("near", "left out but with the suite photos", self.near, "hold classes out for near images")
        if suite == "paper" and self.data:
            choice("data", self.data, _PAPER_DATA)
        return suite if suite == "own" else choice("suite", suite, SUITES)

    def _check_photos(self) -> None:
        """Photographs are measured on models that are trained: their folders must be there, and nothing else."""
        for name in ("data", "far", "near"):
            folder = getattr(self, name)
            if (folder and not Path(folder).is_dir()) or (not folder and name == "data"):
                advice = "name one with a folder of images for each class"
                raise wrong(name, "a folder of photographs", folder or "nothing", advice)
        if not self.runs:
            raise wrong("runs", "given with the suite photos", "nothing", "name the folder of a trained model")
        for name, advice in (
            ("models", "photographs are measured on --runs"),
            ("hold_out", "name folders of other classes with --near and --far"),
            ("size", "the model resizes by its own rule"),
            ("mirror", "mirrored photographs are not measured"),
        ):
            if getattr(self, name):
                raise wrong(name, "left out with the suite photos", getattr(self, name), advice)

    def _check_numbers(self) -> None:
        if self.runs and len(self.data_sets) > 1:
            raise wrong("data", "given with runs", "none", f"say which it is: {', '.join(self.data_sets)}")
        for name in ("images", "corrupted_images"):
            count = getattr(self, name)
            if count < 0 or 0 < count < 10:
                raise wrong(name, "0 for all, or at least 10", count, "a few hundred give an AUROC to a few per cent")
        for name in self.seeds_by_model:
            self.training(name, 0)  # wrong settings are refused now


def find_model(name: str) -> ModelSpec:
    """The model of a name: one of `MODELS`, or a head of `HEADS` by its own name.

    Such a head is trained with the preset's settings, or with those of the model in `MODELS` that has this head.

    >>> find_model("cosine").clip
    1.0
    >>> find_model("euclidean")
    ModelSpec(head='euclidean', variant='', max_rate=inf, clip=0.0, members='')
    """
    if name in MODELS:
        return MODELS[name]
    from shiftprism.heads import HEADS

    choice("models", name, (*MODELS, *(head for head in HEADS if head not in MODELS)))
    return next((spec for spec in MODELS.values() if spec.head == name), ModelSpec(name))


def _resolve_models(plan: Plan) -> tuple[str, ...]:
    """The models with the seeds of each. Without any, all that the backbone has a variant for, or none beside runs."""
    from shiftprism.backbones import BACKBONES

    choice("backbone", plan.backbone, BACKBONES)
    if not plan.models and not plan.runs:
        plan = replace(plan, models=tuple(name for name in MODELS if plan.backbone + MODELS[name].variant in BACKBONES))
    seeds = plan.seeds_by_model
    for name in seeds:
        variant = find_model(name).variant
        if plan.backbone + variant not in BACKBONES:
            others = ", ".join(other for other in BACKBONES if other + variant in BACKBONES)
            got = f"{name}, which needs the backbone {plan.backbone}{variant}"
            expected = f"models that {plan.backbone} has a backbone for"
            raise wrong("models", expected, got, f"leave it out, or choose one of {others}")
    there = {*seeds, *(parse_run(text)[0] for text in plan.runs)}
    for name in seeds:
        if (members := find_model(name).members) and members not in there:
            raise wrong(
                "models", f"with {members} where there is {name}", "none", f"add {members}: they are its members"
            )
    return tuple(f"{name}:{count}" for name, count in seeds.items())


def _default_backbone(suite: str, preset: str) -> str:
    if suite == "digits":
        return "digits"
    return "wrn-28-10" if preset == "paper" else "fast"


def _flatten(plan: Mapping[str, Any]) -> dict[str, Any]:
    """With each setting of training beside the rest, so that a difference is reported by its own name."""
    return {**{name: value for name, value in plan.items() if name != "settings"}, **plan.get("settings", {})}


def _absolute(path: str) -> str:
    """The full path of what exists: a cell may run in another folder, or on another machine."""
    return str(Path(path).resolve()) if path and Path(path).exists() else path


def _check_names(argument: str, names: Sequence[str], known: Any) -> tuple[str, ...]:
    return tuple(choice(argument, name, known) for name in names)


def parse_run(text: str) -> tuple[str, str]:
    """Name and folder of NAME=FOLDER or FOLDER; the folder must hold a model."""
    name, equals, folder = text.partition("=")
    path = Path(folder if equals else text)
    if not (path / "model.json").is_file():
        advice = "name a folder that `shiftprism train` finished or Classifier.save wrote"
        raise wrong("runs", "folders of trained models", f"{path} without model.json", advice)
    return (name if equals else path.resolve().name), str(path.resolve())


def list_checkpoints(text: str) -> list[str]:
    """NAME=RUN/checkpoints as NAME@EPOCH=FOLDER for each epoch that the run kept; any other text as it is."""
    name, equals, folder = text.partition("=")
    path = Path(folder if equals else text)
    if path.name != "checkpoints" or not path.is_dir():
        return [text]
    epochs = sorted(int(one.parent.name) for one in path.glob("*/model.json") if one.parent.name.isdigit())
    if not epochs:
        raise wrong("runs", "folders of trained models", f"{path} without any", "train with --keep to keep some")
    model = name if equals else path.resolve().parent.name
    return [f"{model}@{epoch}={path / str(epoch)}" for epoch in epochs]
