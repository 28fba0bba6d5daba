"""Which score to use, judged without any OOD data: on copies of ID data that are corrupted or whose class is hidden."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from shiftprism import metrics
from shiftprism._checks import Floats, choice, classes, wrong
from shiftprism.benchmark._rows import Row, commit, versions
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import EXTRA
from shiftprism.corruptions._door import checked_images
from shiftprism.datasets import Dataset
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, Score
from shiftprism.shifts import covariate

Labelled = tuple[Outputs, Tensor]
Where = tuple[str, str, int]
"""Shift, kind and severity, as in a Row."""
Trial = tuple[Where, str, float, int]
"""Where, the score, its AUROC and how many shifted images."""
By = Literal["both", "covariate", "concept"]


class Standing(NamedTuple):
    """How one score fared. AUROCs are means over surrogates, NaN where there was none of the kind."""

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
    """Scores from the best down, and the evidence for that order."""

    ranking: tuple[Standing, ...]
    rows: tuple[Row, ...]
    """One AUROC for each score and surrogate, as `write_rows` keeps them."""
    agreement: float
    """Spearman's correlation of the orders by corrupted copies and by hidden classes; NaN where one is missing."""
    left_out: Mapping[str, str]
    """Scores that do not fit this classifier, and why."""
    basis: str
    """In a sentence: on what this rests."""

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
    corruptions: Sequence[str] = EXTRA,
    severities: Sequence[int] = (1, 3, 5),
    folds: int = 5,
    by: By = "both",
    most: int = 2000,
    seed: int = 0,
    batch: int = 500,
) -> Recommendation:
    """Scores ranked on surrogates of shift that are made of ID data alone; no OOD data is looked at.

    `images` (uint8) and `labels` are ID data the classifier was *not* trained on. Scores are fitted to `training`, the
    data it was trained on, or to a third of `images` without it; ranks are taken from another part, and at most `most`
    images of the rest are judged:

    - corrupted copies of them (covariate): each of `corruptions` at each of `severities`. The default are the four that
      CIFAR-C's publisher keeps for validation, so that its 15 stay unseen.
    - hidden classes (concept): the classes are dealt into `folds` groups; a group's columns are taken out of the
      logits, its rows out of the head and out of all fit data, and its images count as OOD. Nothing is trained anew, so
      the *backbone* still knows them: scores that read the norm are underrated here, densities overrated.

    The order is that of the mean of the ranks by kind, or by one kind alone (`by`). The page `docs/benchmark.md` says
    how near this came to the true order, and when to trust it.
    """
    numbers = torch.from_numpy(classes("labels", labels, len(checked_images(images)), classifier.head.out_features))
    choice("by", by, ("both", "covariate", "concept"))
    for name, value, least in (("most", most, 1), ("folds", folds, 0)):
        if value < least:
            raise wrong(name, f"{least} or more", value, "leave it out for the usual number")
    names = list(SCORES) if scores is None else [choice("scores", name, SCORES) for name in scores]
    parts = dealt(numbers, 2 if training is not None else 3, seed)
    judged = parts[0][:most]
    data = Dataset(images[judged], numbers[judged], classifier.names)
    known = _said(classifier, training or Dataset(images[parts[2]], numbers[parts[2]], classifier.names), batch)
    held = _said(classifier, Dataset(images[parts[1]], numbers[parts[1]], classifier.names), batch)
    inside = _said(classifier, data, batch)
    made, left_out = fitted_scores(names, known, held, classifier.head, strict=scores is not None)
    clean = {name: score(inside[0]) for name, score in made.items()}
    trials: list[Trial] = []
    for shift in covariate(data, corruptions, severities):
        changed = shift.make()
        if not torch.equal(changed.images, data.images):  # saturation of grey images, say, tells nothing
            where = (shift.name, shift.kind, shift.severity)
            trials += _tried(where, made, clean, predict(classifier, changed, batch)[0])
    for group in _groups(classifier.head.out_features, folds, seed):
        where = ("hidden " + " ".join(classifier.names[k] for k in group), "concept", 0)
        trials += _tried_hidden(where, group, list(made), (known, held, inside), classifier.head)
    recipe = classifier.recipe or {"backbone": "", "head": ""}
    source = ("classifier", "", recipe["backbone"], recipe["head"], seed, "held-out")
    made_by = (classifier.fingerprint()[:12], versions(), commit())
    rows = [Row(*source, *where, name, "auroc", value, 0.0, n, *made_by) for where, name, value, n in trials]
    fit = "the training data" if training is not None else f"{len(parts[2])} of the images"
    basis = f"{len(judged)} judged images; scores fitted to {fit}, ranks from {len(parts[1])} others"
    return _ranked(rows, by, left_out, basis)


def dealt(labels: Tensor, parts: int, seed: int) -> list[Tensor]:
    """Row numbers in `parts` disjoint sets, each class spread evenly over them."""
    if len(labels) < 10 * parts:
        raise wrong("images", f"at least {10 * parts}", len(labels), "a few hundred give an AUROC to a few per cent")
    drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    by_class = drawn[labels[drawn].argsort(stable=True)]
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + 1))
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(labels)) % parts
    return [mixed[place[mixed] == part] for part in range(parts)]


