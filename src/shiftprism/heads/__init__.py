"""Features in, logits out: drop-ins for `nn.Linear`, so that `model.fc = Geometric(512, 10)` trains in anyone's loop.

Symbols, as in the paper: f feature, W class weights, s_k = w_k·f / |f| the similarity, α in (0, 1), β > 0.
"""

from shiftprism.heads._duq import DUQ
from shiftprism.heads._geometric import GSD, Geometric, Linear
from shiftprism.heads._head import (
    SMALLEST_ALPHA,
    SMALLEST_NORM,
    Head,
    Weighted,
    in_float32,
    multiplier,
    norm,
    settings_of,
)
from shiftprism.heads._normalised import LogitNorm, T2FNorm
from shiftprism.heads._odin import Cosine, Euclidean, HyperFree, Inner
from shiftprism.heads._sngp import SNGP
from shiftprism.heads._table import HEADS, Entry, describe_heads
from shiftprism.heads._weights import check_linear, class_weights

__all__ = [
    "DUQ",
    "GSD",
    "HEADS",
    "SMALLEST_ALPHA",
    "SMALLEST_NORM",
    "SNGP",
    "Cosine",
    "Entry",
    "Euclidean",
    "Geometric",
    "Head",
    "HyperFree",
    "Inner",
    "Linear",
    "LogitNorm",
    "T2FNorm",
    "Weighted",
    "check_linear",
    "class_weights",
    "describe_heads",
    "in_float32",
    "multiplier",
    "norm",
    "settings_of",
]
