"""Saved scores, read back: a folder of `weights.safetensors` and `score.json`, or the single file of older versions."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import WEIGHTS, check_seal, fingerprint, read_json, read_tensors
from shiftprism.scores._approximate import ApproximateKNN
from shiftprism.scores._fitted import FORMAT, Fitted
from shiftprism.scores._gaussian import SPACES, Mahalanobis
from shiftprism.scores._neighbours import KNN, NNGuide
from shiftprism.scores._ranks import Prism
from shiftprism.scores._spectrum import Spectrum
from shiftprism.scores._table import SCORES

_SINGLE_FILE = "shiftprism-score-1"
"""The format of older versions, which wrote the name and the settings into the metadata of one safetensors file."""
_SETTINGS: Mapping[type[Fitted], Mapping[str, type | tuple[str, ...]]] = {
    Mahalanobis: {"space": SPACES},
    KNN: {"k": int},
    ApproximateKNN: {"k": int, "probes": int},
    NNGuide: {"k": int},
    Prism: {"k": int},
    Spectrum: {"k": int},
}
"""The settings that a saved score must have, each with its type or its values."""
_ADVICE = "fit the score and save it again"


def load(folder: str | Path) -> Fitted:
    """The fitted score that `save` wrote to a folder.

    Strict: tensors that are missing, unknown or not those the folder was saved with are an error. Nothing is unpickled.
    """
    path = Path(folder)
    if path.is_file():
        score = _load_single_file(path)
        warnings.warn(f"{path} is a score in an older format; save it again, to a folder", stacklevel=2)
        return score
    about = read_json(path / "score.json", "a saved score", "name a folder that the score's `save` wrote")
    if about.get("format") != FORMAT:
        got = f"{path} of format {about.get('format')}"
        raise wrong("folder", f"a score of format {FORMAT}", got, _ADVICE)
    tensors, _ = read_tensors(path / WEIGHTS, FORMAT, _ADVICE)
    score = _build(about.get("score"), tensors, about.get("settings"), path)
    if about.get("weights") != fingerprint(tensors):
        raise wrong("folder", "a whole saved score", f"{path} with the weights of another fit", _ADVICE)
    check_seal(path / "score.json", about, "a whole saved score", _ADVICE)
    return score


def _load_single_file(path: Path) -> Fitted:
    tensors, about = read_tensors(path, _SINGLE_FILE, _ADVICE)
    try:
        settings = json.loads(about.get("settings", ""))
    except ValueError as error:
        raise wrong("path", "a whole saved score", f"{path} ({error})", _ADVICE) from error
    return _build(about.get("score"), tensors, settings, path)


def _build(name: Any, tensors: dict[str, Tensor], settings: Any, path: Path) -> Fitted:
    implementations = [ApproximateKNN, *(entry.implementation for entry in SCORES.values())]
    kinds: dict[str, type[Fitted]] = {kind.__name__: kind for kind in implementations if isinstance(kind, type)}
    if not isinstance(name, str) or name not in kinds:
        raise wrong("path", f"a saved score, one of {', '.join(sorted(kinds))},", f"{path} of {name!r:.40}", _ADVICE)
    kind = kinds[name]
    if differing := sorted(set(kind.__annotations__) ^ tensors.keys()):
        got = f"{path}, where {', '.join(differing)} is missing or unknown"
        raise wrong("path", f"the tensors of {kind.__name__}", got, _ADVICE)
    known = _SETTINGS.get(kind, {})
    if not isinstance(settings, dict) or not all(_is_one_of(settings.get(name), known[name]) for name in known):
        raise wrong("path", "a score with settings", f"{path} with {settings!r:.80}", _ADVICE)
    return kind(tensors, **settings)


def _is_one_of(value: Any, known: type | tuple[str, ...]) -> bool:
    return value in known if isinstance(known, tuple) else type(value) is known
