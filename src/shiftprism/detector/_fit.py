"""Fitting a detector: which held-out images serve for what, and the choice of the concept score."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._levels import count_needed
from shiftprism.calibrators import Calibrator, ShiftAware, Temperature
from shiftprism.classifier import Classifier, check_images, predict
from shiftprism.corruptions import EXTRA, OWN_EXTRA
from shiftprism.detector._decision import Decision, Plain
from shiftprism.detector._images import prepare_for, stack_images
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.recommend import Divided, Labelled, Recommendation, recommend_from_outputs, split_by_class
from shiftprism.rows import Condition
from shiftprism.scores import SCORES, Fitted, GTwoSided, Style
from shiftprism.shifts import make_shifted_copies

CANDIDATES = (
    "h",
    "u",
    "msp",
    "energy",
    "gen",
    "knn",
    "fdbd",
    "vim",
    "she",
    "mahalanobis",
    "relative_mahalanobis",
    "prism",
)
"""Concept scores to choose from: one of each family, all of which export."""
SEVERITIES = (1, 3, 5)
FEWEST = 50
"""Images without which nothing is fitted."""
Images = Tensor | Sequence[Tensor]
"""uint8: (N, C, H, W), or N images (C, H, W) of any sizes."""
COPIES = 128
"""Images copied under each extra corruption and severity."""
BATCH = 64
_COUNTED = 1024
"""Images between two reports of progress."""
Progress = Callable[[int, int], None]
"""Is called with the number of images forwarded so far and the number of all."""


class Division(NamedTuple):
    """The row numbers of held-out images, in three disjoint parts."""

    fit: Tensor
    """Two fifths: style, the concept score, the calibrator."""
    ranks: Tensor
    """A fifth: the ranks inside the combination."""
    conformal: Tensor
    """Two fifths: the ranks of all p-values, seen by nothing else."""


class Copies(NamedTuple):
    """Outputs of shifted copies under one extra corruption, all severities."""

    outputs: Outputs
    rows: Tensor
    """(N,): of which image each is a copy; inside a fit, of which image of the fit part."""
    severities: Tensor
    """(N,)."""

    @staticmethod
    def join(parts: "Sequence[Copies]") -> "Copies":
        """The copies of all parts, in order."""
        rows, severities = (torch.cat([getattr(one, field) for one in parts]) for field in ("rows", "severities"))
        return Copies(Outputs.concat([one.outputs for one in parts]), rows, severities)


def check_count(
    count: int,
    false_alarm: float,
    confidence: float | None,
    *,
    name: str = "images",
    source: str = "",
    advice: str = "pass more held-out images, or allow more false alarms",
) -> None:
    """An error that says how many held-out images a detector of this level needs, where `count` are too few."""
    needed = max(FEWEST, math.ceil(2.5 * count_needed(false_alarm, confidence)))
    if count < needed:
        promise = "" if confidence is None else f" with a confidence of {confidence:g}"
        level = f"for a false-alarm rate of {false_alarm:g}{promise}"
        raise wrong(name, f"at least {needed} held-out images {level}", f"{count}{source}", advice)


def divide(count: int, classes: Tensor | None, false_alarm: float, confidence: float | None, seed: int) -> Division:
    """A division of `count` images that leaves enough for the level, or an error that says how many are needed."""
    check_count(count, false_alarm, confidence)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    # The conformal part is drawn without looking at classes: only so are its images and new ones exchangeable.
    held = max(math.ceil(0.4 * count), count_needed(false_alarm, confidence))
    conformal, rest = order[:held].sort().values, order[held:].sort().values
    labels = torch.zeros(len(rest), dtype=torch.long) if classes is None else classes[rest]
    first, second, third = split_by_class(labels, 3, seed)
    return Division(rest[torch.cat([first, second])], rest[third], conformal)


def plan_copies(images: int, most: int, seed: int) -> Iterator[tuple[str, int, Tensor]]:
    """For each extra corruption and severity the images to copy: at most `most` of them, others for the next one."""
    order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
    taken = 0
    for name in (*EXTRA, *OWN_EXTRA):
        for severity in SEVERITIES:
            places = (taken + torch.arange(min(most, images))) % images
            taken += len(places)
            yield name, severity, order[places].sort().values


class Counter:
    """Counts the images that are forwarded in all steps of a fit, and hands the number and their total to `progress`.

    >>> Counter([(100, 40)], copies=0, progress=print).add(60)
    60 100
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], copies: int, progress: Progress | None) -> None:
        """`sizes`: of each set the number of images, and of those that are copied."""
        rounds = len(SEVERITIES) * len((*EXTRA, *OWN_EXTRA))
        self.total = sum(images + rounds * min(copies, copied) for images, copied in sizes)
        self.done, self.progress = 0, progress

    def add(self, count: int) -> None:
        """So many more were forwarded."""
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)


