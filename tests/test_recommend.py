"""Choosing a score without OOD data: the evidence is what it says it is, and the order follows from the evidence."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from shiftprism.benchmark import UNSEEN_DIGITS
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import CORRUPTIONS
from shiftprism.datasets import Dataset, load
from shiftprism.heads import HEADS
from shiftprism.metrics import auroc
from shiftprism.recommend import Recommendation, Surrogates, recommend, split_by_class
from shiftprism.rows import read_rows, write_rows
from shiftprism.scores import SCORES
from shiftprism.shifts import hold_out
from shiftprism.training import PRESETS, channel_statistics, train

KNOWN, UNSEEN = hold_out(load("digits", "train"), UNSEEN_DIGITS)
HELD = KNOWN.rows(torch.arange(len(KNOWN.images)) % 3 == 0)
LEARNED = KNOWN.rows(torch.arange(len(KNOWN.images)) % 3 != 0)


SEVERE = Surrogates(severities=(5,))


def built(head: str = "vanilla", data: Dataset = LEARNED) -> Classifier:
    return Classifier.build("digits", head, data.names, 1, *channel_statistics(data.images))


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    made = built()
    train(made, LEARNED, replace(PRESETS["smoke"], epochs=6))
    return made


@pytest.fixture(scope="module")
def found(classifier: Classifier) -> Recommendation:
    return recommend(classifier, HELD.images, HELD.labels, LEARNED)


def test_every_score_meets_every_surrogate(found: Recommendation) -> None:
    names = {one.score for one in found.ranking}
    assert names | set(found.left_out) == set(SCORES)
    assert set(found.left_out) <= {"kernel", "style", "spectrum"}  # DUQ's own, and those that need shifted copies
    copies = {(row.shift, row.severity) for row in found.rows if row.kind == "covariate"}
    # saturation leaves grey images as they are, and tells nothing
    assert copies == {(name, s) for name in ("speckle_noise", "gaussian_blur", "spatter") for s in (1, 3, 5)}
    hidden = {row.shift for row in found.rows if row.kind == "concept"}
    assert sorted(" ".join(shift.removeprefix("hidden ") for shift in hidden).split()) == sorted(KNOWN.names)
    assert len(found.rows) == len(names) * (len(copies) + len(hidden))
    assert "9 corrupted copies and 5 groups of hidden classes of 141 judged images" in found.basis


def test_the_order_follows_from_the_rows(found: Recommendation) -> None:
    names = sorted(one.score for one in found.ranking)
    means = {
        kind: {
            name: fmean(row.value for row in found.rows if (row.kind, row.subject) == (kind, name)) for name in names
        }
        for kind in ("covariate", "concept")
    }
    ranks = {kind: dict(zip(of, stats.rankdata([-v for v in of.values()]), strict=True)) for kind, of in means.items()}
    overall = [ranks["covariate"][one.score] + ranks["concept"][one.score] for one in found.ranking]
    assert overall == sorted(overall)
    assert [one.rank for one in found.ranking] == list(range(1, len(names) + 1))
    for one in found.ranking:
        assert one.covariate == pytest.approx(means["covariate"][one.score])
        assert one.concept == pytest.approx(means["concept"][one.score])
        assert one.mean == pytest.approx((one.covariate + one.concept) / 2)
        assert one.spread == pytest.approx(pstdev(row.value for row in found.rows if row.subject == one.score))
    both = ([one.covariate for one in found.ranking], [one.concept for one in found.ranking])
    assert found.agreement == pytest.approx(float(stats.spearmanr(*both).statistic))
    assert found.best == found.ranking[0].score


@pytest.mark.parametrize("by", ["covariate", "concept"])
def test_one_kind_alone_may_decide(classifier: Classifier, by: Any) -> None:
    ranking = recommend(classifier, HELD.images, HELD.labels, LEARNED, scores=["g", "h", "msp", "knn"], by=by).ranking
    values = [getattr(one, by) for one in ranking]
    assert values == sorted(values, reverse=True)


def test_corrupted_rows_agree_with_scikit_learn(classifier: Classifier, found: Recommendation) -> None:
    judged, held = split_by_class(HELD.labels, 2, 0)
    images = HELD.images[judged]
    spoiled = CORRUPTIONS["gaussian_blur"](images, 3, torch.arange(len(judged)))
    known, _ = predict(classifier, LEARNED)
    reference, _ = predict(classifier, HELD.images[held])
    for name in ("u", "mahalanobis", "prism"):
        score = SCORES[name].fit(known, LEARNED.labels, head=classifier.head, reference=reference)
        inside, outside = (score(predict(classifier, part)[0]).numpy() for part in (images, spoiled))
        truth = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
        (row,) = [r for r in found.rows if (r.shift, r.severity, r.subject) == ("gaussian_blur", 3, name)]
        assert row.value == pytest.approx(roc_auc_score(truth, np.r_[inside, outside]))
        assert row.n == len(images)


def test_a_hidden_class_is_hidden_from_head_and_fit(classifier: Classifier, found: Recommendation) -> None:
    """Against a model built by hand without the rows of the class, and Gaussians fitted without its images."""
    judged, _ = split_by_class(HELD.labels, 2, 0)
    (shift, *_) = [row.shift for row in found.rows if row.kind == "concept"]
    group = [KNOWN.names.index(name) for name in shift.removeprefix("hidden ").split()]
    keep = [k for k in range(7) if k not in group]
    narrow = built(data=hold_out(LEARNED, [KNOWN.names[k] for k in group])[0])
    narrow.backbone.load_state_dict(classifier.backbone.state_dict())
    narrow.mean, narrow.std = classifier.mean, classifier.std
    with torch.no_grad():
        narrow.head.get_parameter("weight").copy_(classifier.head.get_parameter("weight")[keep])
    shown = torch.isin(HELD.labels[judged], torch.tensor(keep))
    inside, outside = (predict(narrow, HELD.images[judged][part])[0] for part in (shown, ~shown))
    rest = hold_out(LEARNED, [KNOWN.names[k] for k in group])[0]
    known, _ = predict(narrow, rest)
    for name in ("g", "h", "energy", "mahalanobis", "vim", "she"):
        score = SCORES[name].fit(known, rest.labels, head=narrow.head)
        (row,) = [r for r in found.rows if (r.shift, r.subject) == (shift, name)]
        assert row.value == pytest.approx(auroc(score(inside), score(outside)), abs=1e-6)
        assert row.n == int((~shown).sum())


def test_it_chooses_something_that_detects(classifier: Classifier, found: Recommendation) -> None:
    known, inside = (predict(classifier, part)[0] for part in (LEARNED, HELD))
    outside, _ = predict(classifier, UNSEEN)
    values = []
    for name in (found.ranking[0].score, found.ranking[-1].score):
        score = SCORES[name].fit(known, LEARNED.labels, head=classifier.head, reference=inside)
        values.append(auroc(score(inside), score(outside)))
    assert values[0] > max(0.8, values[1])


def test_equal_seeds_give_equal_answers_without_training_data(classifier: Classifier, tmp_path: Path) -> None:
    few = Surrogates(folds=2, severities=(5,))
    scores = ["g", "knn", "prism"]
    one, two = (recommend(classifier, HELD.images, HELD.labels, scores=scores, surrogates=few) for _ in range(2))
    assert one == two
    assert "scores fitted to 94 of the images" in one.basis
    write_rows(tmp_path / "rows.jsonl", one.rows)
    assert tuple(read_rows(tmp_path / "rows.jsonl")) == one.rows
    fewer = recommend(classifier, HELD.images, HELD.labels, scores=scores, surrogates=replace(few, most=20))
    assert len(fewer.rows) == len(one.rows)
    assert "20 judged images" in fewer.basis
    other = recommend(classifier, HELD.images, HELD.labels, scores=scores, surrogates=replace(few, seed=1))
    assert other.rows != one.rows


def test_parts_are_disjoint_and_even() -> None:
    labels = torch.arange(90) % 4
    parts = split_by_class(labels, 3, 5)
    assert torch.cat(parts).sort().values.tolist() == list(range(90))
    counts = torch.stack([torch.bincount(labels[part], minlength=4) for part in parts])
    assert int((counts.amax(0) - counts.amin(0)).max()) <= 1


def test_scores_that_do_not_fit_are_named_with_the_reason() -> None:
    classifier = built("euclidean").eval()
    found = recommend(classifier, HELD.images, HELD.labels, LEARNED, surrogates=Surrogates(folds=0, severities=(5,)))
    assert {"vim", "residual", "fdbd"} <= set(found.left_out)
    assert "linear head" in found.left_out["vim"]
    assert math.isnan(found.agreement)
    assert all(math.isnan(one.concept) and one.mean == one.covariate for one in found.ranking)
    with pytest.raises(ValueError, match="Expected `head`"):
        recommend(classifier, HELD.images, HELD.labels, LEARNED, scores=["vim"])


def test_of_two_classes_none_can_be_hidden() -> None:
    two = LEARNED.only(["0", "1"])
    classifier = built(data=two).eval()
    found = recommend(classifier, two.images, two.labels, scores=["g", "msp"], surrogates=SEVERE)
    assert {row.kind for row in found.rows} == {"covariate"}
    with pytest.raises(ValueError, match="Expected `by` to be a kind of shift that has surrogates"):
        recommend(classifier, two.images, two.labels, scores=["g"], surrogates=SEVERE, by="concept")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": HELD.images[:19], "labels": HELD.labels[:19]}, "`images` to be at least 20"),
        ({"images": HELD.images / 255}, "`images` to be a tensor of torch.uint8"),
        ({"labels": HELD.labels + 1}, "`labels` to be between 0 and 6"),
        ({"labels": HELD.labels[1:]}, "`labels` to be of shape"),
        ({"scores": ["oracle"]}, "`scores` to be one of"),
        ({"by": "luck"}, "`by` to be one of both, concept, covariate"),
        ({"surrogates": Surrogates(["rain"])}, "`names` to be corruptions but got rain"),
        ({"surrogates": Surrogates((), folds=0)}, "`by` to be a kind of shift that has surrogates"),
    ],
)
def test_bad_input_is_refused_at_the_door(classifier: Classifier, change: dict[str, Any], message: str) -> None:
    given = {"images": HELD.images, "labels": HELD.labels, "training": LEARNED, "scores": ["g"], **change}
    with pytest.raises(ValueError, match=f"Expected {message}"):
        recommend(classifier, **given)


def test_surrogates_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected `folds` to be 0 or more but got -1"):
        Surrogates(folds=-1)
    with pytest.raises(ValueError, match="Expected `most` to be 1 or more but got 0"):
        Surrogates(most=0)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head_gets_a_ranking(head: str) -> None:
    surrogates = Surrogates(["gaussian_blur"], severities=(5,), folds=2)
    found = recommend(built(head), HELD.images, HELD.labels, LEARNED, surrogates=surrogates)
    assert {one.score for one in found.ranking} | set(found.left_out) == set(SCORES)
    assert {row.kind for row in found.rows} == {"covariate", "concept"}
    assert {"g", "h", "msp", "knn", "mahalanobis"} <= {one.score for one in found.ranking}
