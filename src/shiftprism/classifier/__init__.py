"""Classifier = preprocessing + backbone + head; `adapt` any trained model; `predict` a whole data set in one pass."""

from shiftprism.classifier._adapt import adapt
from shiftprism.classifier._classifier import Classifier
from shiftprism.classifier._predict import check_images, evaluation_mode, predict
from shiftprism.classifier._preprocessing import Preprocessing

__all__ = ["Classifier", "Preprocessing", "adapt", "check_images", "evaluation_mode", "predict"]
