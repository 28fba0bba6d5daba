"""Calibration error without bins."""

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats
from shiftprism.metrics._probabilities import top_label

_CELLS = 4096
"""Steps of the grid on [0, 1]. Widths of practical interest are above .005, twenty steps."""
_HALVINGS = 30
"""Steps of the bisection for σ: 2⁻³⁰ is far below the grid."""


def smooth_ece(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Smooth calibration error: ∫ |mean_i K_σ(t, c_i) (y_i − c_i)| dt over [0, 1], at the σ that equals this integral.

    c_i is the confidence, y_i whether the prediction is right, K_σ the Gaussian reflected at 0 and 1. The integral does
    not grow with σ, so exactly one σ equals it and nothing is left to choose. Unlike `ece`, it moves continuously with
    the confidences. `probabilities` (N, K), `labels` (N,). Computed on a grid of 1/4096.

    Reference: Błasiok & Nakkiran 2023, "Smooth ECE: principled reliability diagrams via kernel smoothing".

    >>> round(smooth_ece([[.75, .25]] * 4, [0, 1, 1, 1]), 6)  # one confidence: |1/4 − 3/4| for any σ
    0.5
    """
    confidence, correct = top_label(probabilities, labels)
    # Smoothing multiplies the spectrum by that of the Gaussian; a grid of length 2 has the frequencies π k.
    spectrum = np.fft.rfft(_mirror(confidence, correct - confidence))
    waves = np.pi * np.arange(len(spectrum))

    def error_at(width: float) -> float:
        return float(np.abs(np.fft.irfft(spectrum * np.exp(-0.5 * (waves * width) ** 2))).mean())

    # The error falls as σ grows, so bisection finds the σ that equals its own error.
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        width = (low + high) / 2
        low, high = (width, high) if error_at(width) > width else (low, width)
    return error_at(high)


def _mirror(positions: Floats, weights: Floats) -> Floats:
    """The density of the mean weight on a grid of [0, 1] and its mirror image.

    On this circle of length 2 a plain Gaussian is the reflected one of [0, 1], and smoothing is one product of spectra.
    A weight between two grid points is split between them.
    """
    place = np.clip(positions, 0, 1) * _CELLS
    left = np.minimum(place.astype(np.int64), _CELLS - 1)
    share = place - left
    line = np.bincount(left, weights * (1 - share), _CELLS + 1) + np.bincount(left + 1, weights * share, _CELLS + 1)
    line[[0, -1]] *= 2  # an end point is its own mirror image
    return np.concatenate([line, line[-2:0:-1]]) * (_CELLS / len(weights))
