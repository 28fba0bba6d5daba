"""Outputs in, one number for each input out, (N,): *higher means more in-distribution*, for every score."""

from shiftprism.scores._approximate import ApproximateKNN
from shiftprism.scores._attribution import KINDS, attribute, which_way
from shiftprism.scores._boundaries import FDBD, max_cosine
from shiftprism.scores._entry import Entry, Score
from shiftprism.scores._fitted import Fitted, score_rows
from shiftprism.scores._gaussian import Mahalanobis, RelativeMahalanobis
from shiftprism.scores._geometric import g, h, kl_uniform, max_similarity, u
from shiftprism.scores._load import load
from shiftprism.scores._logits import energy, entropy, gen, kernel, max_logit, msp
from shiftprism.scores._mixture import GaussianMixture
from shiftprism.scores._moments import ClassMoments, Moments, Sums
from shiftprism.scores._neighbours import KNN, NNGuide
from shiftprism.scores._own import find_score
from shiftprism.scores._ranks import Fisher, GTwoSided, Prism, p_value
from shiftprism.scores._spectrum import Spectrum
from shiftprism.scores._style import MAKE_SHIFTED, Contrast, Shifted, Style
from shiftprism.scores._subspace import Residual, ViM
from shiftprism.scores._table import SCORES, describe_scores
from shiftprism.scores._templates import SHE, KLMatching

__all__ = [
    "FDBD",
    "KINDS",
    "KNN",
    "MAKE_SHIFTED",
    "SCORES",
    "SHE",
    "ApproximateKNN",
    "ClassMoments",
    "Contrast",
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
    "Shifted",
    "Spectrum",
    "Style",
    "Sums",
    "ViM",
    "attribute",
    "describe_scores",
    "energy",
    "entropy",
    "find_score",
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
    "score_rows",
    "u",
    "which_way",
]
