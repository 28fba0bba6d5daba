"""Reading saved calibrators: `weights.safetensors` + `calibrator.json`, strictly, nothing pickled."""

import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import WEIGHTS, check_seal, fingerprint, load_state, read_json, read_tensors
from shiftprism.calibrators._calibrator import ABOUT, FORMAT, OLD_WEIGHTS, UNFITTED, Calibrator, Report
from shiftprism.calibrators._registry import CALIBRATORS

_OLD_FORMAT = "shiftprism-calibrator-1"
_AGAIN = "fit it again and save it"


def load(folder: str | Path, model: str | None = None) -> Calibrator:
    """The calibrator that `Calibrator.save` wrote to `folder`; with `model`, only one fitted to that fingerprint.

    Strict: a missing, extra or mis-shaped tensor is an error that names it. Nothing is unpickled.
    """
    folder = Path(folder)
    about = read_json(folder / ABOUT, "a saved calibrator", "name a folder that Calibrator.save wrote")
    kinds = {kind.__name__: kind for kind in CALIBRATORS.values()}
    if about.get("format") not in (FORMAT, _OLD_FORMAT) or str(about.get("kind")) not in kinds:
        got = f"{folder}, written by another version"
        raise wrong("folder", f"a calibrator of format {FORMAT}", got, _AGAIN)
    if model is not None and about.get("model") != model:
        got = f"one fitted to {about.get('model')!r}"
        raise wrong("folder", f"a calibrator fitted to the model {model!r}", got, "fit it to this model")
    tensors = _read_weights(folder, about["format"])
    calibrator = _build(kinds[about["kind"]], tensors, about, folder)
    if about.get("weights", fingerprint(tensors)) != fingerprint(tensors):  # older files do not name their weights
        raise wrong("folder", "a whole saved calibrator", f"{folder} with the weights of another fit", _AGAIN)
    check_seal(folder / ABOUT, about, "a whole saved calibrator", _AGAIN)
    return calibrator


def _read_weights(folder: Path, written: str) -> dict[str, Tensor]:
    if written == FORMAT:
        return read_tensors(folder / WEIGHTS, FORMAT, _AGAIN)[0]
    warnings.warn(f"{folder} holds a calibrator of an older format; load it and save it again", stacklevel=3)
    # format 1 had the flag only for kinds that could not express the model's own logits in their parameters
    return {"unchanged": torch.tensor(False), **read_tensors(folder / OLD_WEIGHTS, None, _AGAIN)[0]}


def _build(kind: type[Calibrator], tensors: dict[str, Tensor], about: dict[str, Any], folder: Path) -> Calibrator:
    settings: Any = about.get("settings")
    report: Any = about.get("report")
    if not isinstance(settings, dict) or set(settings) != set(kind.settings) or not isinstance(report, dict):
        raise wrong("folder", "a whole saved calibrator", f"{folder} with other settings", _AGAIN)
    if not all(_is_like(value, UNFITTED._asdict().get(name)) for name, value in report.items()):
        raise wrong("folder", "a whole saved calibrator", f"{folder} with an odd report", _AGAIN)
    numbers: dict[str, Any] = {name: math.nan if value is None else value for name, value in report.items()}
    try:
        calibrator = kind(**tensors, **settings, report=Report(**numbers))
    except (TypeError, ValueError, RuntimeError) as error:  # a missing, extra or mis-shaped tensor
        raise wrong("folder", "tensors that fit the calibrator", f"{folder}, where {error}", _AGAIN) from error
    load_state(calibrator, tensors, folder, _AGAIN)
    return calibrator


def _is_like(value: Any, example: Any) -> bool:
    """Whether a value of the report has the type of the example; a number that is not known is None."""
    if isinstance(example, float):
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    return type(value) is type(example)
