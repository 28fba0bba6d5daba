"""Which score to use, judged without OOD data: on copies of ID data that are corrupted, or whose class is hidden."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from shiftprism import metrics
from shiftprism._checks import Floats, choice, classes, wrong
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import EXTRA, check_images
from shiftprism.datasets import Dataset
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.rows import Condition, Row, Source, make_row
from shiftprism.scores import SCORES, Score, find_score
from shiftprism.shifts import covariate

By = Literal["both", "covariate", "concept"]


class Labelled(NamedTuple):
    """The Outputs of a set and its labels."""

    outputs: Outputs
    labels: Tensor


class Divided(NamedTuple):
    """ID data in three disjoint sets."""

    known: Labelled
    """Scores are fitted to these."""
    held: Labelled
    """Ranks are taken from these."""
    judged: Labelled


class Trial(NamedTuple):
    """One score on one surrogate of shift."""

    condition: Condition
    score: str
    auroc: float
    n: int
    """The number of shifted images."""


@dataclass(frozen=True)
class Surrogates:
    """How shift is imitated with ID data alone."""

    corruptions: Sequence[str] = EXTRA
    """The default are the four that CIFAR-C's publisher keeps for validation, so that its 15 stay unseen."""
    severities: Sequence[int] = (1, 3, 5)
    folds: int = 5
    """The groups of classes that are hidden in turn."""
    most: int = 2000
    """The most images to judge."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("most", self.most, 1), ("folds", self.folds, 0)):
            if value < least:
                raise wrong(name, f"{least} or more", value, "leave it out for the usual number")


class Standing(NamedTuple):
    """The place of one score. AUROCs are means over surrogates, NaN where there was none of the kind."""

    rank: int
    score: str
    covariate: float
    """Over the corrupted copies."""
    concept: float
    """Over the hidden classes."""
    mean: float
    """Of the kinds there are."""
    spread: float
    """The standard deviation over all surrogates."""


class Recommendation(NamedTuple):
    """Scores from the best to the worst, and the evidence for that order."""

    ranking: tuple[Standing, ...]
    rows: tuple[Row, ...]
    """One AUROC for each score and surrogate, as `write_rows` keeps them."""
    agreement: float
    """Spearman's correlation of the orders by corrupted copies and by hidden classes; NaN where one is missing."""
    left_out: Mapping[str, str]
    """Scores that do not fit this classifier, and why."""
    basis: str
    """The data behind it, in a sentence."""

    @property
    def best(self) -> str:
        """The score that came out first."""
        return self.ranking[0].score


def recommend(
    classifier: Classifier,
    images: Tensor,
    labels: Tensor,
    training: Dataset | None = None,
    *,
    scores: Sequence[str] | None = None,
    by: By = "both",
    surrogates: Surrogates | None = None,
) -> Recommendation:
    """Scores ranked on surrogates of shift that are made of ID data alone; no OOD data is looked at.

    `images` (uint8) and `labels` are ID data the classifier was *not* trained on. Scores are fitted to `training`, the
    data it was trained on, or to a third of `images` without it. Ranks are taken from another part, and the rest is
    judged:

    - corrupted copies (covariate): each corruption of `surrogates` at each severity.
    - hidden classes (concept): the classes are dealt into groups. The columns of a group are removed from the logits,
      its rows from the head and from all fit data, and its images count as OOD. Nothing is trained again, so the
      *backbone* still knows them: scores that read the norm are underrated here, densities overrated.

    The order is that of the mean of the ranks by kind, or by one kind alone (`by`). The page `docs/recommend.md` says
    how near this came to the true order, and when to trust it.
    """
    surrogates = surrogates or Surrogates()
    numbers = torch.from_numpy(classes("labels", labels, len(check_images(images)), classifier.head.out_features))
    choice("by", by, ("both", "covariate", "concept"))
    names = list(SCORES) if scores is None else [choice("scores", name, SCORES) for name in scores]
    parts = split_by_class(numbers, 2 if training is not None else 3, surrogates.seed)
    sets = [Dataset(images[part], numbers[part], classifier.names) for part in parts]
    judged = sets[0].rows(slice(surrogates.most))
    divided = Divided(
        _predict(classifier, training or sets[2]), _predict(classifier, sets[1]), _predict(classifier, judged)
    )
    recipe = classifier.recipe or {"backbone": "", "head": ""}
    source = Source(
        model="classifier",
        data="",
        backbone=recipe["backbone"],
        head=recipe["head"],
        seed=surrogates.seed,
        protocol="held-out",
        weights=classifier.fingerprint()[:12],
    )
    fit = "the training data" if training is not None else f"{len(parts[2])} of the images"
    return recommend_from_outputs(
        divided,
        classifier.head,
        _corrupt(classifier, judged, surrogates),
        scores=names,
        names=classifier.names,
        by=by,
        folds=surrogates.folds,
        seed=surrogates.seed,
        source=source,
        basis=f"{len(judged.images)} judged images; scores fitted to {fit}, ranks from {len(parts[1])} others",
        strict=scores is not None,
    )


