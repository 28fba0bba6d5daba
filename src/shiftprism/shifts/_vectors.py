"""Concept splits from word vectors: how similar unseen classes are to those that a model knows."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, wrong
from shiftprism._files import check_file
from shiftprism._npz import read_arrays
from shiftprism.shifts._names import check_disjoint, words

Vectors = Mapping[str, ArrayLike]
"""From words to their vectors."""


def concept_splits(
    id_names: Sequence[str], ood_names: Sequence[str], vectors: "Vectors | str | Path", groups: int = 10
) -> dict[int, tuple[str, ...]]:
    """`ood_names` in groups of (nearly) equal size by their similarity to `id_names`. Group 0 is the farthest.

    The similarity of a class is the largest inner product of its word vector with that of any ID class, as in the
    paper's appendix: s(c) = max_k v(c) · v(k). The classes are sorted by it (ties by name) and cut into groups.

    `vectors` maps words to vectors, or is the path of a GloVe text file (a word and its numbers on each line), or of an
    `.npz` with one array for each word or with `words` (V,) and `vectors` (V, D). A name of several words takes the
    vector of the whole name if there is one ("lawn_mower", "lawn-mower" or "lawnmower"), or else the mean of its words'
    vectors. To use another word for a class, give a mapping: `vectors | {"maple_tree": vectors["maple"]}`.

    >>> vectors = {"cat": [1, 0], "tiger": [0.9, 0], "dolphin": [0.5, 0.5], "chair": [0, 1]}
    >>> concept_splits(["cat"], ["chair", "tiger", "dolphin"], vectors, groups=3)
    {0: ('chair',), 1: ('dolphin',), 2: ('tiger',)}
    """
    if not 1 <= groups <= len(ood_names):
        raise wrong("groups", f"from 1 to {len(ood_names)}", groups, "there cannot be more groups than classes")
    if len(set(ood_names)) < len(ood_names):
        raise wrong("ood_names", "different names", "a name twice", "name every class once")
    similarity = similarities(id_names, ood_names, vectors)
    order = sorted(ood_names, key=lambda name: (similarity[name], name))
    # Where the number of classes is not a multiple of the number of groups, the first groups have one class more.
    sizes = np.array_split(np.arange(len(order)), groups)
    return {group: tuple(order[place] for place in places) for group, places in enumerate(sizes)}


def similarities(
    id_names: Sequence[str], ood_names: Sequence[str], vectors: "Vectors | str | Path"
) -> dict[str, float]:
    """The largest inner product of each OOD class's vector with any ID class's vector."""
    if not id_names:
        raise wrong("id_names", "the classes that the model knows", "none", "give at least one")
    check_disjoint(id_names, ood_names, "ood_names")
    names = [*id_names, *ood_names]
    spelled = {spelling for name in names for spelling in _spellings(name)}
    if isinstance(vectors, str | Path):
        word_vectors = _read(Path(vectors), spelled)
    else:
        word_vectors = {word: np.asarray(vectors[word], np.float64) for word in spelled & set(vectors)}
    where = f" in {vectors}" if isinstance(vectors, str | Path) else ""
    _check_vectors(word_vectors, where)
    unknown = sorted({word for name in names for word in _unknown_words(name, word_vectors)})
    if unknown:
        advice = "correct these names, use vectors that have the words, or add vectors of your own for the names"
        got = f"none for {', '.join(unknown)}{where}"
        raise wrong("vectors", "vectors of every word in the class names", got, advice)
    id_vectors = np.stack([_vector(name, word_vectors) for name in id_names])
    return {name: float((id_vectors @ _vector(name, word_vectors)).max()) for name in ood_names}


def _spellings_as_one(name: str) -> Iterator[str]:
    """How a vocabulary may spell a name as one entry, the likeliest first."""
    yield name
    yield name.lower()
    for between in ("_", "-", ""):
        yield between.join(words(name)).lower()


def _spellings(name: str) -> Iterator[str]:
    """Every entry of a vocabulary that may be needed for a name."""
    yield from _spellings_as_one(name)
    for word in words(name):
        yield from (word, word.lower())


def _vector(name: str, word_vectors: Mapping[str, Floats]) -> Floats:
    entry = next((spelling for spelling in _spellings_as_one(name) if spelling in word_vectors), None)
    if entry is not None:
        return word_vectors[entry]
    parts = np.stack([word_vectors[word if word in word_vectors else word.lower()] for word in words(name)])
    return np.asarray(parts.mean(0), np.float64)


def _unknown_words(name: str, word_vectors: Collection[str]) -> list[str]:
    """The words of a name that have no vector; the name itself if it has no words."""
    if any(spelling in word_vectors for spelling in _spellings_as_one(name)):
        return []
    return [word for word in words(name) or [name] if word not in word_vectors and word.lower() not in word_vectors]


def _check_vectors(word_vectors: Mapping[str, Floats], where: str) -> None:
    first = next(iter(word_vectors.items()), None)
    for word, vector in word_vectors.items():
        if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
            got = f"shape {vector.shape} or not finite for {word}{where}"
            raise wrong("vectors", "one finite vector for each word", got, "look at what is stored there")
        if first is not None and vector.shape != first[1].shape:
            got = f"{len(first[1])} numbers for {first[0]} and {len(vector)} for {word}{where}"
            raise wrong("vectors", "of one dimension", got, "take all of them from one file")


def _read(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    """The vectors of the `wanted` words only: a file may hold millions."""
    if path.suffix != ".npz":
        with check_file(path).open("rb") as file:
            return dict(_read_lines(path, file, {word.encode() for word in wanted}))
    try:
        return _read_arrays(path, wanted)
    except (ValueError, TypeError) as error:  # damaged, of text, or of two lengths
        got = f"{path} ({getattr(error, 'problem', error)})"
        raise wrong("vectors", "a whole .npz file of plain arrays", got, "store one array for each word") from error


def _read_arrays(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    table = read_arrays(path, {"words", "vectors"}.__contains__)
    if set(table) == {"words", "vectors"} and table["words"].dtype.kind == "U":
        pairs = zip(table["words"], table["vectors"], strict=True)
        return {str(word): vector.astype(np.float64) for word, vector in pairs if word in wanted}
    arrays = read_arrays(path, wanted.__contains__)
    return {word: vector.astype(np.float64) for word, vector in arrays.items()}


def _read_lines(path: Path, file: Iterable[bytes], wanted: Collection[bytes]) -> Iterator[tuple[str, Floats]]:
    # Read as bytes, which are split at line feeds and plain spaces alone: some words contain other white space.
    for number, line in enumerate(file, 1):
        word, _, rest = line.partition(b" ")
        if word in wanted:
            try:
                yield word.decode(), np.array(rest.split(), np.float64)
            except ValueError as error:
                got = f"line {number} of {path} ({error})"
                raise wrong("vectors", "a text file of words and numbers", got, "repair or remove it") from error
