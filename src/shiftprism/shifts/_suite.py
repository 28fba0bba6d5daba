"""The suites by name: the paper's for the two CIFARs, and the same three for any data set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import choice, wrong
from shiftprism.corruptions import COMMON
from shiftprism.datasets import Dataset, load
from shiftprism.datasets._cifar import CIFAR10_NAMES, CIFAR100_NAMES
from shiftprism.datasets._images import resized
from shiftprism.shifts._names import check_apart
from shiftprism.shifts._shift import Shift, check_corruptions, concept, corrupted_shifts, covariate, near_far
from shiftprism.shifts._splits import CIFAR10_SPLITS, CIFAR100_SPLITS
from shiftprism.shifts._vectors import Vectors, concept_splits

Others = str | Sequence[str] | Mapping[str, Dataset]
_FAR = ("svhn", "tiny-imagenet")
_NEAR = {CIFAR10_NAMES: "cifar100", CIFAR100_NAMES: "cifar10"}
_TABLES = {(CIFAR10_NAMES, CIFAR100_NAMES): CIFAR100_SPLITS, (CIFAR100_NAMES, CIFAR10_NAMES): CIFAR10_SPLITS}


class Wish(NamedTuple):
    """What `suite` was asked for."""

    data: Dataset
    near: Others | None
    far: Others | None
    corrupted: str | None
    corruptions: Sequence[str]
    vectors: Vectors | str | Path | None
    groups: int
    split: str
    root: str | Path | None

    def load(self, *groups: Others) -> list[dict[str, Dataset]]:
        """Data sets by name, in the shape of the model's images; all that are missing are named in one error."""
        found: list[dict[str, Dataset]] = []
        absent: list[str] = []
        for others in groups:
            named = others if isinstance(others, Mapping) else self._opened(others, absent)
            found.append({name: fitted(data, self.data.images, name) for name, data in named.items()})
        if absent:
            raise FileNotFoundError("\n".join(absent))
        return found

    def _opened(self, names: "str | Sequence[str]", absent: list[str]) -> dict[str, Dataset]:
        height, width = self.data.images.shape[2:]
        found = {}
        for name in (names,) if isinstance(names, str) else names:
            try:
                found[name] = load(name, self.split, self.root, height if height == width else None)
            except FileNotFoundError as error:
                absent.append(str(error))
        return found


def suite(
    name: str,
    data: "str | Dataset",
    *,
    near: Others | None = None,
    far: Others | None = None,
    corrupted: str | None = None,
    corruptions: Sequence[str] = COMMON,
    vectors: "Vectors | str | Path | None" = None,
    groups: int = 10,
    split: str = "test",
    root: "str | Path | None" = None,
) -> Iterator[Shift]:
    """The shifts of the suite `name` for a model trained on `data`, the test images of which are given or named.

    - "covariate": each of `corruptions` at five severities; made here, or read from `corrupted`, a folder in the layout
      of CIFAR-10-C or the name "cifar10-c".
    - "concept-splits": the classes of `near` in a ladder of `groups` steps away from those of `data`, by word `vectors`
      (see `concept_splits`). Between the two CIFARs a table is taken where no vectors are given: the paper's.
    - "near-far": the data sets `near` (other classes in the same style) and `far` (another style too).

    `near` and `far` are names that `load` knows, or `{name: Dataset}`; for the CIFARs they are each other, and SVHN and
    Tiny ImageNet. They are brought to the size and the channels of `data`. Whatever is missing or does not fit is an
    error here, before any work is done; corrupted images are made only when a shift is asked for them. A suite reads
    the options that concern it, so that the same ones may be given to all three.

    >>> from shiftprism.shifts import hold_out
    >>> known, unseen = hold_out(load("digits", "test"), ["7", "8", "9"])
    >>> [shift.name for shift in suite("near-far", known, near={"unseen digits": unseen})]
    ['unseen digits']
    >>> len(list(suite("covariate", known)))
    75
    """
    choice("name", name, SUITES)
    given = load(data, split, root) if isinstance(data, str) else data.check()
    return SUITES[name](Wish(given, near, far, corrupted, corruptions, vectors, groups, split, root))


