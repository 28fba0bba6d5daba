"""Shifted copies of one's own images: under the extras only, at any size, one at a time."""

import pytest
import torch

from shiftprism.corruptions import CORRUPTIONS, EXTRA, OWN_EXTRA, corrupt
from shiftprism.shifts import make_shifted_copies
from test_corruptions import clean

GREY = ("saturate", "colour_cast", "chromatic_shift")


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 40, 56)])
def test_a_copy_for_every_extra_and_severity(shape: tuple[int, int, int]) -> None:
    images = clean(3, *shape)
    copies = list(make_shifted_copies(images))
    names = [name for name in (*EXTRA, *OWN_EXTRA) if shape[0] == 3 or name not in GREY]
    found = {(copy.name, copy.severity) for copy in copies}
    missing = {(name, severity) for name in names for severity in range(1, 6)} - found
    assert {name for name, _ in missing} <= {"spatter"}  # drops may miss an image of 8 × 8
    assert len(found) == len(copies)
    for copy in copies:
        assert copy.images.shape == images.shape
        assert torch.equal(copy.images, corrupt(images, copy.name, copy.severity))


def test_seeds_severities_and_parameters_are_passed_on() -> None:
    images, seeds = clean(3), torch.tensor([9, 8, 7])
    (copy,) = make_shifted_copies(images, ["speckle_noise"], [2], seeds=seeds, parameters="imagenet")
    assert torch.equal(copy.images, corrupt(images, "speckle_noise", 2, seeds, parameters="imagenet"))


def test_copies_are_made_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plain = CORRUPTIONS["gamma"].effect

    def count(images: torch.Tensor, severity: int, draws: object) -> torch.Tensor:
        made.append(severity)
        return plain(images, severity, draws)  # type: ignore[arg-type]

    monkeypatch.setitem(CORRUPTIONS, "gamma", CORRUPTIONS["gamma"].__class__("gamma", 19, count))
    copies = make_shifted_copies(clean(1), ["gamma"])
    assert made == []
    next(copies)
    assert made == [1]


def test_what_tests_a_model_is_not_fitted_to() -> None:
    with pytest.raises(ValueError, match="Expected `names` to be extra corruptions but got fog; take some of speckle"):
        make_shifted_copies(clean(1), ["gamma", "fog"])
    with pytest.raises(ValueError, match="Expected `names` to be corruptions but got rust"):
        make_shifted_copies(clean(1), ["rust"])
    with pytest.raises(ValueError, match="Expected `severities` to be from 1 to 5 but got 0"):
        make_shifted_copies(clean(1), severities=[0])
    with pytest.raises(ValueError, match=r"Expected `images` to be a tensor of torch\.uint8"):
        make_shifted_copies(clean(1).float())
