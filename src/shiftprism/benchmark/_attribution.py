"""Rows of attribution: what single images are called at 5 % false alarms, and how well the two kinds are told apart."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats
from shiftprism.benchmark._measure import CLEAN, CORRUPTED, RowList
from shiftprism.benchmark._resampling import RankedScores, Weights, condition_weights, set_weights
from shiftprism.outputs import Outputs
from shiftprism.rows import Condition
from shiftprism.scores import KINDS, Score, Spectrum, Style, attribute, g, gen, h, p_value, which_way

ATTRIBUTION = "attribution"
PAIRS: dict[str, tuple[str, Score]] = {"style, gen": ("style", gen), "g, h": ("g", h)}
"""The pairs of a covariate and a concept score whose difference of ln p tells the kind: the subjects of `which_way`."""
SUBJECTS = (ATTRIBUTION, *PAIRS)


class Attribution:
    """Rows of one model: `add` the clean set and each shifted one, then `finish`.

    Subject "attribution": the shares of images that are `flagged`, and that are called `covariate` and `concept`, by
    `scores.attribute` on p-values of `spectrum` and `style` among the `ranked` held-out data. Subjects "style, gen" and
    "g, h": `which_way`, the AUROC of a set's ln p_covariate − ln p_concept against the first set of unseen classes.
    "corrupted" has the mean over corruptions and severities.
    """

    def __init__(self, rows: RowList, style: Style, spectrum: Spectrum, ranked: Outputs) -> None:
        self.rows, self.spectrum = rows, spectrum
        self.covariate: dict[str, Score] = {"style": style, "g": g}
        with torch.no_grad():
            scores: dict[str, Score] = {
                "spectrum": spectrum,
                **self.covariate,
                **{name: own for name, (_, own) in PAIRS.items()},
            }
            self.references = {name: score(ranked).sort().values for name, score in scores.items()}
        self.unseen: dict[str, RankedScores] = {}
        self.means: dict[tuple[str, str], list[tuple[float, Floats, int]]] = defaultdict(list)

    def add(self, condition: Condition, outputs: Outputs) -> None:
        """Measure one set; unseen classes must come before the corruptions."""
        clean = condition.shift == CLEAN.shift
        weights = set_weights(CLEAN.shift, 0, outputs.N) if clean else condition_weights(condition, outputs.N)
        with torch.no_grad():
            p_style = self._p_value("style", self.covariate["style"], outputs)
            kinds = attribute(self._p_value("spectrum", self.spectrum, outputs), p_style)
            ways = self._ways(outputs, p_style)
        calls = {"flagged": kinds > 0, KINDS[1]: kinds == 1, KINDS[2]: kinds == 2}
        for metric, called in calls.items():
            values = called.numpy().astype(np.float32)
            shares = np.asarray(values @ weights / outputs.N, np.float64)
            self._add(condition, (ATTRIBUTION, metric), float(called.double().mean()), outputs.N, shares)
        for subject, way in ways.items():
            self._compare(condition, subject, way, weights)

    def finish(self) -> None:
        """Add the means over all corrupted conditions."""
        for name, parts in self.means.items():
            values, resampled, sizes = zip(*parts, strict=True)
            self.rows.add(CORRUPTED, name, float(np.mean(values)), sum(sizes), np.mean(resampled, axis=0))

    def _p_value(self, name: str, score: Score, outputs: Outputs) -> Tensor:
        return p_value(self.references[name], score(outputs))

    def _ways(self, outputs: Outputs, p_style: Tensor) -> dict[str, Floats]:
        p_covariate = {"style": p_style, "g": self._p_value("g", g, outputs)}
        return {
            name: which_way(p_covariate[own], self._p_value(name, concept, outputs)).double().numpy()
            for name, (own, concept) in PAIRS.items()
        }

    def _compare(self, condition: Condition, subject: str, way: Floats, weights: Weights) -> None:
        """The AUROC of unseen classes against a corrupted set; the first set of unseen classes is kept."""
        if condition.kind == "concept" and subject not in self.unseen:
            self.unseen[subject] = RankedScores(way, weights)
        if condition.kind == "covariate" and subject in self.unseen:
            unseen = self.unseen[subject]
            losses, resampled = unseen.losses(way, weights)
            pairs = 2 * unseen.n * len(way)
            self._add(condition, (subject, "which_way"), 1 - losses / pairs, len(way), 1 - resampled / pairs)

    def _add(self, condition: Condition, name: tuple[str, str], value: float, n: int, resampled: Floats) -> None:
        self.rows.add(condition, name, value, n, resampled)
        if condition.kind == "covariate":
            self.means[name].append((value, resampled, n))
