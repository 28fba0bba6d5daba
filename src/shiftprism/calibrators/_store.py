"""Saved calibrators: `calibrator.safetensors` + `calibrator.json`, read strictly, nothing pickled."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.calibrators._calibrator import FORMAT, Calibrator, Report


def load_as(kinds: Mapping[str, type[Calibrator]], folder: str | Path, model: str | None = None) -> Calibrator:
    """The calibrator saved in `folder`, one of `kinds` (by class name)."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "calibrator.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "calibrator.safetensors")
    except (OSError, json.JSONDecodeError, SafetensorError) as error:
        got = f"{folder} ({error})"
        raise wrong("folder", "a saved calibrator", got, "name a folder that Calibrator.save wrote") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("kind") not in kinds:
        got = f"{folder}, written by another version"
        raise wrong("folder", f"a calibrator of format {FORMAT}", got, "fit it again and save it")
    if model is not None and about.get("model") != model:
        got = f"one fitted to {about.get('model')!r}"
        raise wrong("folder", f"a calibrator fitted to the model {model!r}", got, "fit it to this model")
    return _built(kinds[about["kind"]], tensors, about, folder)


def _built(kind: type[Calibrator], tensors: dict[str, Tensor], about: dict[str, Any], folder: Path) -> Calibrator:
    settings: Any = about.get("settings")
    found: Any = about.get("report")
    if not isinstance(settings, dict) or set(settings) != set(kind.settings) or not isinstance(found, dict):
        raise wrong("folder", "a whole saved calibrator", f"{folder} with other settings", "fit it again and save it")
    try:
        known: dict[str, Any] = {name: math.nan if value is None else value for name, value in found.items()}
        report = Report(**known)
        made = kind(**tensors, **settings, report=report)
    except (TypeError, ValueError, RuntimeError) as error:  # a missing, extra or mis-shaped tensor
        got = f"{folder}, where {error}"
        raise wrong("folder", "tensors that fit the calibrator", got, "fit it again and save it") from error
    own = made.state_dict()
    faults = [
        f"{name} has shape {tuple(tensors[name].shape)} for {tuple(tensor.shape)}" if name in tensors else name
        for name, tensor in own.items()
        if name not in tensors or tensors[name].shape != tensor.shape
    ]
    if faults:
        got = f"{folder}, where {'; '.join(faults)}"
        raise wrong("folder", "tensors that fit the calibrator", got, "fit it again and save it")
    return made
