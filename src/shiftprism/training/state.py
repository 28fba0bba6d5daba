"""What a run needs to go on as if it had never stopped, in one safetensors file that is whole or absent."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism._files import write_tensors
from shiftprism.training.settings import Training, difference

_FORMAT = "shiftprism-training-1"


class State(NamedTuple):
    """Everything that moves during training."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator


def save_state(path: Path, state: State, training: Training, history: list[dict[str, Any]]) -> None:
    """Write the state after an epoch; `history` holds that epoch's record last."""
    tensors = {f"network.{name}": tensor for name, tensor in state.network.state_dict().items()}
    for number, parameter in enumerate(_parameters(state.optimizer)):
        buffer = state.optimizer.state.get(parameter, {}).get("momentum_buffer")
        if buffer is not None:
            tensors[f"momentum.{number}"] = buffer
    tensors["generator"] = state.generator.get_state()
    tensors["random"] = torch.get_rng_state()  # dropout draws from the global generator
    about = {"format": _FORMAT, "training": json.dumps(asdict(training)), "history": json.dumps(history)}
    write_tensors(path, tensors, about)


def load_state(path: Path, state: State, training: Training) -> list[dict[str, Any]]:
    """Put a saved state in place and return its history; one of other settings is refused, with what differs."""
    about = _about(path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    changed = difference(training, json.loads(about["training"]))
    if changed:
        advice = "resume with the settings it began with, or train into another folder"
        raise wrong("training", f"what {path} began with", "; ".join(changed), advice)
    weights = {name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")}
    state.network.load_state_dict(weights)
    for number, parameter in enumerate(_parameters(state.optimizer)):
        if f"momentum.{number}" in tensors:
            state.optimizer.state[parameter]["momentum_buffer"] = tensors[f"momentum.{number}"].to(parameter)
    state.generator.set_state(tensors["generator"])
    torch.set_rng_state(tensors["random"])
    history: list[dict[str, Any]] = json.loads(about["history"])
    return history


def stored_settings(path: Path) -> dict[str, Any]:
    """The settings a state was trained with so far."""
    found: dict[str, Any] = json.loads(_about(path)["training"])
    return found


def _about(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise wrong("resume", "a whole training state", f"{path} ({error})", "remove it to start anew") from error
    if about.get("format") != _FORMAT:
        raise wrong("resume", f"a state of format {_FORMAT}", str(path), "it was written by another version")
    return about


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
