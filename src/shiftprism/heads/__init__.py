"""Features in, logits out: drop-ins for `nn.Linear`, so that `model.fc = Geometric(512, 10)` trains in anyone's loop.

Symbols, as in the paper: f feature, W class weights, s_k = w_k·f / |f| the similarity, α in (0, 1), β > 0.
"""

from collections.abc import Callable
from functools import partial

from shiftprism.heads._head import SMALLEST_ALPHA, SMALLEST_NORM, Head, Weighted, multiplier, norm
from shiftprism.heads.duq import DUQ
from shiftprism.heads.geometric import GSD, Geometric, Linear
from shiftprism.heads.odin import Cosine, Euclidean, HyperFree, Inner
from shiftprism.heads.sngp import SNGP

__all__ = [
    "DUQ",
    "GSD",
    "HEADS",
    "SMALLEST_ALPHA",
    "SMALLEST_NORM",
    "SNGP",
    "Cosine",
    "Euclidean",
    "Geometric",
    "Head",
    "HyperFree",
    "Inner",
    "Linear",
    "Weighted",
    "multiplier",
    "norm",
]

HEADS: dict[str, Callable[[int, int], Head]] = {
    "vanilla": Linear,
    "alpha": partial(Geometric, beta=False),
    "beta": partial(Geometric, alpha=False),
    "alpha-beta": Geometric,
    "gsd": partial(GSD, alpha=False),
    "inner": Inner,
    "cosine": Cosine,
    "euclidean": Euclidean,
    "hyper-free": HyperFree,
    "sngp": SNGP,
    "duq": DUQ,
}