def predict_copies(classifier: Classifier, images: Images, most: int, seed: int, counter: Counter) -> dict[str, Copies]:
    """Outputs of shifted copies of `images`, by the name of the corruption; those that change nothing are left out."""
    parts: dict[str, list[Copies]] = {}
    for name, severity, rows in plan_copies(len(images), most, seed):
        copied, changed = _copy(images, rows, name, severity)
        if len(changed):
            outputs = predict_raw(classifier, copied)
            parts.setdefault(name, []).append(Copies(outputs, changed, torch.full((len(changed),), severity)))
        counter.add(len(rows))
    return {name: Copies.join(own) for name, own in parts.items()}


def _copy(images: Images, rows: Tensor, name: str, severity: int) -> tuple[Images, Tensor]:
    """Copies of these images, and the rows of those that differ from them; images of different sizes one by one."""
    if isinstance(images, Tensor):
        whole = [copy.images for copy in make_shifted_copies(images[rows], [name], [severity], seeds=rows)]
        return (whole[0], rows) if whole else (images[:0], rows[:0])
    single = {
        int(row): copy.images[0]
        for row in rows
        for copy in make_shifted_copies(images[int(row)][None], [name], [severity], seeds=row[None])
    }
    return list(single.values()), torch.tensor(list(single), dtype=torch.long)


def check_raw(images: Images) -> None:
    """Refuse what are not images as they are read from files."""
    # a sequence of another type reads its images when they are asked for
    for one in images if isinstance(images, list | tuple) else (images[:1] if isinstance(images, Tensor) else ()):
        if not isinstance(one, Tensor) or one.dtype != torch.uint8:
            got = str(one.dtype) if isinstance(one, Tensor) else type(one).__name__
            raise wrong("images", "uint8 tensors", got, "pass images as they are read from files")
    if isinstance(images, Tensor):
        check_images(images)


def predict_raw(classifier: Classifier, images: Images, counter: Counter | None = None) -> Outputs:
    """Outputs of a tensor of images, or of a sequence of images of any sizes."""
    if isinstance(images, Tensor):
        parts = []
        for part in images.split(_COUNTED):
            parts.append(predict(classifier, part)[0])
            if counter is not None:
                counter.add(len(part))
        return Outputs.concat(parts)

    prepare = prepare_for(classifier)

    def batches() -> Iterator[Tensor]:
        for at in range(0, len(images), BATCH):
            prepared = [prepare(one) for one in images[at : at + BATCH]]
            if counter is not None:
                counter.add(len(prepared))
            yield stack_images(prepared)

    return predict(classifier, batches())[0]


class _Rows(Sequence[Tensor]):
    """Some rows of a sequence of images, which are read when they are asked for."""

    def __init__(self, images: Sequence[Tensor], rows: list[int]) -> None:
        self.images, self.rows = images, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, place: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(place, slice):
            return [self.images[row] for row in self.rows[place]]
        return self.images[self.rows[place]]


def take(images: Images, rows: Tensor) -> Images:
    """The images of these rows."""
    return images[rows] if isinstance(images, Tensor) else _Rows(images, rows.tolist())


