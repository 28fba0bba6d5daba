"""Outputs in, one number an input out: (N,), and *higher means more in-distribution*, for every score."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from shiftprism._checks import choice, wrong
from shiftprism.scores._entry import Entry, Score
from shiftprism.scores._fitted import FORMAT, Fitted
from shiftprism.scores._moments import ClassMoments, Moments, Sums
from shiftprism.scores._table import SCORES
from shiftprism.scores.boundaries import FDBD, max_cosine
from shiftprism.scores.gaussian import Mahalanobis, RelativeMahalanobis
from shiftprism.scores.geometric import g, h, kl_uniform, max_similarity, u
from shiftprism.scores.logits import energy, entropy, gen, kernel, max_logit, msp
from shiftprism.scores.mixture import GaussianMixture
from shiftprism.scores.neighbours import KNN, NNGuide
from shiftprism.scores.ranks import Fisher, GTwoSided, Prism, p_value
from shiftprism.scores.subspace import Residual, ViM
from shiftprism.scores.templates import SHE, KLMatching

__all__ = [
    "FDBD",
    "KNN",
    "SCORES",
    "SHE",
    "ClassMoments",
    "Entry",
    "Fisher",
    "Fitted",
    "GTwoSided",
    "GaussianMixture",
    "KLMatching",
    "Mahalanobis",
    "Moments",
    "NNGuide",
    "Prism",
    "RelativeMahalanobis",
    "Residual",
    "Score",
    "Sums",
    "ViM",
    "energy",
    "entropy",
    "g",
    "gen",
    "h",
    "kernel",
    "kl_uniform",
    "load",
    "max_cosine",
    "max_logit",
    "max_similarity",
    "msp",
    "p_value",
    "u",
]


def load(path: str | Path) -> Fitted:
    """The fitted score that `save` wrote to a file."""
    kinds: dict[str, type[Fitted]] = {
        entry.made.__name__: entry.made for entry in SCORES.values() if isinstance(entry.made, type)
    }
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise wrong("path", "a whole safetensors file", f"{path} ({error})", "save the score again") from error
    if about.get("format") != FORMAT:
        raise wrong("path", f"a file of format {FORMAT}", str(path), "write it with the score's own `save`")
    kind = kinds[choice("score", about["score"], kinds)]
    missing = set(kind.__annotations__) ^ tensors.keys()
    if missing:
        raise wrong("path", f"the tensors of {kind.__name__}", f"{path} with other {sorted(missing)}", "save it again")
    return kind(tensors, **json.loads(about["settings"]))