def _covariate(wish: Wish) -> Iterator[Shift]:
    if wish.corrupted is None:
        return covariate(wish.data, wish.corruptions)
    severities = (1, 2, 3, 4, 5)
    check_corruptions(wish.corruptions, severities)
    make = partial(_read_corrupted, wish)
    for name in wish.corruptions:
        make(name, severities[0])  # a view, which costs nothing
    return corrupted_shifts(wish.corruptions, severities, make)


def _read_corrupted(wish: Wish, name: str, severity: int) -> Dataset:
    """A corrupted set from its files, with the class names of the clean one: the layout itself has none."""
    found = load(f"{wish.corrupted}/{name}/{severity}", "test", wish.root)
    clean = wish.data
    if found.images.shape[1:] != clean.images.shape[1:] or int(found.labels.max()) >= len(clean.names):
        got = f"{_shape(found.images)} with labels to {int(found.labels.max())} in {wish.corrupted}"
        expected = f"images of {_shape(clean.images)} with labels to {len(clean.names) - 1}"
        raise wrong("corrupted", expected, got, "make it from the same data with `shiftprism corrupt`")
    return found._replace(names=clean.names)


def _concept_splits(wish: Wish) -> Iterator[Shift]:
    near = wish.near if wish.near is not None else _NEAR.get(wish.data.names)
    if not near:
        advice = "give a data set of unseen classes, such as those that hold_out(…) keeps back"
        raise wrong("near", "given for data that is not CIFAR", "nothing", advice)
    (found,) = wish.load(near)
    if len(found) != 1:
        raise wrong("near", "one data set", ", ".join(found), "make one ladder for each")
    ((name, unseen),) = found.items()
    check_apart(wish.data.names, unseen.names, name)
    return concept(unseen, _splits(wish, unseen), f"{name}-splits")


def _splits(wish: Wish, unseen: Dataset) -> Mapping[int, Sequence[str]]:
    if wish.vectors is not None:
        return concept_splits(wish.data.names, unseen.names, wish.vectors, wish.groups)
    table = _TABLES.get((wish.data.names, unseen.names))
    if table is None:
        advice = "give a GloVe text file or an .npz of word vectors; only between the two CIFARs there is a table"
        raise wrong("vectors", "given for these classes", "nothing", advice)
    return table


def _near_far(wish: Wish) -> Iterator[Shift]:
    near = wish.near if wish.near is not None else _NEAR.get(wish.data.names, ())
    far = wish.far if wish.far is not None else _FAR if wish.data.names in _NEAR else ()
    if not near and not far:
        advice = "name the data sets, or give them as {name: Dataset}"
        raise wrong("near", "given, or `far`, for data that is not CIFAR", "neither", advice)
    return near_far(wish.data.names, *wish.load(near, far))


def fitted(data: Dataset, like: Tensor, where: str) -> Dataset:
    """The data set with images of the channels and the size of `like`; only squares are scaled."""
    images, channels, (height, width) = data.images, like.shape[1], like.shape[2:]
    if images.shape[2:] != (height, width):
        if height != width:
            advice = "resize them first: only square images are scaled here"
            raise wrong(where, f"images of {height} × {width} pixels", _shape(images), advice)
        images = torch.from_numpy(resized(images.numpy(), height))
    if images.shape[1] == 1 and channels == 3:
        images = images.expand(-1, 3, -1, -1)
    elif images.shape[1] == 3 and channels == 1:
        images = _grey(images)
    return data._replace(images=images)


def _grey(images: Tensor) -> Tensor:
    """(N, 1, H, W): the luma of ITU-R 601 in 16-bit fixed point, as Pillow's mode L has it."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32)[:, None, None]
    lumas = [(part * weights).sum(1, keepdim=True) + 0x8000 >> 16 for part in images.split(1000)]
    return torch.cat(lumas).to(torch.uint8)


def _shape(images: Tensor) -> str:
    return " × ".join(str(side) for side in images.shape[1:])


SUITES: dict[str, Callable[[Wish], Iterator[Shift]]] = {
    "covariate": _covariate,
    "concept-splits": _concept_splits,
    "near-far": _near_far,
}
"""The suites that `suite` knows by name."""