def fit_decision(
    fit: Labelled,
    ranks: Labelled,
    head: Head | None,
    *,
    calibrated: bool,
    shifted: Mapping[str, Copies] | None,
    training: Labelled | None,
    training_shifted: Mapping[str, Copies] | None = None,
    concept: str | None,
    candidates: Sequence[str],
    names: Sequence[str],
    seed: int,
) -> tuple[Decision, str, Recommendation | None]:
    """Everything but the conformal ranks: the decision, the name of its concept score, and why it was chosen.

    The labels of `fit` and `ranks` are predicted classes where there are no true ones; then nothing is calibrated.
    """
    covariate = _fit_covariate(fit.outputs, ranks.outputs, shifted, training, training_shifted)
    recommendation = None
    if concept is None:
        recommendation = choose_concept(fit, ranks, head, shifted, training, candidates, names, seed)
        concept = recommendation.best
    score = fit_concept(concept, training or fit, ranks, head)
    calibrator = _fit_calibrator(fit, shifted) if calibrated else None
    with torch.no_grad():
        inside = covariate(ranks.outputs), score(ranks.outputs)
    return Decision(covariate, score, calibrator, inside, fit.outputs.K), concept, recommendation


def choose_concept(
    fit: Labelled,
    ranks: Labelled,
    head: Head | None,
    shifted: Mapping[str, Copies] | None,
    training: Labelled | None,
    candidates: Sequence[str],
    names: Sequence[str],
    seed: int,
) -> Recommendation:
    """The candidates in order, judged on a half of the fit part, without OOD data."""
    known, judged = (torch.arange(fit.outputs.N) % 2 == parity for parity in (0, 1))
    divided = Divided(training or _take(fit, known), ranks, _take(fit, judged))

    def corrupted() -> Iterator[tuple[Condition, Outputs]]:
        for name, copies in (shifted or {}).items():
            for severity in copies.severities.unique().tolist():
                rows = judged[copies.rows] & (copies.severities == severity)
                if bool(rows.any()):
                    yield Condition(name, "covariate", severity), copies.outputs.rows(rows)

    basis = f"{divided.judged.outputs.N} held-out images"
    return recommend_from_outputs(
        divided, head, corrupted(), scores=candidates, names=names, seed=seed, basis=basis, by="both"
    )


def fit_concept(name: str, known: Labelled, ranks: Labelled, head: Head | None) -> Fitted | Plain:
    """The score of this name, fitted to `known`, with the other part as its reference."""
    if name not in SCORES or "style" in SCORES[name].reads:
        others = ", ".join(other for other, entry in SCORES.items() if "style" not in entry.reads)
        raise wrong("concept", f"a score that reads no style, such as {others}", repr(name), "choose one of these")
    entry = SCORES[name]
    if entry.ready:
        return Plain(name)
    score = entry.fit(known.outputs, known.labels, head=head, reference=ranks.outputs)
    if not isinstance(score, Fitted):
        got, advice = f"{name}, which reads the head again for every input", "choose one that is fitted, such as fdbd"
        raise wrong("concept", "a score of Outputs alone", got, advice)
    return score


def _fit_covariate(
    fit: Outputs,
    ranks: Outputs,
    shifted: Mapping[str, Copies] | None,
    training: Labelled | None,
    training_shifted: Mapping[str, Copies] | None,
) -> Fitted:
    """Style against shifted copies; without any, how unusual the norm is on either side."""
    if not shifted:
        return GTwoSided.fit(fit, reference=ranks)
    copies = {name: copy.outputs for name, copy in shifted.items()}
    if training is None or not training_shifted:
        return Style.fit(fit, copies)
    more = {name: [copy.outputs] for name, copy in training_shifted.items()}
    joined = {name: Outputs.concat([own, *more.get(name, [])]) for name, own in copies.items()}
    return Style.fit(Outputs.concat([fit, training.outputs]), joined)


def _fit_calibrator(fit: Labelled, shifted: Mapping[str, Copies] | None) -> Calibrator:
    if not shifted:
        return Temperature.fit(fit.outputs, fit.labels)
    copies = {name: (copy.outputs, fit.labels[copy.rows]) for name, copy in shifted.items()}
    return ShiftAware.fit(fit.outputs, fit.labels, shifted=copies)


def _take(data: Labelled, rows: Tensor) -> Labelled:
    return Labelled(data.outputs.rows(rows), data.labels[rows])