def _said(classifier: Classifier, data: Dataset, batch: int) -> Labelled:
    outputs, _ = predict(classifier, data, batch)
    return outputs, data.labels


def fitted_scores(
    names: Sequence[str], known: Labelled, held: Labelled, head: Head | None, strict: bool
) -> tuple[dict[str, Score], dict[str, str]]:
    """The scores that fit this model, and what was wrong with the others (an error where they were asked for)."""
    made: dict[str, Score] = {}
    left_out = {}
    for name in names:
        try:
            score = SCORES[name].fit(*known, head=head, reference=held[0])
            score(held[0].rows(slice(0, 1)))  # what needs no fit refuses a head only when it is asked
            made[name] = score
        except ValueError as error:
            if strict:
                raise
            left_out[name] = str(error)
    return made, left_out


def _tried(where: Where, made: Mapping[str, Score], clean: Mapping[str, Tensor], other: Outputs) -> list[Trial]:
    return [(where, name, metrics.auroc(clean[name], score(other)), other.N) for name, score in made.items()]


def _tried_hidden(
    where: Where, group: Sequence[int], names: Sequence[str], parts: tuple[Labelled, Labelled, Labelled], head: Head
) -> list[Trial]:
    """The scores of a model that has never heard of the classes in `group`, which are OOD to it."""
    keep = torch.tensor([k for k in range(head.out_features) if k not in set(group)])
    number = torch.full((head.out_features,), -1)
    number[keep] = torch.arange(len(keep))

    def without(part: Labelled) -> Labelled:
        own = number[part[1]] >= 0
        return _narrowed(part[0].rows(own), keep), number[part[1][own]]

    known, held, (shown, _) = (without(part) for part in parts)
    inside, labels = parts[2]
    unseen = _narrowed(inside.rows(number[labels] < 0), keep)
    if not shown.N or not unseen.N:
        return []
    made, _ = fitted_scores(names, known, held, _narrowed_head(head, keep), strict=True)
    return _tried(where, made, {name: score(shown) for name, score in made.items()}, unseen)


def _groups(count: int, folds: int, seed: int) -> Iterator[list[int]]:
    """The classes dealt into groups to hide in turn; none where fewer than two classes would be left."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    groups = min(folds, count)
    for first in range(groups):
        group = sorted(order[first::groups])
        if count - len(group) >= 2:
            yield group


def _narrowed(outputs: Outputs, keep: Tensor) -> Outputs:
    """Without the columns of the hidden classes: each class's logit depends on its own row of W alone."""
    cut = {name: getattr(outputs, name)[:, keep] for name in ("similarities", "raw", "logits")}
    return outputs._replace(**cut)


def _narrowed_head(head: Head, keep: Tensor) -> Head:
    """A copy without the hidden classes' rows, for the scores that read W; a head without such rows stays as it is."""
    narrow = copy.deepcopy(head)
    for name in ("weight", "bias"):
        whole = getattr(head, name, None)
        if isinstance(whole, nn.Parameter) and len(whole) == narrow.out_features:
            setattr(narrow, name, nn.Parameter(whole.detach()[keep]))
    narrow.out_features = len(keep)
    return narrow


def _ranked(rows: Sequence[Row], by: By, left_out: Mapping[str, str], basis: str) -> Recommendation:
    kinds = list(dict.fromkeys(row.kind for row in rows))
    asked = [kind for kind in kinds if by in (kind, "both")]
    if not asked:
        advice = "name corruptions that change the images, or hide some of three classes or more"
        raise wrong("by", "a kind of shift that has surrogates", f"{by!r} and none", advice)
    names = list(dict.fromkeys(row.subject for row in rows))
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in kinds}
    for row in rows:
        found[row.kind][row.subject].append(row.value)
    means = {kind: [fmean(values) for values in found[kind].values()] for kind in kinds}
    places = {kind: stats.rankdata([-mean for mean in means[kind]]) for kind in kinds}

    def place(i: int) -> tuple[float, float]:
        return fmean(places[kind][i] for kind in asked), -fmean(means[kind][i] for kind in asked)

    ranking = []
    for rank, i in enumerate(sorted(range(len(names)), key=place), 1):
        one = {kind: means[kind][i] for kind in kinds}
        spread = pstdev([value for kind in kinds for value in found[kind][names[i]]])
        covariate_mean, concept_mean = (one.get(kind, math.nan) for kind in ("covariate", "concept"))
        ranking.append(Standing(rank, names[i], covariate_mean, concept_mean, fmean(one.values()), spread))
    alike = _correlation(places["covariate"], places["concept"]) if len(kinds) == 2 else math.nan
    counts = (f"{len({(r.shift, r.severity) for r in rows if r.kind == kind})} {_WORDS[kind]}" for kind in kinds)
    return Recommendation(tuple(ranking), tuple(rows), alike, left_out, f"{' and '.join(counts)} of {basis}")


def _correlation(a: Floats, b: Floats) -> float:
    """Of two sets of ranks, which makes it Spearman's; NaN where one of them is constant."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else math.nan


_WORDS = {"covariate": "corrupted copies", "concept": "groups of hidden classes"}
