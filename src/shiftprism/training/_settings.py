"""Every hyper-parameter of training in one dataclass, each with its reason. Nothing here imports torch."""

import json
import math
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shiftprism._errors import choice, wrong
from shiftprism._files import check_file, write_text

T = TypeVar("T")


def _setting(default: T, reason: str, **limits: Any) -> T:
    """A field with its reason, which the command line shows as the flag's help, and with what its value must be.

    Limits: `min` and `max`, the least and the largest number; `below`, the number that it must stay under; `choices`,
    the names it may be.
    """
    described: T = field(default=default, metadata={"help": reason, **limits})
    return described


@dataclass(frozen=True)
class Training:
    """How a classifier is trained. The defaults are the paper's (Sec. 4 and appendix), but for `held_out`.

    >>> Training(epochs=0)
    Traceback (most recent call last):
    ...
    ValueError: Expected `epochs` to be a finite number of at least 1 but got 0; see shiftprism train --help.
    """

    epochs: int = _setting(200, "Passes over the data.", min=1)
    batch: int = _setting(128, "Images per step, over all processes. If you change it, scale the rate alike.", min=1)
    rate: float = _setting(0.1, "SGD's highest learning rate. It falls to 0 along half a cosine, step by step.", min=0)
    warmup: float = _setting(0.0, "Share of all steps over which the rate first rises from 0.", min=0, below=1)
    momentum: float = _setting(0.9, "SGD's momentum.", min=0, below=1)
    nesterov: bool = _setting(False, "Nesterov momentum. The paper uses plain momentum.")
    weight_decay: float = _setting(5e-4, "On all parameters, also of α and β. A head may exempt class weights.", min=0)
    clip: float = _setting(0.0, "Largest gradient norm, 0 for any. Cosine heads need it on short schedules.", min=0)
    crop: int = _setting(4, "Zero padding for random crops, one offset per image. 0 for no crops.", min=0)
    flip: bool = _setting(True, "Random horizontal flips. Wrong for digits and text.")
    pixmix: float = _setting(0.0, "Share of the images that PixMix mixes with fractals and the like.", min=0, max=1)
    pixmix_from: float = _setting(0.0, "Share of the epochs before the first one with PixMix.", min=0, below=1)
    rotation: float = _setting(0.0, "Weight of the loss of rotation prediction, 0 for none. RotPred: 0.5.", min=0)
    held_out: float = _setting(0.1, "Share of each class held out for calibrators and ranks.", min=0, below=1)
    precision: str = _setting(
        "float32",
        "float32, bfloat16 for the backbone, or auto: the faster of the two here, measured at the start.",
        choices=("auto", "float32", "bfloat16"),
    )
    channels_last: bool = _setting(True, "Keep channels last in memory, which is faster for convolutions.")
    compile: bool = _setting(False, "torch.compile the network. It pays off in long runs only.")
    keep: int = _setting(0, "Keep the model after every n-th epoch, in the run's checkpoints/EPOCH. 0 for none.", min=0)
    seed: int = _setting(0, "Seed of the weights, of the order of the images and of their augmentation.")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, limits = getattr(self, each.name), each.metadata
            if "choices" in limits:
                choice(each.name, value, limits["choices"])
            low, high, most = limits.get("min", -math.inf), limits.get("below", math.inf), limits.get("max", math.inf)
            # NaN fails every comparison, and so does infinity here
            if "min" in limits and not (low <= value < high and value <= most):
                ends = f"{most}]" if "max" in limits else f"{high})" if "below" in limits else ""
                expected = f"in [{low}, {ends}" if ends else f"a finite number of at least {low}"
                raise wrong(each.name, expected, value, "see shiftprism train --help")


