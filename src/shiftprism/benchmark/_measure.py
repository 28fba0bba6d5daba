"""What a model says about clean and shifted sets -> rows, each with its values on the resamples."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftprism import metrics
from shiftprism._checks import Floats
from shiftprism.benchmark._evidence import Evidence, Source
from shiftprism.benchmark._resampling import (
    BINS,
    Ranked,
    Weights,
    calibration_columns,
    calibration_values,
    draws,
    draws_for,
    medians,
)
from shiftprism.benchmark._results import RESAMPLES, Results
from shiftprism.benchmark._rows import Row, commit, versions
from shiftprism.calibrators import Calibrator
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.scores import KNN, SCORES, Prism, Score
from shiftprism.shifts import Shift

READY = tuple(name for name, entry in SCORES.items() if entry.ready)
"""The scores that need no fit."""
GEOMETRIC = ("g", "h", "u")
CLEAN = ("clean", "none", 0)
CORRUPTED = ("corrupted", "covariate", 0)
Where = tuple[str, str, int]
"""Shift, kind and severity, as in a Row."""
_METRICS = {"accuracy": metrics.accuracy, "ece": metrics.ece, "nll": metrics.nll, "brier": metrics.brier}


class Ledger:
    """Rows of one source, as they come."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows: list[Row] = []
        self.resamples: list[NDArray[np.float32]] = []

    def add(self, where: Where, subject: str, metric: str, value: float, n: int, drawn: Floats | None = None) -> None:
        """One row; without values on resamples it has no error, and every resample has its value."""
        error = 0.0 if drawn is None else float(f"{drawn.std(ddof=1):.3g}")  # 200 resamples know no more
        model, data, backbone, head, seed, protocol, weights = self.source
        about = (model, data, backbone, head, seed, protocol)
        row = Row(*about, *where, subject, metric, value, error, n, weights, versions(), commit())
        self.rows.append(row)
        self.resamples.append(np.full(RESAMPLES, value, np.float32) if drawn is None else drawn.astype(np.float32))

    def results(self) -> Results:
        """All of them."""
        return Results(self.rows, np.stack(self.resamples))


class _Pool:
    """The sets of a ladder together: losses and rejections of disjoint sets add up."""

    def __init__(self) -> None:
        self.n = 0
        self.losses = self.rejected = 0
        self.drawn_losses, self.drawn_rejected = np.zeros(RESAMPLES), np.zeros(RESAMPLES)

    def add(self, ranked: Ranked, outside: Floats, weights: Weights) -> None:
        losses, drawn_losses = ranked.losses(outside, weights)
        rejected, drawn_rejected = ranked.rejected(outside, weights)
        self.join(losses, drawn_losses, rejected, drawn_rejected, len(outside))

    def join(self, losses: int, drawn_losses: Floats, rejected: int, drawn_rejected: Floats, n: int) -> None:
        self.losses, self.drawn_losses = self.losses + losses, self.drawn_losses + drawn_losses
        self.rejected, self.drawn_rejected = self.rejected + rejected, self.drawn_rejected + drawn_rejected
        self.n += n


