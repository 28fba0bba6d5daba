"""Every hyper-parameter of training in one dataclass, each with its reason. Nothing here imports torch."""

import json
import math
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from shiftprism._errors import choice, wrong
from shiftprism._files import write_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")


def _why(default: T, reason: str) -> T:
    """A field with its reason, which the command line shows as the flag's help."""
    found: T = field(default=default, metadata={"help": reason})
    return found


@dataclass(frozen=True)
class Training:
    """How a classifier is trained. The defaults are the paper's (Sec. 4 and appendix).

    >>> Training(epochs=0)
    Traceback (most recent call last):
    ...
    ValueError: Expected `epochs` to be a finite number from 1 on but got 0; see shiftprism train --help.
    """

    epochs: int = _why(200, "Passes over the data.")
    batch: int = _why(128, "Images a step, over all processes; with another size scale the rate alike.")
    rate: float = _why(0.1, "SGD's learning rate at its height; it falls to 0 along half a cosine, step by step.")
    warmup: float = _why(0.0, "The part of all steps over which the rate first rises from 0.")
    momentum: float = _why(0.9, "SGD's momentum.")
    nesterov: bool = _why(False, "Nesterov's form of momentum; the paper has the plain one.")
    weight_decay: float = _why(5e-4, "On every parameter, α's and β's too; a head may exempt its class weights.")
    clip: float = _why(0.0, "Largest length of the whole gradient, 0 for any; cosine heads need it on short schedules.")
    crop: int = _why(4, "Zero padding of the random crops, one offset an image; 0 for none.")
    flip: bool = _why(True, "Random horizontal flips; wrong for digits and text.")
    held_out: float = _why(0.1, "Share of the training set kept for calibrators and ranks, by class; 0 is the paper's.")
    precision: str = _why(
        "float32", "float32, bfloat16 for the backbone, or auto: what is faster here, measured at the start."
    )
    channels_last: bool = _why(True, "Keep images with channels last in memory, which convolutions are faster with.")
    compile: bool = _why(False, "torch.compile the network; it pays for long runs.")
    seed: int = _why(0, "Draws the weights, the order of the images and their augmentation.")

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch": 1, "rate": 0, "momentum": 0, "weight_decay": 0, "clip": 0, "crop": 0}
        for name, low in least.items():
            if not low <= getattr(self, name) < math.inf:
                raise wrong(name, f"a finite number from {low} on", getattr(self, name), "see shiftprism train --help")
        for name in ("warmup", "held_out"):
            if not 0 <= getattr(self, name) < 1:
                raise wrong(name, "in [0, 1)", getattr(self, name), "it is a part of a whole")
        choice("precision", self.precision, ("auto", "float32", "bfloat16"))


PRESETS: dict[str, Training] = {
    # Sec. 4: 200 epochs of SGD on all of CIFAR with cosine annealing
    "paper": Training(held_out=0.0),
    # two CPU cores, the backbone `fast`: docs/training.md has what was tried
    "laptop": Training(epochs=12, batch=256, rate=0.4, warmup=0.2, nesterov=True, precision="auto"),
    # digits of 8 × 8: seconds; crops of one pixel, for two would cut strokes off
    "smoke": Training(epochs=15, batch=64, rate=0.2, warmup=0.1, clip=1.0, crop=1, flip=False),
}


def read_settings(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise wrong("config", "a TOML file", f"{path} ({error})", "repair it") from error


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """A flat table as TOML: the scalars of JSON are scalars of TOML too."""
    write_text(path, "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


def resolve(preset: str, *layers: dict[str, Any]) -> Training:
    """A preset with what the layers change, the later ones last; an unknown name or a wrong type is refused."""
    training = PRESETS[choice("preset", preset, PRESETS)]
    known = {one.name: type(one.default) for one in fields(Training)}
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                raise wrong("config", f"made of {', '.join(known)}", name, "mend or remove this name")
            number = known[name] is float and type(value) is int
            if type(value) is not known[name] and not number:
                raise wrong(name, f"a {known[name].__name__}", repr(value), "see shiftprism train --help")
            change: dict[str, Any] = {name: float(value) if number else value}
            training = replace(training, **change)
    return training


def difference(ours: Training, theirs: dict[str, Any]) -> list[str]:
    """What differs between settings and those stored with a checkpoint, one phrase each."""
    found = asdict(ours)
    changed = [name for name in sorted(found.keys() | theirs.keys()) if found.get(name) != theirs.get(name)]
    return [f"{name} {found.get(name)!r} for {theirs.get(name)!r}" for name in changed]