_NO_SOURCE = Source(model="outputs", data="", backbone="", head="", seed=0, protocol="held-out", weights="")


def recommend_from_outputs(
    divided: "Divided",
    head: Head | None,
    corrupted: Iterable[tuple[Condition, Outputs]] = (),
    *,
    scores: Sequence[str],
    names: Sequence[str] = (),
    by: By = "both",
    folds: int = 5,
    seed: int = 0,
    source: Source = _NO_SOURCE,
    basis: str = "",
    strict: bool = False,
) -> Recommendation:
    """`recommend` for those who have Outputs: nothing is forwarded here.

    `corrupted` are Outputs of corrupted copies of the judged images, each with what was done to them. Without a `head`
    no class can be hidden. Where not `strict`, a score that does not fit this model is left out with its reason.
    """
    judged = divided.judged
    fitted, left_out = fit_scores(scores, divided.known, divided.held, head, strict=strict)
    clean = {name: score(judged.outputs) for name, score in fitted.items()}
    trials = [trial for condition, outside in corrupted for trial in _try_scores(condition, fitted, clean, outside)]
    titles = tuple(names) or tuple(str(number) for number in range(judged.outputs.K))
    for group in _groups(judged.outputs.K, folds, seed):
        if head is None:
            break
        condition = Condition("hidden " + " ".join(titles[k] for k in group), "concept", 0)
        found, failed = _try_hidden(condition, group, list(fitted), divided, head, strict)
        trials += found
        left_out |= failed
    rows = [
        make_row(source, one.condition, subject=one.score, metric="auroc", value=one.auroc, error=0.0, n=one.n)
        for one in trials
        if one.score not in left_out
    ]
    return _rank_scores(rows, by, left_out, basis)


def split_by_class(labels: Tensor, parts: int, seed: int) -> list[Tensor]:
    """Row numbers in `parts` disjoint sets, in random order, with each class spread evenly over them."""
    if len(labels) < 10 * parts:
        raise wrong("images", f"at least {10 * parts}", len(labels), "a few hundred give an AUROC to a few per cent")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    # the images of a class now follow each other, so that every `parts`-th of them goes to the same set
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(labels)) % parts
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + 1))
    return [order[place[order] == part] for part in range(parts)]


def fit_scores(
    names: Sequence[str],
    known: tuple[Outputs, Tensor],
    held: tuple[Outputs, Tensor],
    head: Head | None,
    *,
    strict: bool,
    shifted: Mapping[str, Outputs] | None = None,
) -> tuple[dict[str, Score], dict[str, str]]:
    """The scores that fit this model, and the reason for each that does not (an error where it was asked for).

    `shifted` are shifted copies of images like those of `known`, for scores that are a contrast between the two.
    """
    fitted: dict[str, Score] = {}
    left_out = {}
    for name in names:
        try:
            score = find_score(name).fit(*known, head=head, reference=held[0], shifted=shifted)
            score(held[0].rows(slice(0, 1)))  # a score without a fit refuses a head only when it is called
            fitted[name] = score
        except ValueError as error:
            if strict:
                raise
            left_out[name] = str(error)
    return fitted, left_out


def _predict(classifier: Classifier, data: Dataset) -> Labelled:
    return Labelled(predict(classifier, data)[0], data.labels)


def _corrupt(classifier: Classifier, data: Dataset, surrogates: Surrogates) -> Iterator[tuple[Condition, Outputs]]:
    for shift in covariate(data, surrogates.corruptions, surrogates.severities):
        changed = shift.make()
        if not torch.equal(changed.images, data.images):  # saturation leaves grey images as they are, say
            yield Condition(shift.name, shift.kind, shift.severity), predict(classifier, changed)[0]


