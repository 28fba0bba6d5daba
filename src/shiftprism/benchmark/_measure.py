"""The Outputs of a model on clean and shifted sets -> rows, each with its values on the resamples."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftprism import metrics
from shiftprism._checks import Floats, wrong
from shiftprism.benchmark._resampling import (
    RankedScores,
    Weights,
    calibration_columns,
    calibration_values,
    condition_weights,
    medians,
    set_weights,
)
from shiftprism.calibrators import Calibrator
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.recommend import Labelled
from shiftprism.rows import RESAMPLES, Condition, Results, Row, Source, make_row
from shiftprism.scores import KNN, SCORES, Prism, Score

GEOMETRIC = ("g", "h", "u")
CLEAN = Condition("clean", "none", 0)
CORRUPTED = Condition("corrupted", "covariate", 0)
_METRICS = {"accuracy": metrics.accuracy, "ece": metrics.ece, "nll": metrics.nll, "brier": metrics.brier}


@dataclass
class RowList:
    """The rows of one model, in the order they are measured."""

    source: Source
    rows: list[Row] = field(default_factory=list)
    resamples: list[NDArray[np.float32]] = field(default_factory=list)

    def add(
        self, condition: Condition, name: tuple[str, str], value: float, n: int, resampled: Floats | None = None
    ) -> None:
        """One row; `name` is subject and metric. Without resampled values every resample has the value itself."""
        error = 0.0 if resampled is None else float(f"{resampled.std(ddof=1):.3g}")  # 200 resamples know no more
        subject, metric = name
        row = make_row(self.source, condition, subject=subject, metric=metric, value=value, error=error, n=n)
        self.rows.append(row)
        values = np.full(RESAMPLES, value) if resampled is None else resampled
        self.resamples.append(values.astype(np.float32))

    def results(self) -> Results:
        """All rows so far."""
        return Results(self.rows, np.stack(self.resamples))


@dataclass
class _Detection:
    """What one score lets through of one set, or of several: counts of disjoint sets add up."""

    n: int = 0
    losses: int = 0
    rejections: int = 0
    resampled_losses: Floats = field(default_factory=lambda: np.zeros(RESAMPLES))
    resampled_rejections: Floats = field(default_factory=lambda: np.zeros(RESAMPLES))

    @staticmethod
    def of(ranked: RankedScores, outside: Floats, weights: Weights) -> "_Detection":
        losses, resampled_losses = ranked.losses(outside, weights)
        rejections, resampled_rejections = ranked.rejections(outside, weights)
        return _Detection(len(outside), losses, rejections, resampled_losses, resampled_rejections)

    def add(self, other: "_Detection") -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Values(NamedTuple):
    """A value of each condition, to be averaged."""

    values: list[float]
    resampled: list[Floats]
    sizes: list[int]


class Measurement:
    """The rows of one model: `add` each shifted set, then ask for the `results`.

    Detection by every score, of every set, of every ladder pooled, and of all corruptions pooled ("corrupted");
    calibration of the clean set and of corrupted ones, whose mean over conditions is "corrupted" too; medians of α, β
    and |f|. `clean_logits` are the calibrated logits of the clean set where they are not the calibrators' own: the
    paper's cross validation.
    """

    def __init__(
        self,
        source: Source,
        clean: Labelled,
        scores: Mapping[str, Score],
        calibrators: Mapping[str, Calibrator],
        head: Head | None = None,
        clean_logits: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.rows = RowList(source)
        self.scores, self.calibrators, self.head = scores, calibrators, head
        weights = set_weights("clean", 0, clean.outputs.N)
        prism, knn = scores.get("prism"), scores.get("knn")
        self.share_search = isinstance(prism, Prism) and isinstance(knn, KNN) and prism.shares_bank(knn)
        self.ranked = {name: RankedScores(values, weights) for name, values in self._score(clean.outputs)}
        self.pools: dict[Condition, dict[str, _Detection]] = defaultdict(lambda: defaultdict(_Detection))
        self.means: dict[tuple[str, str], _Values] = defaultdict(lambda: _Values([], [], []))
        for name, value, resampled in self._calibration(clean, weights, clean_logits):
            self.rows.add(CLEAN, name, value, clean.outputs.N, resampled)
        self._add_scales(CLEAN, clean.outputs, weights)

    def add(self, condition: Condition, data: Labelled) -> None:
        """Measure one shifted set; the sets of a ladder have severities from 1."""
        weights = condition_weights(condition, data.outputs.N)
        pooled = [condition._replace(severity=0)] + [CORRUPTED] * (condition.kind == "covariate")
        for name, values in self._score(data.outputs):
            detection = _Detection.of(self.ranked[name], values, weights)
            if condition.severity:
                self._add_detection(condition, name, detection)
            for pool in pooled:
                self.pools[pool][name].add(detection)
        if condition.kind == "covariate":
            self._add_corrupted_calibration(condition, data, weights)
        self._add_scales(condition, data.outputs, weights)

    def results(self) -> Results:
        """All rows, those of pooled sets last."""
        for condition, pool in self.pools.items():
            for name, detection in pool.items():
                self._add_detection(condition, name, detection)
        for subject, (values, resampled, sizes) in self.means.items():
            self.rows.add(CORRUPTED, subject, float(np.mean(values)), sum(sizes), np.mean(resampled, axis=0))
        return self.rows.results()

    def _score(self, outputs: Outputs) -> Iterator[tuple[str, Floats]]:
        """Every score; prism takes its distances from knn where both would search the same bank."""
        distances = None
        for name, score in self.scores.items():
            if self.share_search and distances is not None and isinstance(score, Prism):
                values = score.combine(outputs, distances)
            else:
                values = score(outputs)
            distances = values if name == "knn" else distances
            # a user's own score may return anything
            if not isinstance(values, Tensor) or values.shape != (outputs.N,) or not values.isfinite().all():
                got = f"{tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
                expected = f"a score that returns {outputs.N} finite numbers for {outputs.N} images"
                raise wrong(name, expected, f"{got}, or NaN in it", "mend the score")
            yield name, _to_array(values)

    def _add_detection(self, condition: Condition, score: str, detection: _Detection) -> None:
        n, pairs = detection.n, 2 * self.ranked[score].n * detection.n
        auroc, resampled = (pairs - detection.losses) / pairs, 1 - detection.resampled_losses / pairs
        self.rows.add(condition, (score, "auroc"), auroc, n, resampled)
        if condition.severity == 0:
            tnr, resampled = detection.rejections / n, detection.resampled_rejections / n
            self.rows.add(condition, (score, "tnr_at_tpr95"), tnr, n, resampled)

    def _add_corrupted_calibration(self, condition: Condition, data: Labelled, weights: Weights) -> None:
        for name, value, resampled in self._calibration(data, weights):
            if not name[1].endswith("_changed"):  # of changes the mean over conditions is enough
                self.rows.add(condition, name, value, data.outputs.N, resampled)
            mean = self.means[name]
            mean.values.append(value)
            mean.resampled.append(resampled)
            mean.sizes.append(data.outputs.N)

    def _calibration(
        self, data: Labelled, weights: Weights, clean_logits: Mapping[str, Tensor] | None = None
    ) -> list[tuple[tuple[str, str], float, Floats]]:
        """((subject, metric), value, values on resamples) of the uncalibrated model and each calibrator."""
        outputs, labels = data.outputs, data.labels.numpy()
        columns: list[NDArray[np.float32]] = []
        values: dict[str, dict[str, float]] = {}
        changes = []
        # one calibrator at a time: the probabilities of all would be many times the Outputs
        for subject in ("none", *self.calibrators):
            logits = outputs.logits if subject == "none" else self._calibrate(subject, outputs, clean_logits)
            probabilities = torch.softmax(logits.double(), 1).numpy()
            columns.append(calibration_columns(probabilities, labels))
            values[subject] = {name: metric(probabilities, labels) for name, metric in _METRICS.items()}
            for name, changed in _find_changes(outputs, logits).items() if subject != "none" else ():
                shares = np.asarray(changed.astype(np.float32) @ weights / len(labels), np.float64)
                changes.append(((subject, name), float(changed.mean()), shares))
        # one product for all calibrators: a matrix as wide as all their columns together
        means = np.split(weights.T @ np.concatenate(columns, 1) / len(labels), len(columns), axis=1)
        measured = []
        for (subject, own), mean in zip(values.items(), means, strict=True):
            resampled = calibration_values(mean)
            measured += [((subject, name), value, resampled[name]) for name, value in own.items()]
        return measured + changes

    def _calibrate(self, name: str, outputs: Outputs, clean_logits: Mapping[str, Tensor] | None) -> Tensor:
        if clean_logits is not None and name in clean_logits:
            return clean_logits[name]
        with torch.no_grad():
            logits: Tensor = self.calibrators[name](outputs)
        return logits

    def _add_scales(self, condition: Condition, outputs: Outputs, weights: Weights) -> None:
        """Medians of |f|, and of α and β where the head has them."""
        if not outputs.has_features:
            return
        with torch.no_grad():
            scales = self.head.scales(outputs.features) if self.head is not None else {}
        named = {"norm": outputs.norms} | {name: scales[name] for name in ("alpha", "beta") if name in scales}
        for name, values in named.items():
            array = _to_array(values)
            resampled = medians(array, weights)
            self.rows.add(condition, (name, "median"), float(np.median(array)), outputs.N, resampled)


def _find_changes(outputs: Outputs, calibrated: Tensor) -> dict[str, NDArray[np.bool_]]:
    """For each image: whether its predicted class lost the largest logit, and whether a bit of g, h or u differs."""
    before = calibrated.gather(1, outputs.predictions[:, None]).squeeze(1)
    changed = {"predictions_changed": (before < calibrated.amax(1)).numpy()}
    if outputs.has_features:
        after = outputs._replace(logits=calibrated)
        differ = [(SCORES[name](outputs) != SCORES[name](after)).numpy() for name in GEOMETRIC]
        changed["scores_changed"] = np.logical_or.reduce(differ)
    return changed


def _to_array(values: Tensor) -> Floats:
    return values.detach().cpu().double().numpy()
