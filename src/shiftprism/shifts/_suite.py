"""The suites of shifts: the paper's for the two CIFARs, and the same three for any data set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import choice, wrong
from shiftprism.corruptions import COMMON
from shiftprism.datasets import CIFAR10_NAMES, CIFAR100_NAMES, Dataset, load, resize
from shiftprism.shifts._names import check_disjoint
from shiftprism.shifts._shift import Shift, check_corruptions, concept, corrupted_shifts, covariate, near_far
from shiftprism.shifts._splits import CIFAR10_SPLITS, CIFAR100_SPLITS
from shiftprism.shifts._vectors import Vectors, concept_splits

Others = str | Sequence[str] | Mapping[str, Dataset]
"""Other data sets: names that `load` knows, or data sets by name."""
# What the paper compares the CIFARs with.
_FAR = ("svhn", "tiny-imagenet")
_NEAR = {CIFAR10_NAMES: "cifar100", CIFAR100_NAMES: "cifar10"}
_TABLES = {(CIFAR10_NAMES, CIFAR100_NAMES): CIFAR100_SPLITS, (CIFAR100_NAMES, CIFAR10_NAMES): CIFAR10_SPLITS}


class Request(NamedTuple):
    """The arguments of `suite`."""

    data: Dataset
    near: Others | None
    far: Others | None
    corrupted: str | None
    corruptions: Sequence[str]
    parameters: str
    vectors: Vectors | str | Path | None
    groups: int
    split: str
    root: str | Path | None

    def load(self, *groups: Others) -> list[dict[str, Dataset]]:
        """Data sets by name, in the shape of the model's images. One error names all that are missing."""
        loaded: list[dict[str, Dataset]] = []
        missing: list[str] = []
        for others in groups:
            named = others if isinstance(others, Mapping) else self._load_names(others, missing)
            loaded.append({name: match_images(data, self.data.images, name) for name, data in named.items()})
        if missing:
            raise FileNotFoundError("\n".join(missing))
        return loaded

    def _load_names(self, names: "str | Sequence[str]", missing: list[str]) -> dict[str, Dataset]:
        # Folders are decoded at this size and cached; `match_images` then has nothing left to scale.
        height, width = self.data.images.shape[2:]
        loaded = {}
        for name in (names,) if isinstance(names, str) else names:
            try:
                loaded[name] = load(name, self.split, self.root, height if height == width else None)
            except FileNotFoundError as error:
                missing.append(str(error))
        return loaded


def suite(
    name: str,
    data: "str | Dataset",
    *,
    near: Others | None = None,
    far: Others | None = None,
    corrupted: str | None = None,
    corruptions: Sequence[str] = COMMON,
    parameters: str = "auto",
    vectors: "Vectors | str | Path | None" = None,
    groups: int = 10,
    split: str = "test",
    root: "str | Path | None" = None,
) -> Iterator[Shift]:
    """The shifts of the suite `name` for a model trained on `data`, which is a `Dataset` of test images or its name.

    - "covariate": each of `corruptions` at five severities. The images are made here, with the `parameters` that fit
      their size or with those of "cifar" or "imagenet", or read from `corrupted`: a folder in the layout of CIFAR-10-C,
      or the name "cifar10-c".
    - "concept-splits": the classes of `near` in `groups` groups, by the similarity of their word `vectors` to those of
      the classes of `data` (see `concept_splits`). Between the two CIFARs no vectors are needed: the paper has a table.
    - "near-far": the data sets `near` (other classes in the same style) and `far` (another style too).

    `near` and `far` are names that `load` knows, or `{name: Dataset}`. By default the CIFARs are near each other, and
    SVHN and Tiny ImageNet are far. Other data sets get the size and the channels of `data`. If something is missing or
    does not fit, `suite` raises an error before any work is done. Corrupted images are made only when `make()` of a
    shift is called. A suite ignores the options of the other suites, so one set of options serves all three.

    >>> from shiftprism.shifts import hold_out
    >>> known, unseen = hold_out(load("digits", "test"), ["7", "8", "9"])
    >>> [shift.name for shift in suite("near-far", known, near={"unseen digits": unseen})]
    ['unseen digits']
    >>> len(list(suite("covariate", known)))
    75
    """
    choice("name", name, SUITES)
    request = Request(
        data=load(data, split, root) if isinstance(data, str) else data.check(),
        near=near,
        far=far,
        corrupted=corrupted,
        corruptions=corruptions,
        parameters=parameters,
        vectors=vectors,
        groups=groups,
        split=split,
        root=root,
    )
    return SUITES[name](request)


