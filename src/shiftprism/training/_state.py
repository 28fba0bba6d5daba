"""What a run needs to resume as if it had never stopped, in one safetensors file that is whole or absent."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shiftprism import _files
from shiftprism._errors import wrong
from shiftprism.classifier import Classifier
from shiftprism.training._settings import Training, differences, write_settings

_FORMAT = "shiftprism-training-1"
_ADVICE = "remove it to start again"


class State(NamedTuple):
    """Everything that changes during training."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    rotation: nn.Module | None = None
    """The layer that predicts rotations; the saved classifier does not have it."""


def save_state(path: Path, state: State, training: Training, history: list[dict[str, Any]]) -> None:
    """Write the state after an epoch; the last record of `history` is that epoch's."""
    tensors = {f"{part}.{name}": t for part, own in _modules(state).items() for name, t in own.state_dict().items()}
    for number, parameter in enumerate(_parameters(state.optimizer)):
        buffer = state.optimizer.state.get(parameter, {}).get("momentum_buffer")
        if buffer is not None:
            tensors[f"momentum.{number}"] = buffer
    tensors["generator"] = state.generator.get_state()
    tensors["random"] = torch.get_rng_state()  # dropout draws from the global generator
    metadata = {"format": _FORMAT, "training": json.dumps(asdict(training)), "history": json.dumps(history)}
    _files.write_tensors(path, tensors, metadata)


def load_state(path: Path, state: State, training: Training) -> list[dict[str, Any]]:
    """Put a saved state in place and return its history; a state of other settings is an error that names them."""
    tensors, metadata = _files.read_tensors(path, _FORMAT, _ADVICE)
    changed = differences(asdict(training), _read_entry(path, metadata, "training", dict))
    if changed:
        advice = "resume with the settings it began with, or train into another folder"
        raise wrong("training", f"what {path} began with", "; ".join(changed), advice)
    for part, module in _modules(state).items():
        own = {name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(f"{part}.")}
        _files.load_state(module, own, path, _ADVICE)
    for number, parameter in enumerate(_parameters(state.optimizer)):
        buffer = tensors.get(f"momentum.{number}")
        if buffer is not None:  # there is none where the momentum is 0
            if buffer.shape != parameter.shape:
                got = f"{path}, where momentum.{number} has shape {tuple(buffer.shape)} for {tuple(parameter.shape)}"
                raise wrong("path", "tensors that fit the code", got, _ADVICE)
            state.optimizer.state[parameter]["momentum_buffer"] = buffer.to(parameter)
    try:
        state.generator.set_state(tensors["generator"])
        torch.set_rng_state(tensors["random"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise wrong("path", "a training state with its generators", f"{path} ({error!r})", _ADVICE) from error
    history: list[dict[str, Any]] = _read_entry(path, metadata, "history", list)
    return history


def save_checkpoint(folder: Path, classifier: Classifier, training: Training) -> None:
    """Write the model as it is now, after the settings that say what it was not trained on; no test set is read."""
    write_settings(folder / "config.toml", asdict(training))
    classifier.save(folder)


def read_state_settings(path: Path) -> dict[str, Any]:
    """The settings that a saved state was trained with."""
    settings: dict[str, Any] = _read_entry(path, _files.read_metadata(path, _FORMAT, _ADVICE), "training", dict)
    return settings


def _read_entry(path: Path, metadata: dict[str, str], name: str, kind: type) -> Any:
    try:
        if not isinstance(found := json.loads(metadata[name]), kind):
            raise TypeError(f"no {kind.__name__}")
        return found
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise wrong("path", f"a training state with its {name}", f"{path} ({error!r})", _ADVICE) from error


def _modules(state: State) -> dict[str, nn.Module]:
    """What is trained, by the prefix of its names in the file."""
    modules = {"network": state.network, "rotation": state.rotation}
    return {part: module for part, module in modules.items() if module is not None}


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
