"""Detector: a decision for one image, with a known false-alarm rate: style, a concept score, a calibrator and ranks."""

from shiftprism._levels import count_allowed, count_needed
from shiftprism.detector._bundled import BUNDLED, find_bundled
from shiftprism.detector._cluster import FittedFiles, fit_on_cluster
from shiftprism.detector._decision import Decision, Parts
from shiftprism.detector._detector import Detector
from shiftprism.detector._fit import Copies, check_count, divide
from shiftprism.detector._images import prepare_for
from shiftprism.detector._scoring import FileVerdict, score_files

__all__ = [
    "BUNDLED",
    "Copies",
    "Decision",
    "Detector",
    "FileVerdict",
    "FittedFiles",
    "Parts",
    "check_count",
    "count_allowed",
    "count_needed",
    "divide",
    "find_bundled",
    "fit_on_cluster",
    "prepare_for",
    "score_files",
]
