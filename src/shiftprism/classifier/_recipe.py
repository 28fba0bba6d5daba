"""`model.json`, the description of a saved model: checked as a whole before anything is built from it."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.backbones import BACKBONES
from shiftprism.heads import HEADS

FORMAT = "shiftprism-model-1"
ADVICE = "save the model again"
_LARGEST_IMAGE = 1 << 16


class ModelFile(NamedTuple):
    """What `model.json` says."""

    names: tuple[str, ...]
    recipe: dict[str, Any] | None
    """The names and arguments that `Classifier.build` was called with; None for a model made of other code."""
    image_size: tuple[int, int] | None
    """Height and width of the images it was trained on; None if it takes any size."""
    weights: str
    """The fingerprint of the weights."""
    settings: dict[str, Any] | None
    """Those of the head, by name; None in files of earlier versions."""


def check_model_file(about: dict[str, Any], path: Path, state: Mapping[str, Tensor]) -> ModelFile:
    """The description that was read from `path`, if every part of it is one that `Classifier.save` could have written.

    `state` are the saved tensors: no number in the description can be larger than what occurs in them, so a wrong one
    is found before anything of that size is allocated.
    """
    keys = ("names", "recipe", "image_size", "weights", "settings")
    names, recipe, size, weights, settings = (about.get(key) for key in keys)
    largest = max((number for tensor in state.values() for number in tensor.shape), default=0)
    faults = [
        _find_fault_of_names(names),
        _find_fault_of_recipe(recipe, max(largest, len(state))),
        "" if size is None or _is_size(size) else f"image_size {size!r:.40} is not two positive numbers",
        "" if isinstance(weights, str) else "weights is no fingerprint",
        "" if settings is None or isinstance(settings, dict) else f"settings is no table ({settings!r:.40})",
    ]
    if fault := next(filter(None, faults), ""):
        raise wrong("folder", "a whole saved model", f"{path}, where {fault}", ADVICE)
    sides = None if size is None else (size[0], size[1])
    return ModelFile(tuple(names or ()), recipe, sides, str(weights), settings)


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
