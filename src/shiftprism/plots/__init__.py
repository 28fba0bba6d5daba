"""Rows and Outputs in, figures out. `svg` makes one that reads on paper, on a light page and on a dark one."""

from shiftprism.plots._curves import VARIANTS, describe_bands, scale_curves, severity_curves, severity_overview
from shiftprism.plots._distributions import groups, reliability_diagrams, roc_curves, score_histograms, shift_plane
from shiftprism.plots._epochs import epoch_curves, list_epochs
from shiftprism.plots._outputs import ModelOutputs, read_model_outputs
from shiftprism.plots._ranking import interval_dots
from shiftprism.plots._space import feature_space, pixel_counts, pixel_histograms
from shiftprism.plots._style import COLOURS, MARKERS, alone, inline, svg, symbol

__all__ = [
    "COLOURS",
    "MARKERS",
    "VARIANTS",
    "ModelOutputs",
    "alone",
    "describe_bands",
    "epoch_curves",
    "feature_space",
    "groups",
    "inline",
    "interval_dots",
    "list_epochs",
    "pixel_counts",
    "pixel_histograms",
    "read_model_outputs",
    "reliability_diagrams",
    "roc_curves",
    "scale_curves",
    "score_histograms",
    "severity_curves",
    "severity_overview",
    "shift_plane",
    "svg",
    "symbol",
]