def _covariate(request: Request) -> Iterator[Shift]:
    if request.corrupted is None:
        return covariate(request.data, request.corruptions, parameters=request.parameters)
    severities = (1, 2, 3, 4, 5)
    check_corruptions(request.corruptions, severities)
    make = partial(_read_corrupted, request)
    for name in request.corruptions:
        make(name, severities[0])  # to see that it exists; the images are memory-mapped, so this costs nothing
    return corrupted_shifts(request.corruptions, severities, make)


def _read_corrupted(request: Request, name: str, severity: int) -> Dataset:
    """Corrupted images from their files, with the class names of the clean data: the layout itself has none."""
    data = load(f"{request.corrupted}/{name}/{severity}", "test", request.root)
    clean = request.data
    if data.images.shape[1:] != clean.images.shape[1:] or int(data.labels.max()) >= len(clean.names):
        got = f"{_shape(data.images)} with labels to {int(data.labels.max())} in {request.corrupted}"
        expected = f"images of {_shape(clean.images)} with labels to {len(clean.names) - 1}"
        raise wrong("corrupted", expected, got, "make it from the same data with `shiftprism corrupt`")
    return data._replace(names=clean.names)


def _concept_splits(request: Request) -> Iterator[Shift]:
    near = request.near if request.near is not None else _NEAR.get(request.data.names)
    if not near:
        advice = "give a data set of unseen classes, such as the second one that hold_out(…) returns"
        raise wrong("near", "given for data that is not CIFAR", "nothing", advice)
    (loaded,) = request.load(near)
    if len(loaded) != 1:
        raise wrong("near", "one data set", ", ".join(loaded), "call suite(…) once for each")
    ((name, unseen),) = loaded.items()
    check_disjoint(request.data.names, unseen.names, name)
    return concept(unseen, _splits(request, unseen), f"{name}-splits")


def _splits(request: Request, unseen: Dataset) -> Mapping[int, Sequence[str]]:
    if request.vectors is not None:
        return concept_splits(request.data.names, unseen.names, request.vectors, request.groups)
    table = _TABLES.get((request.data.names, unseen.names))
    if table is None:
        advice = "give a GloVe text file or an .npz of word vectors; only the two CIFARs can do without"
        raise wrong("vectors", "given for these classes", "nothing", advice)
    return table


def _near_far(request: Request) -> Iterator[Shift]:
    near = request.near if request.near is not None else _NEAR.get(request.data.names, ())
    far = request.far if request.far is not None else _FAR if request.data.names in _NEAR else ()
    if not near and not far:
        advice = "name the data sets, or give them as {name: Dataset}"
        raise wrong("near", "given, or `far`, for data that is not CIFAR", "neither", advice)
    return near_far(request.data.names, *request.load(near, far))


def match_images(data: Dataset, like: Tensor, where: str) -> Dataset:
    """The data set with images of the channels and the size of `like`. Only square sizes can be scaled to."""
    images, channels, (height, width) = data.images, like.shape[1], like.shape[2:]
    if images.shape[2:] != (height, width):
        if height != width:
            advice = "resize them first: only square images are scaled here"
            raise wrong(where, f"images of {height} × {width} pixels", _shape(images), advice)
        images = torch.from_numpy(resize(images.numpy(), height))
    if images.shape[1] == 1 and channels == 3:
        images = images.expand(-1, 3, -1, -1)
    elif images.shape[1] == 3 and channels == 1:
        images = _to_grey(images)
    return data._replace(images=images)


def _to_grey(images: Tensor) -> Tensor:
    """(N, 1, H, W): the luma of ITU-R 601 in 16-bit fixed point, the same bytes as Pillow's mode L."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32)[:, None, None]
    # A thousand images at a time, because the products are four times as large as the images.
    lumas = [(part * weights).sum(1, keepdim=True) + 0x8000 >> 16 for part in images.split(1000)]
    return torch.cat(lumas).to(torch.uint8)


def _shape(images: Tensor) -> str:
    return " × ".join(str(side) for side in images.shape[1:])


SUITES: dict[str, Callable[[Request], Iterator[Shift]]] = {
    "covariate": _covariate,
    "concept-splits": _concept_splits,
    "near-far": _near_far,
}
"""The suites that `suite` knows by name."""
