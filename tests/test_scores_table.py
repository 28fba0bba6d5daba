"""`SCORES`: what it says about each score, one call that fits any of them, and errors that say what is missing."""

import pytest
import torch

from examples import head_of, outputs_of
from shiftprism.scores import SCORES, Fitted, energy, g

NAMES = """g h u msp max_logit energy entropy kl_uniform max_similarity max_cosine mahalanobis mahalanobis_logits
relative_mahalanobis gmm knn vim residual kl_matching nnguide fdbd she gen fisher g_two_sided prism style spectrum"""


def test_every_name_is_there_with_its_facts() -> None:
    assert set(NAMES.split()) <= set(SCORES)
    for name, entry in SCORES.items():
        assert entry.name == name
        assert entry.formula
        assert entry.paper
        assert entry.reads
        assert set(entry.reads) <= {"features", "logits", "style", "images", "head"}
        assert entry.fitted == (isinstance(entry.implementation, type) and issubclass(entry.implementation, Fitted))


def test_what_a_fit_cannot_do_without() -> None:
    needs = {name: entry.needs for name, entry in SCORES.items() if entry.needs}
    assert needs["mahalanobis"] == needs["gmm"] == needs["she"] == ("labels",)
    assert needs["vim"] == needs["fdbd"] == needs["residual"] == needs["max_cosine"] == ("head",)
    assert needs["prism"] == ("reference",)
    assert needs["style"] == ("shifted",)
    assert "knn" not in needs
    assert all("head" in SCORES[name].reads for name, needed in needs.items() if "head" in needed)


def test_a_ready_score_is_called_by_its_entry() -> None:
    outputs = outputs_of()
    assert torch.equal(SCORES["g"](outputs), g(outputs))
    assert torch.equal(SCORES["energy"](outputs, temperature=2.0), energy(outputs, 2.0))
    assert torch.equal(SCORES["energy"].fit(outputs, temperature=2.0)(outputs), energy(outputs, 2.0))
    assert SCORES["g"].ready
    assert not SCORES["knn"].ready
    assert not SCORES["max_cosine"].ready


def test_a_fitted_score_asked_at_once_says_how() -> None:
    with pytest.raises(ValueError, match=r"got knn, which is fitted to data first; use SCORES\["):
        SCORES["knn"](outputs_of())
    with pytest.raises(ValueError, match="Expected `head` to be given for max_cosine but got none"):
        SCORES["max_cosine"](outputs_of())
    head = head_of("vanilla")
    assert SCORES["max_cosine"](outputs_of(), head=head).shape == (20,)


def test_the_kernel_distance_is_a_duq_heads_alone() -> None:
    duq, linear = head_of("duq"), head_of("vanilla")
    outputs = outputs_of("duq")
    assert torch.equal(SCORES["kernel"](outputs, head=duq), outputs.logits.amax(1))
    with pytest.raises(ValueError, match=r"Expected `head` to be one with kernels \(duq\) but got Linear; train with"):
        SCORES["kernel"].fit(outputs_of(), head=linear)(outputs_of())


def test_what_is_missing_for_a_fit_is_named() -> None:
    with pytest.raises(ValueError, match="Expected `labels` to be given for gmm but got None"):
        SCORES["gmm"].fit(outputs_of())
    with pytest.raises(ValueError, match="Expected `reference` to be given for prism but got None; pass ID Outputs"):
        SCORES["prism"].fit(outputs_of())
    assert isinstance(SCORES["knn"].fit(outputs_of(), k=3), Fitted)