class _Mean(NamedTuple):
    """A value of each condition, to be averaged."""

    values: list[float]
    drawn: list[Floats]
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
        clean: Outputs,
        labels: Tensor,
        scores: Mapping[str, Score],
        calibrators: Mapping[str, Calibrator],
        head: Head | None = None,
        clean_logits: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.ledger = Ledger(source)
        self.scores, self.calibrators, self.head = scores, calibrators, head
        own = draws("clean", 0, clean.N)
        prism, knn = scores.get("prism"), scores.get("knn")
        self.shared = isinstance(prism, Prism) and isinstance(knn, KNN) and prism.searched_alike(knn)
        self.ranked = {name: Ranked(values, own) for name, values in self._scored(clean)}
        self.pools: dict[Where, dict[str, _Pool]] = defaultdict(lambda: defaultdict(_Pool))
        self.means: dict[tuple[str, str], _Mean] = defaultdict(lambda: _Mean([], [], []))
        for key, value, drawn in self._calibration(clean, labels, own, clean_logits):
            self.ledger.add(CLEAN, *key, value, clean.N, drawn)
        self._scales(CLEAN, clean, own)

    def add(self, shift: Shift, outputs: Outputs, labels: Tensor) -> None:
        """One shifted set; the sets of a ladder have severities from 1."""
        where = (shift.name, shift.kind, shift.severity)
        weights = draws_for(shift.name, shift.kind, shift.severity, outputs.N)
        pools = [(shift.name, shift.kind, 0)] + [CORRUPTED] * (shift.kind == "covariate")
        for name, values in self._scored(outputs):
            found = _Pool()
            found.add(self.ranked[name], values, weights)
            if shift.severity:
                self._detected(where, name, found)
            for pool in pools:
                self.pools[pool][name].join(
                    found.losses, found.drawn_losses, found.rejected, found.drawn_rejected, found.n
                )
        if shift.kind == "covariate":
            for key, value, drawn in self._calibration(outputs, labels, weights):
                if not key[1].endswith("_changed"):
                    self.ledger.add(where, *key, value, outputs.N, drawn)
                mean = self.means[key]
                mean.values.append(value)
                mean.drawn.append(drawn)
                mean.sizes.append(outputs.N)
        self._scales(where, outputs, weights)

    def results(self) -> Results:
        """All rows, those of pooled sets last."""
        for where, pools in self.pools.items():
            for name, pool in pools.items():
                self._detected(where, name, pool)
        for key, (values, drawn, sizes) in self.means.items():
            self.ledger.add(CORRUPTED, *key, float(np.mean(values)), sum(sizes), np.mean(drawn, axis=0))
        return self.ledger.results()

    def _scored(self, outputs: Outputs) -> Iterator[tuple[str, Floats]]:
        """Every score; prism takes its distances from knn where both would search the same bank."""
        near = None
        for name, score in self.scores.items():
            if self.shared and near is not None and name == "prism" and isinstance(score, Prism):
                values = score.joined(outputs, near)
            else:
                values = score(outputs)
            near = values if name == "knn" else near
            yield name, _array(values)

    def _detected(self, where: Where, score: str, found: _Pool) -> None:
        pairs = 2 * self.ranked[score].n * found.n
        self.ledger.add(where, score, "auroc", (pairs - found.losses) / pairs, found.n, 1 - found.drawn_losses / pairs)
        if where[2] == 0:
            value, drawn = found.rejected / found.n, found.drawn_rejected / found.n
            self.ledger.add(where, score, "tnr_at_tpr95", value, found.n, drawn)

    def _calibration(
        self, outputs: Outputs, labels: Tensor, weights: Weights, given: Mapping[str, Tensor] | None = None
    ) -> list[tuple[tuple[str, str], float, Floats]]:
        """((subject, metric), value, values on resamples) of the uncalibrated model and each calibrator."""
        with torch.no_grad():
            logits = {name: fitted(outputs) for name, fitted in self.calibrators.items()} | dict(given or {})
        truth = labels.numpy()
        found, columns, keys = [], [], []
        for subject, values in {"none": outputs.logits, **logits}.items():
            probabilities = torch.softmax(values.double(), 1).numpy()
            keys.append((subject, {name: measure(probabilities, truth) for name, measure in _METRICS.items()}))
            columns.append(calibration_columns(probabilities, truth))
        means = weights.T @ np.concatenate(columns, 1) / len(truth)
        for number, (subject, exact) in enumerate(keys):
            drawn = calibration_values(means[:, number * (3 + BINS) : (number + 1) * (3 + BINS)])
            found += [((subject, name), value, drawn[name]) for name, value in exact.items()]
        for subject, values in logits.items():
            for name, changed in _changes(outputs, values).items():
                shares = np.asarray(changed.astype(np.float32) @ weights / len(truth), np.float64)
                found.append(((subject, name), float(changed.mean()), shares))
        return found

    def _scales(self, where: Where, outputs: Outputs, weights: Weights) -> None:
        if not outputs.has_features:
            return
        with torch.no_grad():
            own = self.head.scales(outputs.features) if self.head is not None else {}
        named = {"norm": outputs.norms} | {name: own[name] for name in ("alpha", "beta") if name in own}
        for name, values in named.items():
            array = _array(values)
            self.ledger.add(where, name, "median", float(np.median(array)), outputs.N, medians(array, weights))


def measure(evidence: Evidence, scores: Sequence[str] = READY) -> Results:
    """The rows of evidence that is in memory, with scores that need no fit."""
    source, clean, labels, calibrators, shifted = evidence
    found = Measurement(source, clean, labels, {name: SCORES[name] for name in scores}, calibrators)
    for one in shifted:
        found.add(*one)
    return found.results()


def _changes(outputs: Outputs, calibrated: Tensor) -> dict[str, NDArray[np.bool_]]:
    """For each image: is the predicted class no longer the (or a) largest, does a bit of g, h or u differ."""
    before = calibrated.gather(1, outputs.predictions[:, None]).squeeze(1)
    changed = {"predictions_changed": (before < calibrated.amax(1)).numpy()}
    if outputs.has_features:
        after = outputs._replace(logits=calibrated)
        differ = [(SCORES[name](outputs) != SCORES[name](after)).numpy() for name in GEOMETRIC]
        changed["scores_changed"] = np.logical_or.reduce(differ)
    return changed


def _array(values: Tensor) -> Floats:
    return values.detach().cpu().double().numpy()
