"""Detector: images or Outputs in, Verdicts out, with a false-alarm rate that holds for finite samples."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from shiftprism._checks import classes, wrong
from shiftprism._files import fingerprint
from shiftprism._levels import find_cuts
from shiftprism.calibrators import Calibrator
from shiftprism.classifier import Classifier, predict
from shiftprism.detector._decision import Decision, Held, Parts
from shiftprism.detector._fit import (
    CANDIDATES,
    COPIES,
    Copies,
    Counter,
    Division,
    Images,
    Progress,
    check_raw,
    divide,
    fit_decision,
    predict_copies,
    predict_raw,
    take,
)
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.recommend import Labelled, Recommendation
from shiftprism.verdicts import KINDS, Reference, Verdicts

_EDGES = 127
"""Edges of the monitor's bins, fewer where there are more than a hundred classes: the state stays small."""
_POINTS = 500
_ROWS = 1 << 16
"""Rows that are decided on at a time: 134 MB of 512 features."""


class Detector:
    """Decides for single images whether they are in-distribution, shifted in style, or of an unknown concept.

    `fit` needs held-out images: the classifier was not trained on them. On images that are exchangeable with them, an
    alarm has at most the chance `false_alarm`, whatever the classifier and the scores.

    >>> from shiftprism.datasets import load
    >>> data = load("digits", "train")
    >>> classifier = Classifier.build("digits", "vanilla", data.names, 1)
    >>> detector = Detector.fit(classifier, data.images[:400], data.labels[:400], concept="energy", copies=16)
    >>> detector
    Detector(10 classes, concept=energy, 160 held-out images, false_alarm=0.05)
    >>> len(detector(data.images[400:405]))
    5
    """

    def __init__(
        self,
        classifier: Classifier | None,
        decision: Decision,
        held: Held,
        names: Sequence[str],
        *,
        concept: str,
        false_alarm: float = 0.05,
        confidence: float | None = None,
        by_class: bool = False,
        recommendation: Recommendation | None = None,
    ) -> None:
        """Put together from fitted parts; `fit` and `from_outputs` are the usual ways."""
        self.classifier, self.decision, self.held = classifier, decision, held
        self.names = tuple(names)
        self.concept = concept
        self.false_alarm, self.confidence, self.by_class = false_alarm, confidence, by_class
        self.recommendation = recommendation
        """Why the concept score was chosen; None where it was given, and in a loaded detector."""
        decision.set_ranks(
            held, by_class, _find_cut(held, decision.classes, self.names, false_alarm, confidence, by_class)
        )
        decision.eval().requires_grad_(False)

    @staticmethod
    def fit(
        classifier: Classifier,
        images: Images,
        labels: ArrayLike | None = None,
        *,
        false_alarm: float = 0.05,
        confidence: float | None = None,
        by_class: bool = False,
        training: tuple[Images, ArrayLike | None] | None = None,
        concept: str | None = None,
        candidates: Sequence[str] = CANDIDATES,
        copies: int = COPIES,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "Detector":
        """A detector for a classifier, from held-out images and, if known, their labels.

        The images are uint8 as they were read: a tensor (N, C, H, W), or a list of (C, H, W) of any sizes where the
        classifier has a resize rule. Shifted copies are made before they are resized, as a camera would.

        The images are divided at random: two fifths to fit, a fifth for ranks inside the combination, two fifths for
        the p-values. Style is fitted to shifted copies of the first part: `copies` images under each extra corruption
        and severity. The concept score is chosen among `candidates` without OOD data, unless `concept` names one.
        Without `labels` predicted classes stand in for them, and nothing is calibrated.

        `confidence=.95` promises the level for this very detector with that probability, not on average. `by_class`
        ranks an image among those of the same predicted class. `training` images, with labels or None, serve the
        concept score and style in addition; the classifier may have been trained on them. `progress` is called with
        the images forwarded so far and all.
        """
        check_raw(images)
        given = (
            None if labels is None else torch.from_numpy(classes("labels", labels, len(images), len(classifier.names)))
        )
        divided = divide(len(images), given, false_alarm, confidence, seed)
        sizes = [(len(images), len(divided.fit))]
        if training is not None:
            check_raw(training[0])
            sizes.append((len(training[0]), len(training[0])))
        counter = Counter(sizes, copies, progress)
        outputs = predict_raw(classifier, images, counter)
        known = outputs.predictions if given is None else given
        shifted = predict_copies(classifier, take(images, divided.fit), copies, seed, counter)
        trained, trained_shifted = None, None
        if training is not None:
            of_training = predict_raw(classifier, training[0], counter)
            trained = Labelled(of_training, _labels_of(training[1], of_training))
            trained_shifted = predict_copies(classifier, training[0], copies, seed + 1, counter)
        return _assemble(
            classifier,
            divided,
            Labelled(outputs, known),
            classifier.head,
            names=classifier.names,
            calibrated=given is not None,
            shifted=shifted,
            training=trained,
            training_shifted=trained_shifted,
            concept=concept,
            candidates=candidates,
            seed=seed,
            levels={"false_alarm": false_alarm, "confidence": confidence, "by_class": by_class},
        )

    @staticmethod
    def from_outputs(
        outputs: Outputs,
        labels: ArrayLike | None = None,
        *,
        shifted: "Mapping[str, Outputs | Copies] | None" = None,
        training: tuple[Outputs, ArrayLike | None] | None = None,
        head: Head | None = None,
        names: Sequence[str] = (),
        false_alarm: float = 0.05,
        confidence: float | None = None,
        by_class: bool = False,
        concept: str | None = None,
        candidates: Sequence[str] = CANDIDATES,
        seed: int = 0,
    ) -> "Detector":
        """A detector of Outputs, for those who have no images here.

        `shifted` are Outputs of shifted copies by the name of what was done; row i of each is a copy of row i of
        `outputs`, unless it is a `Copies`, which names the rows that were copied; those of the fit part are used.
        Without it there is no style: how unusual the norm is, on either side, stands in for it. A `head`
        lets scores that read class weights take part, and lets classes be hidden when the concept score is chosen.
        """
        outputs.check()
        given = None if labels is None else torch.from_numpy(classes("labels", labels, outputs.N, outputs.K))
        divided = divide(outputs.N, given, false_alarm, confidence, seed)
        known = outputs.predictions if given is None else given
        copies = (
            None
            if shifted is None
            else {name: _place_copies(one, name, outputs.N, divided.fit) for name, one in shifted.items()}
        )
        trained = None if training is None else Labelled(training[0], _labels_of(training[1], training[0]))
        if concept is None and head is None and copies is None:
            concept = "knn" if outputs.has_features else "gen"  # nothing to judge candidates on
        return _assemble(
            None,
            divided,
            Labelled(outputs, known),
            head,
            names=names or [str(number) for number in range(outputs.K)],
            calibrated=given is not None,
            shifted=copies,
            training=trained,
            training_shifted=None,
            concept=concept,
            candidates=candidates,
            seed=seed,
            levels={"false_alarm": false_alarm, "confidence": confidence, "by_class": by_class},
        )

    def __call__(self, images: "Tensor | Outputs | Any") -> Verdicts:
        """The verdicts on images as `predict` takes them, or on Outputs of the same classifier."""
        if isinstance(images, Outputs):
            outputs = images
        elif self.classifier is None:
            advice = "pass Outputs, or fit a detector to a classifier and images"
            raise wrong("images", "Outputs", "images for a detector that was made from Outputs", advice)
        else:
            outputs = predict(self.classifier, images)[0]
        return to_verdicts(self.decide(outputs), self.names, self.calibrated)

    def decide(self, outputs: Outputs) -> Parts:
        """Everything that is decided, as tensors on the CPU; Outputs of any size are taken some rows at a time."""
        starts = range(0, max(outputs.N, 1), _ROWS)
        with torch.no_grad():
            parts: list[Parts] = [self.decision(outputs.rows(slice(at, at + _ROWS)).to("cpu")) for at in starts]
        return parts[0] if len(parts) == 1 else Parts(*map(torch.cat, zip(*parts, strict=True)))

    @property
    def calibrated(self) -> bool:
        """Whether the confidence is calibrated; without labels it is the model's own."""
        return self.decision.calibrator is not None

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator, or None where there were no labels."""
        return self.decision.calibrator

    def at(
        self, false_alarm: float | None = None, confidence: float | None = None, by_class: bool | None = None
    ) -> "Detector":
        """The same detector at another level; nothing is fitted again. What is left out stays, but for `confidence`."""
        import copy

        return Detector(
            self.classifier,
            copy.deepcopy(self.decision),
            self.held,
            self.names,
            concept=self.concept,
            false_alarm=self.false_alarm if false_alarm is None else false_alarm,
            confidence=confidence,
            by_class=self.by_class if by_class is None else by_class,
            recommendation=self.recommendation,
        )

    def attach(self, classifier: Classifier) -> "Detector":
        """The same detector with the classifier whose Outputs it was fitted to: it then takes images, too."""
        if tuple(classifier.names) != self.names:
            got = f"one of {len(classifier.names)} others"
            raise wrong("classifier", f"of the {len(self.names)} classes of the detector", got, "attach its own")
        found = self.at(confidence=self.confidence)
        found.classifier = classifier
        return found

    def fingerprint(self) -> str:
        """A SHA-256 of the classifier, the fitted parts and the held-out scores; the level is no part of it."""
        model = "" if self.classifier is None else self.classifier.fingerprint()
        parts: dict[str, nn.Module] = {"covariate": self.decision.covariate, "concept": self.decision.concept}
        parts |= {} if self.calibrator is None else {"calibrator": self.calibrator}
        hashes = [f"{name} {type(part).__name__} {fingerprint(part.state_dict())}" for name, part in parts.items()]
        inside = {"style": self.decision.inside_style.values, "concept": self.decision.inside_concept.values}
        hashes += [self.concept, fingerprint(inside), fingerprint(self.held._asdict()), *self.names]
        return hashlib.sha256("\n".join([model, *hashes]).encode()).hexdigest()

    def reference(self) -> Reference:
        """What a monitor starts from: bins by the ranks part, counts of the conformal part, points for a picture."""
        edges = min(_EDGES if len(self.names) <= 100 else _EDGES // 2, len(self.decision.inside_style.values) // 2)
        style, concept = (
            _spread(ranks.values.double().numpy(), edges)
            for ranks in (self.decision.inside_style, self.decision.inside_concept)
        )
        held = {name: tensor.double().numpy() for name, tensor in self.held._asdict().items()}
        labels = self.held.label.numpy()
        return Reference(
            detector=self.fingerprint(),
            names=self.names,
            style_edges=style,
            concept_edges=concept,
            style_counts=_count(held["style"], style, labels, len(self.names)),
            concept_counts=_count(held["concept"], concept, labels, len(self.names)),
            points=np.stack([held["style"], held["concept"]], 1)[:_POINTS],
            flagged=_share_flagged(self.decision, self.held),
            confidence=float(held["confidence"].mean()),
            calibrated=self.calibrated,
        )

    def save(self, folder: str | Path) -> None:
        """Write a folder: model, scores, calibrator, ranks, and `detector.json` last. Nothing is pickled."""
        from shiftprism.detector._store import save

        save(self, Path(folder))

    @staticmethod
    def load(folder: str | Path, **model: Any) -> "Detector":
        """The detector in a folder, or one that comes with the package: "cifar10".

        Code for an adapted model goes to `Classifier.load` by name.
        """
        from shiftprism.detector._store import load

        return load(Path(folder), **model)

    def __repr__(self) -> str:
        level = f"false_alarm={self.false_alarm:g}" + (
            "" if self.confidence is None else f", confidence={self.confidence:g}"
        )
        shape = f"{len(self.names)} classes, concept={self.concept}, {len(self.held.style)} held-out images"
        return f"Detector({shape}, {level}{', by_class' if self.by_class else ''})"


def to_verdicts(parts: Parts, names: Sequence[str], calibrated: bool) -> Verdicts:
    """The same decisions as NumPy arrays."""
    numbers: dict[str, Any] = {
        name: getattr(parts, name).double().numpy()
        for name in ("confidence", "style", "concept", "p_covariate", "p_concept", "p_combined")
    }
    kind = np.array(KINDS)[parts.kind.numpy()]
    return Verdicts(label=parts.label.numpy(), kind=kind, names=tuple(names), calibrated=calibrated, **numbers)


def _assemble(
    classifier: Classifier | None,
    divided: Division,
    data: Labelled,
    head: Head | None,
    *,
    names: Sequence[str],
    levels: dict[str, Any],
    **options: Any,
) -> Detector:
    fit, ranks = (Labelled(data.outputs.rows(rows), data.labels[rows]) for rows in (divided.fit, divided.ranks))
    decision, concept, recommendation = fit_decision(fit, ranks, head, names=names, **options)
    held = score_held(decision, data.outputs.rows(divided.conformal))
    return Detector(classifier, decision, held, names, concept=concept, recommendation=recommendation, **levels)


def score_held(decision: Decision, outputs: Outputs) -> Held:
    """What the conformal part scores."""
    with torch.no_grad():
        style, concept, _ = decision.score(outputs)
        label = outputs.predictions
        confidence = decision.probabilities(outputs).gather(1, label[:, None])[:, 0]
    return Held(style, concept, label, confidence)


def _find_cut(
    held: Held, count: int, names: Sequence[str], false_alarm: float, confidence: float | None, by_class: bool
) -> Tensor:
    """() or (K,): half a step above the largest p-value that raises the alarm."""
    sizes = torch.bincount(held.label, minlength=count).tolist() if by_class else [len(held.style)]
    cuts = find_cuts(sizes, false_alarm, confidence, tuple(names) if by_class else None)
    return torch.tensor(cuts if by_class else cuts[0])


def _place_copies(given: "Outputs | Copies", name: str, count: int, fit: Tensor) -> Copies:
    """The copies of images of the fit part, with their places in it."""
    if isinstance(given, Outputs):
        if count != given.N:
            advice = "row i of each set must be a copy of row i of `outputs`, or pass Copies, which name their rows"
            raise wrong("shifted", f"{count} rows in each set", f"{given.N} in {name}", advice)
        return Copies(given.rows(fit), torch.arange(len(fit)), torch.zeros(len(fit), dtype=torch.long))
    if bool((given.rows < 0).any()) or bool((given.rows >= count).any()):
        got = f"rows up to {int(given.rows.max())} in {name}"
        raise wrong("shifted", f"copies of the {count} rows of `outputs`", got, "number them as `outputs` does")
    places = torch.full((count,), -1)
    places[fit] = torch.arange(len(fit))
    kept = places[given.rows] >= 0
    return Copies(given.outputs.rows(kept), places[given.rows[kept]], given.severities[kept])


def _labels_of(labels: ArrayLike | None, outputs: Outputs) -> Tensor:
    if labels is None:
        return outputs.predictions
    return torch.from_numpy(classes("labels of `training`", labels, outputs.N, outputs.K))


def _share_flagged(decision: Decision, held: Held) -> float:
    """Of the held-out images themselves."""
    p = decision.combined_ranks(decision.combine(held.style, held.concept), held.label)
    return float((p <= (decision.cut[held.label] if decision.by_class else decision.cut)).double().mean())


def _spread(values: NDArray[np.float64], edges: int) -> NDArray[np.float64]:
    """Edges with about equally many of the sorted values between them; a value that repeats is one edge."""
    places = np.linspace(0, len(values) - 1, edges + 2)[1:-1].round().astype(int)
    return np.unique(values[places])


def _count(
    values: NDArray[np.float64], edges: NDArray[np.float64], labels: NDArray[np.int64], classes: int
) -> NDArray[np.int64]:
    """(K, B): bin b holds the values with edges[b − 1] < s ≤ edges[b]."""
    counts = np.zeros((classes, len(edges) + 1), np.int64)
    np.add.at(counts, (labels, np.searchsorted(edges, values, side="left")), 1)
    return counts