def _try_scores(
    condition: Condition, scores: Mapping[str, Score], clean: Mapping[str, Tensor], outside: Outputs
) -> list[Trial]:
    return [
        Trial(condition, name, metrics.auroc(clean[name], score(outside)), outside.N) for name, score in scores.items()
    ]


def _try_hidden(
    condition: Condition, group: Sequence[int], names: Sequence[str], divided: Divided, head: Head, strict: bool
) -> tuple[list[Trial], dict[str, str]]:
    """The scores of a model that does not know the classes in `group`, which are OOD to it; and those that failed."""
    classes_known = divided.judged.outputs.K
    keep = torch.tensor([k for k in range(classes_known) if k not in set(group)])
    number = torch.full((classes_known,), -1)
    number[keep] = torch.arange(len(keep))

    def without_group(part: Labelled) -> Labelled:
        kept = number[part.labels] >= 0
        return Labelled(_keep_classes(part.outputs.rows(kept), keep), number[part.labels[kept]])

    known, held, shown = (without_group(part) for part in divided)
    inside = divided.judged
    unseen = _keep_classes(inside.outputs.rows(number[inside.labels] < 0), keep)
    if not shown.outputs.N or not unseen.N:
        return [], {}
    scores, failed = fit_scores(names, known, held, _keep_class_rows(head, keep), strict=strict)
    clean = {name: score(shown.outputs) for name, score in scores.items()}
    return _try_scores(condition, scores, clean, unseen), failed


def _groups(count: int, folds: int, seed: int) -> Iterator[list[int]]:
    """Groups of classes to hide in turn; none where fewer than two classes would be left."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    groups = min(folds, count)
    for first in range(groups):
        group = sorted(order[first::groups])
        if count - len(group) >= 2:
            yield group


def _keep_classes(outputs: Outputs, keep: Tensor) -> Outputs:
    """Without the columns of the hidden classes: each class's logit depends on its own row of W alone."""
    columns = {name: getattr(outputs, name)[:, keep] for name in ("similarities", "raw", "logits")}
    return outputs._replace(**columns)


def _keep_class_rows(head: Head, keep: Tensor) -> Head:
    """A copy without the hidden classes' rows, for scores that read W; a head without such rows stays as it is."""
    narrow = copy.deepcopy(head)
    for name in ("weight", "bias"):
        rows = getattr(head, name, None)
        if isinstance(rows, nn.Parameter) and len(rows) == narrow.out_features:
            setattr(narrow, name, nn.Parameter(rows.detach()[keep]))
    narrow.out_features = len(keep)
    return narrow


def _rank_scores(rows: Sequence[Row], by: By, left_out: Mapping[str, str], basis: str) -> Recommendation:
    kinds = list(dict.fromkeys(row.kind for row in rows))
    deciding = [kind for kind in kinds if by in (kind, "both")]
    if not deciding:
        advice = "name corruptions that change the images, or hide some of three classes or more"
        raise wrong("by", "a kind of shift that has surrogates", f"{by!r} and none", advice)
    names = list(dict.fromkeys(row.subject for row in rows))
    values: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in kinds}
    for row in rows:
        values[row.kind][row.subject].append(row.value)
    means = {kind: [fmean(own) for own in values[kind].values()] for kind in kinds}
    places = {kind: stats.rankdata([-mean for mean in means[kind]]) for kind in kinds}

    def place(i: int) -> tuple[float, float]:
        return fmean(places[kind][i] for kind in deciding), -fmean(means[kind][i] for kind in deciding)

    ranking = []
    for rank, i in enumerate(sorted(range(len(names)), key=place), 1):
        one = {kind: means[kind][i] for kind in kinds}
        spread = pstdev([value for kind in kinds for value in values[kind][names[i]]])
        covariate_mean, concept_mean = (one.get(kind, math.nan) for kind in ("covariate", "concept"))
        ranking.append(Standing(rank, names[i], covariate_mean, concept_mean, fmean(one.values()), spread))
    alike = _correlation(places["covariate"], places["concept"]) if len(kinds) == 2 else math.nan
    counts = (f"{len({(r.shift, r.severity) for r in rows if r.kind == kind})} {_WORDS[kind]}" for kind in kinds)
    return Recommendation(tuple(ranking), tuple(rows), alike, left_out, f"{' and '.join(counts)} of {basis}")


def _correlation(a: Floats, b: Floats) -> float:
    """Of two sets of ranks, which makes it Spearman's; NaN where one of them is constant."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else math.nan


_WORDS = {"covariate": "corrupted copies", "concept": "groups of hidden classes"}
