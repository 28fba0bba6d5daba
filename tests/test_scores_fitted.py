"""Fitted scores against scikit-learn, SciPy and NumPy; statistics that add up; data too few for a covariance."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from examples import draw_outputs, features_of, head, head_of
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import (
    FDBD,
    KNN,
    SCORES,
    SHE,
    Fisher,
    Fitted,
    GaussianMixture,
    GTwoSided,
    KLMatching,
    Mahalanobis,
    NNGuide,
    Prism,
    RelativeMahalanobis,
    Residual,
    Score,
    ViM,
    g,
    gen,
    h,
    max_cosine,
    p_value,
)
from shiftprism.scores._neighbours import largest_products
from shiftprism.scores._subspace import principal_dimensions

FITTED = sorted(name for name, entry in SCORES.items() if entry.fitted)
SUMMED = sorted(name for name in FITTED if hasattr(SCORES[name].implementation, "from_statistics"))
LABELS = torch.arange(120) % 4


def known_and_new() -> tuple[Outputs, Outputs, Any, Any]:
    known, new = draw_outputs(), draw_outputs(30, seed=2)
    return known, new, known.features.numpy(), new.features.numpy()


@pytest.mark.parametrize("space", ["features", "logits"])
def test_mahalanobis_against_scikit_learn(space: str) -> None:
    known, new = draw_outputs(), draw_outputs(30, seed=2)
    x, y = getattr(known, space).numpy(), getattr(new, space).numpy()
    means = np.stack([x[k == LABELS].mean(0) for k in range(4)])
    fitted = EmpiricalCovariance(assume_centered=True).fit(x - means[LABELS])
    expected = -np.stack([fitted.mahalanobis(y - mean) for mean in means]).min(0)
    score = Mahalanobis.fit(known, LABELS, space=space, ridge=0)
    assert score(new).numpy() == pytest.approx(expected, rel=1e-8)
    assert score.ridge.item() == 0


def test_relative_mahalanobis_against_scipy() -> None:
    known, new, x, y = known_and_new()
    means = np.stack([x[k == LABELS].mean(0) for k in range(4)])
    within = np.linalg.inv(np.cov((x - means[LABELS]).T, bias=True))
    around = np.linalg.inv(np.cov(x.T, bias=True))
    expected = [
        mahalanobis(one, x.mean(0), around) ** 2 - min(mahalanobis(one, mean, within) ** 2 for mean in means)
        for one in y
    ]
    assert RelativeMahalanobis.fit(known, LABELS, ridge=0)(new).numpy() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("k", [1, 7, 120])
def test_knn_against_scikit_learn(k: int) -> None:
    known, new, x, y = known_and_new()
    unit = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in (x, y)]
    distances = NearestNeighbors(n_neighbors=k).fit(unit[0]).kneighbors(unit[1])[0]
    assert KNN.fit(known, k=k)(new).numpy() == pytest.approx(-distances[:, -1], abs=1e-7)


def test_knn_in_chunks_is_knn_at_once() -> None:
    known, new = draw_outputs(4000), draw_outputs(9000, seed=2)
    score = KNN.fit(known)
    assert 2**24 // 4000 < 9000
    torch.testing.assert_close(
        score(new), torch.cat([score(new.rows(slice(i, i + 1500))) for i in range(0, 9000, 1500)])
    )


def test_how_many_neighbours() -> None:
    assert KNN.fit(draw_outputs(120)).settings["k"] == 15  # half of a class's share
    assert KNN.fit(draw_outputs(4000)).settings["k"] == 50
    assert KNN.fit(draw_outputs(1)).settings["k"] == 1
    assert KNN.fit(draw_outputs(120), k=33).settings["k"] == 33
    with pytest.raises(
        ValueError, match="Expected `k` to be a whole number from 1 to 120, the size of the bank, but got 121"
    ):
        KNN.fit(draw_outputs(120), k=121)


def test_a_bank_keeps_no_more_than_asked() -> None:
    score = KNN.fit(draw_outputs(4000), bank=100)
    assert score.bank.shape == (100, 6)
    assert torch.equal(KNN.fit(draw_outputs(4000), bank=100, seed=0).bank, score.bank)
    assert not torch.equal(KNN.fit(draw_outputs(4000), bank=100, seed=1).bank, score.bank)
    for kind in (KNN, NNGuide):
        with pytest.raises(ValueError, match="Expected `bank` to be a positive whole number but got 0"):
            kind.fit(draw_outputs(), bank=0)


def test_nnguide_against_numpy() -> None:
    known, new, x, y = known_and_new()
    unit = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in (x, y)]
    energies = [special.logsumexp(outputs.logits.numpy(), axis=1) for outputs in (known, new)]
    products = np.sort(unit[1] @ (unit[0] * energies[0][:, None]).T, axis=1)[:, -5:]
    assert NNGuide.fit(known, k=5)(new).numpy() == pytest.approx(energies[1] * products.mean(1))


@pytest.mark.parametrize("dimensions", [0, 2, 5])
def test_vim_and_residual_against_scikit_learn(dimensions: int) -> None:
    known, new, x, y = known_and_new()
    weight, bias = head().get_parameter("weight").detach().numpy(), head().get_parameter("bias").detach().numpy()
    origin = -np.linalg.pinv(weight) @ bias
    # PCA centres its data; of a set and its mirror image about the origin the mean is the origin itself
    pca = PCA().fit(np.concatenate([x - origin, origin - x]))
    rest = pca.components_[dimensions:]
    outside = [np.linalg.norm((values - origin) @ rest.T, axis=1) for values in (x, y)]
    alpha = (x @ weight.T + bias).max(1).mean() / outside[0].mean()
    expected = special.logsumexp(y @ weight.T + bias, axis=1) - alpha * outside[1]
    assert Residual.fit(known, head=head(), dimensions=dimensions)(new).numpy() == pytest.approx(-outside[1])
    assert ViM.fit(known, head=head(), dimensions=dimensions)(new).numpy() == pytest.approx(expected)


def test_the_principal_space_has_the_authors_dimensions() -> None:
    assert [principal_dimensions(width) for width in (64, 512, 768, 1499, 2048)] == [32, 256, 512, 512, 1000]
    with pytest.raises(ValueError, match="Expected `dimensions` to be from 0 to 5 but got 6"):
        ViM.fit(draw_outputs(), head=head(), dimensions=6)


def test_kl_matching_against_scipy() -> None:
    known, new = draw_outputs(), draw_outputs(30, seed=2)
    p, q = (special.softmax(outputs.logits.numpy(), axis=1) for outputs in (known, new))
    templates = [p[p.argmax(1) == k].mean(0) for k in np.unique(p.argmax(1))]
    expected = -np.min([stats.entropy(q, template[None], axis=1) for template in templates], axis=0)
    assert KLMatching.fit(known)(new).numpy() == pytest.approx(expected)


def test_she_takes_the_correct_predictions_of_each_class() -> None:
    """By hand. Class 0 has a wrong one, class 1 only wrong ones, and class 2 has none at all."""
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [100.0, 7.0], [0.0, 4.0], [0.0, 6.0]])
    predicted, labels = torch.tensor([0, 0, 1, 0, 0]), torch.tensor([0, 0, 0, 1, 1])
    known = Outputs(features, features.norm(dim=1), *(torch.eye(3)[predicted],) * 3)
    fitted = SHE.fit(known, labels)
    assert fitted.patterns.tolist() == [[2, 0], [0, 5], [0, 0]]
    asked = torch.ones(3, 2)
    new = Outputs(asked, asked.norm(dim=1), *(torch.eye(3),) * 3)
    assert fitted(new).tolist() == [2, 5, 0]
    parts = [SHE.statistics(known.rows([i]), labels[[i]]) for i in range(5)]
    assert torch.equal(SHE.from_statistics(sum(parts[1:], parts[0])).patterns, fitted.patterns)


def test_she_against_numpy() -> None:
    known, new, x, y = known_and_new()
    labels = known.predictions.clone()
    labels[:30] = (labels[:30] + 1) % 4  # wrong ones, which do not count
    assert len(known.predictions.unique()) > 1
    predicted = known.predictions.numpy()
    right = predicted == labels.numpy()
    means = {k: x[right & (predicted == k)].mean(0) for k in np.unique(predicted[right])}
    kept = np.isin(new.predictions.numpy(), list(means))
    expected = [one @ means[int(k)] for one, k in zip(y[kept], new.predictions[kept], strict=True)]
    assert SHE.fit(known, labels)(new).numpy()[kept] == pytest.approx(expected)


def test_fdbd_measures_the_way_to_the_boundary() -> None:
    """A step of that length along the normal brings two logits level."""
    known, new, x, y = known_and_new()
    weight, bias = head().get_parameter("weight").detach().numpy(), head().get_parameter("bias").detach().numpy()
    expected = []
    for one in y:
        top = int((weight @ one + bias).argmax())
        steps = []
        for k in range(4):
            if k != top:
                normal = (weight[top] - weight[k]) / np.linalg.norm(weight[top] - weight[k])
                step = stats.linregress(
                    [0, 1], [(weight[top] - weight[k]) @ (one - t * normal) + bias[top] - bias[k] for t in (0, 1)]
                )
                steps.append(-step.intercept / step.slope)
        expected.append(np.mean(steps) / np.linalg.norm(one - x.mean(0)))
    assert FDBD.fit(known, head=head())(new).numpy() == pytest.approx(expected)


def test_max_cosine_against_numpy() -> None:
    _, new, _, y = known_and_new()
    weight = head().get_parameter("weight").detach().numpy()
    cosines = y @ weight.T / np.linalg.norm(y, axis=1)[:, None] / np.linalg.norm(weight, axis=1)
    assert max_cosine(new, head()).numpy() == pytest.approx(cosines.max(1))
    cosine = head_of("cosine")
    with torch.no_grad():
        outputs = cosine.outputs(features_of())
    torch.testing.assert_close(max_cosine(outputs, cosine), outputs.similarities.amax(1))


@pytest.mark.parametrize("top", [1, 3, 4, 100])
def test_gen_against_numpy(top: int) -> None:
    outputs = draw_outputs()
    p = np.sort(special.softmax(outputs.logits.numpy(), axis=1), axis=1)[:, ::-1][:, :top]
    assert gen(outputs, top=top).numpy() == pytest.approx(-np.log((p**0.1 * (1 - p) ** 0.1).sum(1)))
    sure = Outputs.from_logits(torch.tensor([[40.0, 0.0], [30.0, 0.0]]))
    values = gen(sure)
    assert values[0] > values[1], "confidences that both round to 1 in float32 still differ"
    several: list[dict[str, Any]] = [{"gamma": 0.0}, {"gamma": 1.5}, {"top": 0}]
    for wrong in several:
        with pytest.raises(ValueError, match=r"Expected `(gamma|top)`"):
            gen(outputs, **wrong)


def test_gen_reads_the_hundred_largest_of_a_thousand_classes() -> None:
    logits = torch.linspace(0, 3, 1000, dtype=torch.float64)[torch.randperm(1000)][None]
    p = np.sort(special.softmax(logits.numpy(), axis=1), axis=1)[:, -100:]
    assert gen(Outputs.from_logits(logits)).numpy() == pytest.approx(-np.log((p**0.1 * (1 - p) ** 0.1).sum(1)))


@pytest.mark.parametrize("bank", [255, 256, 300, 1000])
def test_the_largest_of_long_rows_are_those_of_a_sort(bank: int) -> None:
    """From 4 k groups of 64 on the search goes by groups; values that occur twice count twice."""
    vectors = torch.randn(bank, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(bank)).round()
    queries = torch.eye(3, dtype=torch.float64)
    expected = (queries @ vectors.T).sort(descending=True).values
    for k in (1, 2, 3):
        assert torch.equal(largest_products(queries, vectors, k), expected[:, :k])


def test_ranks_against_scipy() -> None:
    held, new = draw_outputs(99, seed=3), draw_outputs(30, seed=2)
    known = draw_outputs()
    near = KNN.fit(known)
    expected = {}
    scores: dict[str, Score] = {"g": g, "h": h, "knn": near}
    for name, score in scores.items():
        reference, values = score(held).numpy(), score(new).numpy()
        below = stats.percentileofscore(reference, values, kind="weak") * 99 / 100
        expected[name] = np.log((1 + below) / 100)
    both = expected["g"] + expected["h"]
    assert Fisher.fit(known, reference=held)(new).numpy() == pytest.approx(both)
    assert Fisher.fit(held)(new).numpy() == pytest.approx(both)
    assert Prism.fit(known, reference=held)(new).numpy() == pytest.approx(both + expected["knn"])
    with pytest.raises(ValueError, match="Expected `reference` to be held-out ID Outputs but got None"):
        Prism.fit(known, reference=None)  # type: ignore[arg-type]


@given(st.integers(1, 60), st.integers(0, 99), st.booleans())
def test_a_p_value_is_no_smaller_than_it_claims(n: int, seed: int, ties: bool) -> None:
    """Leaving each of n + 1 exchangeable values out in turn, at most a share t of them has p ≤ t."""
    values = torch.randn(n + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values = values.round() if ties else values
    p = torch.stack([p_value(torch.cat([values[:i], values[i + 1 :]]).sort().values, values[i]) for i in range(n + 1)])
    for t in p:
        assert float((p <= t).double().mean()) <= float(t) + 1e-12


def test_two_sided_g_sees_norms_that_rise() -> None:
    held, inside = draw_outputs(200, seed=3), draw_outputs(200, seed=4)
    louder, quieter = (outputs_with_norms(draw_outputs(200, seed=5), factor) for factor in (3.0, 0.3))
    score = GTwoSided.fit(held)
    assert auroc(g(inside), g(louder)) == 0
    assert auroc(score(inside), score(louder)) > 0.97
    assert auroc(score(inside), score(quieter)) > 0.97
    assert float(score(held).max()) == 1


def outputs_with_norms(outputs: Outputs, factor: float) -> Outputs:
    return outputs._replace(features=factor * outputs.features, norms=factor * outputs.norms)


def statistics_of(name: str, outputs: Outputs, labels: Tensor) -> Any:
    return SCORES[name].implementation.statistics(outputs, labels, **SCORES[name].settings)  # type: ignore[union-attr]


def from_statistics(name: str, statistics: Any) -> Callable[[Outputs], Tensor]:
    needed = {"head": head()} if "head" in SCORES[name].reads else {}
    kind: Any = SCORES[name].implementation
    score = kind.from_statistics(statistics, dtype=torch.float64, **SCORES[name].settings, **needed)
    assert isinstance(score, Fitted)
    return score


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("cuts", [(60,), (1, 5, 119), (30, 31, 32)])
def test_parts_merge_to_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    """Whatever the parts, some of them too small for a covariance or without some of the classes."""
    known, new = draw_outputs(), draw_outputs(30, seed=2)
    edges = [0, *cuts, 120]
    parts = [statistics_of(name, known.rows(slice(a, b)), LABELS[a:b]) for a, b in pairwise(edges)]
    whole = SCORES[name].fit(known, LABELS, head=head())(new)
    torch.testing.assert_close(from_statistics(name, sum(parts))(new), whole, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(from_statistics(name, sum(parts[::-1]))(new), whole, rtol=1e-7, atol=1e-7)


def test_merging_keeps_digits_far_from_zero() -> None:
    """Sums of squares about 0 would lose a variance of 1 beside a mean of 1e9."""
    values = features_of(100, 3)
    labels = torch.arange(100) % 4
    outputs = [
        Outputs(*(torch.zeros(100, 4, dtype=torch.float64),) * 5)._replace(features=values + far) for far in (0, 1e9)
    ]
    near, far = (
        sum(Mahalanobis.statistics(o.rows(slice(i, i + 25)), labels[i : i + 25]) for i in range(0, 100, 25))
        for o in outputs
    )
    assert not isinstance(near, int)
    assert not isinstance(far, int)
    torch.testing.assert_close(far.scatter, near.scatter, rtol=1e-5, atol=1e-5)


def test_statistics_of_different_models_do_not_add() -> None:
    with pytest.raises(ValueError, match="Expected `statistics` to be of one model and one score"):
        Mahalanobis.statistics(draw_outputs(), LABELS) + Mahalanobis.statistics(draw_outputs(width=8), LABELS)


def test_statistics_do_not_grow_with_the_data() -> None:
    few, many = (Mahalanobis.statistics(draw_outputs(n), torch.arange(n) % 4) for n in (8, 9000))
    assert few.scatter.shape == many.scatter.shape == (6, 6)


def test_fewer_samples_than_features_report_their_ridge() -> None:
    known, new = draw_outputs(5, width=40), draw_outputs(20, seed=2, width=40)
    for name in ("mahalanobis", "relative_mahalanobis", "gmm"):
        score = SCORES[name].fit(known, [0, 0, 0, 1, 1])
        assert isinstance(score, Fitted)
        assert (score.get_buffer("ridge") > 0).all()
        assert score(new).isfinite().all()
    # asked for none, the covariance still gets the least with which it can be factorised
    none = Mahalanobis.fit(known, [0, 0, 0, 1, 1], ridge=0)
    spread = float((known.features - known.features.mean(0)).square().mean())
    assert 0 < none.ridge.item() < 1e-6 * spread


def test_one_class_is_one_gaussian() -> None:
    known, new, x, y = known_and_new()
    one = known._replace(logits=known.logits[:, :1], raw=known.raw[:, :1])
    other = new._replace(logits=new.logits[:, :1], raw=new.raw[:, :1])
    labels = torch.zeros(120, dtype=torch.long)
    expected = stats.multivariate_normal(x.mean(0), np.cov(x.T)).logpdf(y)
    assert GaussianMixture.fit(one, labels, ridge=0)(other).numpy() == pytest.approx(expected)
    distances = EmpiricalCovariance().fit(x).mahalanobis(y)
    assert Mahalanobis.fit(one, labels, ridge=0)(other).numpy() == pytest.approx(-distances)
    assert RelativeMahalanobis.fit(one, labels)(other).numpy() == pytest.approx(0, abs=1e-6)


def test_a_class_with_one_sample_borrows_and_one_without_is_left_out() -> None:
    known, new = draw_outputs(), draw_outputs(30, seed=2)
    kept = (LABELS != 3) & ((LABELS != 2) | (torch.arange(120) == 2))
    some, labels = known.rows(kept), LABELS[kept]
    score = GaussianMixture.fit(some, labels, ridge=0)
    assert score.borrowed.tolist() == [False, False, True]
    x, y = some.features.numpy(), new.features.numpy()
    numbers = labels.numpy()
    covariances = [np.cov(x[numbers == k].T) for k in (0, 1)]
    pooled = (29 * covariances[0] + 29 * covariances[1]) / 58
    pairs = zip(range(3), [*covariances, pooled], strict=True)
    densities = [stats.multivariate_normal(x[numbers == k].mean(0), c).logpdf(y) for k, c in pairs]
    assert score(new).numpy() == pytest.approx(special.logsumexp(densities, axis=0))
    assert len(Mahalanobis.fit(some, labels).means) == 3


@pytest.mark.parametrize("copies", [1, 3, 50])
def test_data_without_spread_have_unit_covariance(copies: int) -> None:
    """Three times 0.1 has another mean than 0.1, in floating point; that is no spread."""
    same = draw_outputs().rows([0] * copies + [1] * copies)
    for kind in (Mahalanobis, GaussianMixture):
        score = kind.fit(same, [0] * copies + [1] * copies)
        assert score.ridge.min().item() == 1
        near = same.rows([0])._replace(features=same.features[:1] + 0.5)
        fall = float(score(same)[0] - score(near)[0])
        assert fall == pytest.approx(6 * 0.25 / (1 if kind is Mahalanobis else 2), rel=1e-3)


@pytest.mark.parametrize("ridge", [-1.0, math.nan, math.inf])
def test_a_ridge_must_be_a_finite_number(ridge: float) -> None:
    for kind in (Mahalanobis, RelativeMahalanobis, GaussianMixture):
        with pytest.raises(ValueError, match="Expected `ridge` to be a finite number from 0 on"):
            kind.fit(draw_outputs(), LABELS, ridge=ridge)


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_leaves_its_data_alone_and_keeps_no_graph(name: str) -> None:
    known = draw_outputs()
    before = [field.clone() for field in known]
    grown = Outputs(*(field.clone().requires_grad_() for field in known))
    score = SCORES[name].fit(grown, LABELS, head=head(), reference=grown, shifted=grown)
    assert isinstance(score, Fitted)
    assert not any(buffer.requires_grad for buffer in score.buffers())
    assert all(torch.equal(a, b) for a, b in zip(before, grown, strict=True))


@pytest.mark.parametrize("name", [name for name in FITTED if "labels" in SCORES[name].needs])
def test_wrong_labels_are_refused(name: str) -> None:
    for labels, problem in (([0, 1], r"of shape \(120,\)"), ([4] * 120, "between 0 and 3"), ([0.5] * 120, "whole")):
        with pytest.raises(ValueError, match=f"Expected `labels` to be {problem}"):
            SCORES[name].fit(draw_outputs(), labels)
    with pytest.raises(ValueError, match=f"Expected `labels` to be given for {name}"):
        SCORES[name].fit(draw_outputs())


@pytest.mark.parametrize("name", FITTED)
def test_outputs_of_another_model_are_refused(name: str) -> None:
    same = draw_outputs()
    score = SCORES[name].fit(same, LABELS, head=head(), reference=same, shifted=same)
    assert isinstance(score, Fitted)
    reads_features = {"features", "style"} & set(SCORES[name].reads)
    width = 6 if reads_features else 4
    if not any(width in buffer.shape for buffer in score.buffers()):
        return  # it reads norms or similarities, which have no width of their own
    other = draw_outputs(width=8) if reads_features else Outputs.from_logits(torch.zeros(3, 7))
    with pytest.raises(
        ValueError, match=r"Expected `outputs` to be of \d (features|classes|logits|style statistics) but got \d"
    ):
        score(other)


@pytest.mark.parametrize("name", ["vim", "residual", "fdbd"])
def test_a_head_that_does_not_fit_is_refused_with_what_does(name: str) -> None:
    euclidean = head_of("euclidean")
    with torch.no_grad():
        outputs = euclidean.outputs(features_of())
    with pytest.raises(ValueError, match=r"it takes a linear head \(vanilla, alpha, .*\) and its own Outputs"):
        SCORES[name].fit(outputs, head=euclidean)
    for wrong in (nn.ReLU(), nn.Linear(5, 4)):
        with pytest.raises(ValueError, match=r"Expected `head` to be one with class weights of shape \(K, 6\)"):
            SCORES[name].fit(draw_outputs(), head=wrong)
    with pytest.raises(ValueError, match=f"Expected `head` to be given for {name}"):
        SCORES[name].fit(draw_outputs())
