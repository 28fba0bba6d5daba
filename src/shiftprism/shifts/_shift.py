"""The type of a shift, and functions that make shifts from data sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from shiftprism._checks import wrong
from shiftprism.corruptions import COMMON, CORRUPTIONS, describe_parameters, find_corruption, frost_source
from shiftprism.datasets import Dataset
from shiftprism.rows import Kind
from shiftprism.shifts._names import check_disjoint


class Shift(NamedTuple):
    """A shifted data set. `make` creates its images, so a suite of many shifts fits in memory."""

    name: str
    kind: Kind
    severity: int
    """1 to 5 for a corruption, 1 to the number of groups for a concept split, 0 where there is no scale."""
    make: Callable[[], Dataset]
    about: str = ""
    """For corrupted images that are made here: whose parameters their severity has."""


def covariate(
    data: Dataset,
    names: Sequence[str] = COMMON,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    parameters: str = "auto",
) -> Iterator[Shift]:
    """Each corruption at each severity, of the same labelled images. Image i always has seed i.

    `parameters` are those of `corruptions.corrupt`: "auto" fits the severities to the size of the images.

    >>> from shiftprism.datasets import load
    >>> blurred, worse = covariate(load("digits", "test"), ["motion_blur"], [1, 5])
    >>> worse.name, worse.severity, worse.make().images.shape
    ('motion_blur', 5, torch.Size([596, 1, 8, 8]))
    """
    check_corruptions(names, severities)
    about = describe_parameters(min(data.images.shape[2:]), parameters)
    seeds = torch.arange(len(data.images))

    def make(name: str, severity: int) -> Dataset:
        corruption = find_corruption(name, parameters=parameters)
        return data._replace(images=corruption(data.images, severity, seeds))

    return corrupted_shifts(names, severities, make, about)


def check_corruptions(names: Sequence[str], severities: Sequence[int]) -> None:
    """An error if a name or a severity is unknown: before any work, not hours later."""
    unknown = sorted(set(names) - set(CORRUPTIONS))
    if unknown:
        raise wrong("names", "corruptions", ", ".join(unknown), f"there are {', '.join(CORRUPTIONS)}")
    if unknown_severities := sorted(set(severities) - {1, 2, 3, 4, 5}):
        raise wrong("severities", "from 1 to 5", unknown_severities[0], "choose among the five of CIFAR-C")


def corrupted_shifts(
    names: Sequence[str], severities: Sequence[int], make: Callable[[str, int], Dataset], about: str = ""
) -> Iterator[Shift]:
    """A shift for each corruption and severity, made by `make(name, severity)`."""
    for name in names:
        for severity in severities:
            source = f"; {frost_source()} frost" if name == "frost" and about else ""
            yield Shift(name, "covariate", severity, partial(make, name, severity), about + source)


def concept(unseen: Dataset, splits: Mapping[int, Sequence[str]], name: str = "concept-splits") -> Iterator[Shift]:
    """A shift for each group of classes of `unseen`, from the closest to the known classes to the farthest.

    `splits` is `CIFAR100_SPLITS` or what `concept_splits` returns: {0: the farthest classes, …, G − 1: the closest}.
    Severity s is group G − s, so severity 1 is the closest.

    >>> from shiftprism.datasets import load
    >>> known, unseen = hold_out(load("digits", "test"), ["7", "8", "9"])
    >>> [(shift.severity, shift.make().names) for shift in concept(unseen, {0: ["8"], 1: ["9", "7"]})]
    [(1, ('7', '9')), (2, ('8',))]
    """
    if not splits or sorted(splits) != list(range(len(splits))) or not all(splits.values()):
        raise wrong("splits", "classes for each group 0, 1, …", f"groups {sorted(splits)}", "number them without gaps")
    listed = [name for names in splits.values() for name in names]
    if len(set(listed)) < len(listed):
        twice = sorted({name for name in listed if listed.count(name) > 1})
        raise wrong("splits", "groups without a class in common", f"{', '.join(twice)} twice", "keep one of them")
    if absent := sorted(set(listed) - set(unseen.names)):
        raise wrong("splits", "classes of `unseen`", ", ".join(absent), f"it has {', '.join(unseen.names)}")
    return _split_shifts(unseen, splits, name)


def _split_shifts(unseen: Dataset, splits: Mapping[int, Sequence[str]], name: str) -> Iterator[Shift]:
    for severity in range(1, len(splits) + 1):
        names = list(splits[len(splits) - severity])
        yield Shift(name, "concept", severity, partial(unseen.only, names))


def near_far(
    id_names: Sequence[str], near: Mapping[str, Dataset] | None = None, far: Mapping[str, Dataset] | None = None
) -> Iterator[Shift]:
    """Other data sets as shifts: `near` ones have other classes in the same style, `far` ones differ in both.

    A class that is also in `id_names` is an error, because it would not be a concept shift.
    """
    kinds: list[tuple[Mapping[str, Dataset], Kind]] = [(near or {}, "concept"), (far or {}, "both")]
    for others, _ in kinds:
        for name, data in others.items():
            check_disjoint(id_names, data.names, name)
    return (Shift(name, kind, 0, partial(_identity, data)) for others, kind in kinds for name, data in others.items())


def _identity(data: Dataset) -> Dataset:  # a lambda could not be pickled and sent to another process
    return data


def hold_out(data: Dataset, unseen: Sequence[str]) -> tuple[Dataset, Dataset]:
    """(the classes to train on, the unseen classes). Nothing but the classes differs, so this is pure concept shift."""
    if not unseen:
        raise wrong("unseen", "at least one class", "none", f"there are {', '.join(data.names)}")
    seen = [name for name in data.names if name not in set(unseen)]
    if not seen:
        raise wrong("unseen", "fewer than all classes", ", ".join(unseen), "keep at least one class to train on")
    return data.only(seen), data.only(list(unseen))