# two CPU cores, the backbone `fast`: docs/training.md says what was tried
_LAPTOP = Training(epochs=12, batch=256, rate=0.4, warmup=0.2, nesterov=True, precision="auto")
PRESETS: dict[str, Training] = {
    # Sec. 4: 200 epochs of SGD on all of CIFAR with cosine annealing
    "paper": Training(held_out=0.0),
    "laptop": _LAPTOP,
    # five times as long at the same rate, so that length alone differs. The warm-up has as many steps as before,
    # because a fifth of sixty epochs would be spent at low rates. Checkpoints show what changes with length
    "laptop-long": replace(_LAPTOP, epochs=60, warmup=0.04, keep=5),
    # `laptop` with PixMix in the last third, where the rate is low: corrupted images are then classified better. With
    # a larger share of mixed images clean ones are classified worse (docs/training.md)
    "laptop-robust": replace(_LAPTOP, pixmix=0.3, pixmix_from=2 / 3),
    # digits of 8 × 8, in seconds; crops of one pixel, because two would cut strokes off
    "smoke": Training(epochs=15, batch=64, rate=0.2, warmup=0.1, clip=1.0, crop=1, flip=False),
}


class Setup(NamedTuple):
    """What a run trains: data, backbone and head by name, with settings; `root` is where the data are."""

    data: str
    backbone: str
    head: str
    training: Training
    root: Path | None = None

    def settings(self) -> dict[str, Any]:
        """The flat table that stands in the run's config.toml. `root` is not in it: another machine has its own."""
        return {"data": self.data, "backbone": self.backbone, "head": self.head, **asdict(self.training)}


def read_settings(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    # here and not above: a service reads none, and on Python 3.10 it has no tomli
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(check_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested without end
        raise wrong("config", "a TOML file", f"{path} ({error})", "repair it") from error


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a person's TOML file; an unknown name or a wrong value is an error that names it."""
    settings = read_settings(path)
    names = ("data", "backbone", "head", "preset")
    try:
        resolve(
            str(settings.get("preset", "paper")), {name: value for name, value in settings.items() if name not in names}
        )
    except ValueError as error:
        raise wrong("config", "a file of settings", f"{path} ({str(error).rstrip('.')})", "correct it") from error
    return settings


def read_run_settings(folder: Path) -> dict[str, Any]:
    """What a run's config.toml says, empty without one; a known setting of another type is an error."""
    path = folder / "config.toml"
    settings = read_settings(path) if path.exists() else {}
    types: dict[str, Any] = {"data": str, "backbone": str, "head": str}
    types |= {each.name: type(each.default) for each in fields(Training)}
    for name, kind in types.items():
        value = settings.get(name, kind())
        if type(value) is not kind and not (kind is float and type(value) is int):
            got = f"{path} with {name} = {value!r:.40}"
            raise wrong("path", "the settings of a run", got, f"{name} is of type {kind.__name__}")
    if not 0 <= settings.get("held_out", 0) < 1:
        got = f"{path} with held_out = {settings['held_out']}"
        raise wrong("path", "the settings of a run", got, "it is a share of each class")
    return settings


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write a flat table as TOML. JSON's scalars are written the same way in TOML."""
    write_text(path, "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


def resolve(preset: str, *layers: dict[str, Any]) -> Training:
    """A preset with the changes of each layer in turn; an unknown name or a wrong type is an error.

    >>> resolve("smoke", {"epochs": 3, "rate": 1}, {"epochs": 5}).epochs
    5
    """
    training = PRESETS[choice("preset", preset, PRESETS)]
    types = {each.name: type(each.default) for each in fields(Training)}
    for layer in layers:
        for name, value in layer.items():
            if name not in types:
                raise wrong("config", f"made of {', '.join(types)}", name, "correct or remove this name")
            whole_number = types[name] is float and type(value) is int  # TOML's `rate = 1` is an int
            # not isinstance: a bool is an int to Python, but True is no number of epochs
            if type(value) is not types[name] and not whole_number:
                raise wrong(name, f"of type {types[name].__name__}", repr(value), "see shiftprism train --help")
            change: dict[str, Any] = {name: float(value) if whole_number else value}
            training = replace(training, **change)
    return training


# settings that tables of earlier versions lack, and what they were then
_YOUNGER = {"pixmix": 0.0, "pixmix_from": 0.0, "rotation": 0.0, "keep": 0}


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """What differs between two tables of settings, one phrase each.

    A setting that is younger than a table is missing there and had its default, which changes nothing.

    >>> differences({"rate": 0.5, "seed": 0}, {"rate": 0.2, "seed": 0})
    ['rate 0.5 for 0.2']
    """
    ours, theirs = _YOUNGER | ours, _YOUNGER | theirs
    changed = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    return [f"{name} {ours.get(name)!r} for {theirs.get(name)!r}" for name in changed]
