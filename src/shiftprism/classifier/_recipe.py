"""`model.json`, the description of a saved model: checked as a whole before anything is built from it."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.backbones import BACKBONES
from shiftprism.classifier._headless import REDUCTIONS, Adapted, Cut
from shiftprism.classifier._preprocessing import Preprocessing, find_fault
from shiftprism.heads import HEADS

FORMAT = "shiftprism-model-1"
ADVICE = "save the model again"
_LARGEST_IMAGE = 1 << 16
_MOST_NUMBERS = 1 << 26


class ModelFile(NamedTuple):
    """What `model.json` says."""

    names: tuple[str, ...]
    recipe: dict[str, Any] | None
    """The names and arguments that `Classifier.build` was called with; None for a model made of other code."""
    preprocessing: Preprocessing
    """Size, resize rule and channels of its images."""
    weights: str
    """The fingerprint of the weights."""
    settings: dict[str, Any] | None
    """Those of the head, by name; None in files of earlier versions."""
    adapted: Adapted | None
    """How it was made from a model of other code; None for one that was not."""


def check_model_file(about: dict[str, Any], path: Path, state: Mapping[str, Tensor]) -> ModelFile:
    """The description that was read from `path`, if every part of it is one that `Classifier.save` could have written.

    `state` are the saved tensors: no number in the description can be larger than what occurs in them, so a wrong one
    is found before anything of that size is allocated.
    """
    keys = ("names", "recipe", "image_size", "weights", "settings")
    names, recipe, size, weights, settings = (about.get(key) for key in keys)
    # files of earlier versions have an image size alone
    adapted = about.get("adapted")
    rule = about.get("preprocessing", {"size": size, "resize": None, "channels": None})
    largest = max((number for tensor in state.values() for number in tensor.shape), default=0)
    faults = [
        _find_fault_of_names(names),
        _find_fault_of_recipe(recipe, max(largest, len(state))),
        "" if size is None or _is_size(size) else f"image_size {size!r:.40} is not two positive numbers",
        _find_fault_of_preprocessing(rule),
        "" if adapted is None else _find_fault_of_adapted(adapted, names),
        "" if isinstance(weights, str) else "weights is no fingerprint",
        "" if settings is None or isinstance(settings, dict) else f"settings is no table ({settings!r:.40})",
    ]
    if fault := next(filter(None, faults), ""):
        raise wrong("folder", "a whole saved model", f"{path}, where {fault}", ADVICE)
    preprocessing = Preprocessing(**{name: _as_tuple(value) for name, value in rule.items()})
    return ModelFile(tuple(names or ()), recipe, preprocessing, str(weights), settings, _read_adapted(adapted))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _find_fault_of_preprocessing(rule: Any) -> str:
    if not isinstance(rule, dict) or set(rule) != {"size", "resize", "channels"}:
        return f"preprocessing does not consist of size, resize and channels ({rule!r:.60})"
    fault = find_fault(*(_as_tuple(rule[name]) for name in ("size", "resize", "channels")))
    return f"preprocessing is {rule!r:.80}: {fault}" if fault else ""


def _find_fault_of_adapted(adapted: Any, names: Any) -> str:
    if not isinstance(adapted, dict) or set(adapted) != set(Adapted._fields):
        return f"adapted does not consist of {', '.join(Adapted._fields)} ({adapted!r:.60})"
    factory, cuts, shape, logits = (adapted[name] for name in Adapted._fields)
    if factory is not None and not isinstance(factory, str):
        return f"factory is no name ({factory!r:.40})"
    if not isinstance(cuts, list) or not cuts or not all(map(_is_cut, cuts)):
        return f"cuts is no list of layers and {', '.join(REDUCTIONS)} ({cuts!r:.60})"
    sides = isinstance(shape, list) and len(shape) == 3 and all(_is_like(side, 1, _LARGEST_IMAGE) for side in shape)
    if not sides or shape[0] * shape[1] * shape[2] > _MOST_NUMBERS:
        return f"shape is not that of an image ({shape!r:.40})"
    if not isinstance(logits, list) or not all(type(value) in (int, float) for value in logits):
        return f"logits is no list of numbers ({logits!r:.40})"
    return "" if len(logits) in (0, len(names or ())) else f"there are {len(logits)} logits of other classes"


def _is_cut(cut: Any) -> bool:
    pair = isinstance(cut, list) and len(cut) == 2 and all(isinstance(part, str) for part in cut)
    return pair and cut[1] in REDUCTIONS


def _read_adapted(adapted: dict[str, Any] | None) -> Adapted | None:
    if adapted is None:
        return None
    cuts = tuple(Cut(*cut) for cut in adapted["cuts"])
    return Adapted(adapted["factory"], cuts, tuple(adapted["shape"]), tuple(map(float, adapted["logits"])))


def _find_fault_of_names(names: Any) -> str:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return f"names is no list of class names ({names!r:.40})"
    return "" if len(set(names)) == len(names) else "a class name occurs twice"


def _find_fault_of_recipe(recipe: Any, largest: int) -> str:
    if recipe is None:
        return ""
    if not isinstance(recipe, dict) or set(recipe) != {"backbone", "arguments", "head"}:
        return f"recipe does not consist of backbone, arguments and head ({recipe!r:.40})"
    for part, known in (("backbone", BACKBONES), ("head", HEADS)):
        if not isinstance(recipe[part], str) or recipe[part] not in known:
            return f"the {part} {recipe[part]!r:.40} is unknown"
    arguments = recipe["arguments"]
    if not isinstance(arguments, dict) or "channels" not in arguments:
        return f"arguments is no table with the number of channels ({arguments!r:.40})"
    return _find_fault_of_arguments(recipe["backbone"], arguments, largest)


def _find_fault_of_arguments(backbone: str, arguments: dict[str, Any], largest: int) -> str:
    parameters = inspect.signature(BACKBONES[backbone]).parameters
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in arguments.items():
        if name not in parameters and not passes_on:
            return f"the backbone {backbone} has no argument {name!r:.40}"
        default = parameters[name].default if name in parameters else value
        if not _is_like(value, default, largest):
            return f"the argument {name} of the backbone {backbone} cannot be {value!r:.40}"
    return ""


def _is_like(value: Any, default: Any, largest: int) -> bool:
    """Whether a value has the type of the default, with numbers from 1 to `largest`."""
    if isinstance(default, Sequence) and not isinstance(default, str):
        return isinstance(value, list) and bool(value) and all(_is_like(each, 1, largest) for each in value)
    if isinstance(default, float):
        return type(value) in (int, float) and 0 < value <= _LARGEST_IMAGE
    # not isinstance: True is an int to Python, but no number of channels
    return type(value) is type(default) and (type(value) is not int or 1 <= value <= largest)


def _is_size(size: Any) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(_is_like(side, 1, _LARGEST_IMAGE) for side in size)
