"""Concept splits from word vectors, the paper's table, and the functions that make shifts."""

import os
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from shiftprism.corruptions import COMMON, CORRUPTIONS, Corruption
from shiftprism.datasets import CIFAR10_NAMES, CIFAR100_NAMES, Dataset, load
from shiftprism.shifts import CIFAR100_SPLITS, concept, concept_splits, covariate, hold_out, near_far
from shiftprism.shifts._splits import CIFAR10_SPLITS, TABLE_WORDS
from shiftprism.shifts._vectors import similarities

SHARED = Path(os.environ.get("SHIFTPRISM_SHARED") or Path(__file__).resolve().parents[2] / "shared")
PAPER = SHARED / "paper" / "geometric_odin.tex"
GLOVE = SHARED / "data" / "glove_cifar_words.npz"
needs_glove = pytest.mark.skipif(not GLOVE.is_file(), reason=f"no GloVe vectors at {GLOVE}")
VECTORS = {"cat": [1.0, 0.0], "truck": [0.0, 2.0], "tiger": [0.9, 0.1], "bus": [0.1, 1.5], "chair": [0.2, 0.2]}


def some(*names: str, each: int = 2, side: int = 8) -> Dataset:
    labels = torch.arange(len(names)).repeat(each)
    images = torch.arange(len(labels) * side * side).reshape(len(labels), 1, side, side) % 251
    return Dataset(images.to(torch.uint8), labels, names)


def test_the_table_has_every_class_of_cifar100_once() -> None:
    assert sorted(CIFAR100_SPLITS) == list(range(10))
    assert {len(names) for names in CIFAR100_SPLITS.values()} == {10}
    assert sorted(chain(*CIFAR100_SPLITS.values())) == sorted(CIFAR100_NAMES)


@pytest.mark.skipif(not PAPER.is_file(), reason=f"no source of the paper at {PAPER}")
def test_the_table_is_the_papers() -> None:
    found = re.findall(r"Group (\d)\s*&([^\\]*)\\\\", PAPER.read_text(encoding="utf-8"))
    printed = {int(group): tuple(word.strip() for word in cells.split("&")[:10]) for group, cells in found}
    ours = {group: tuple(TABLE_WORDS.get(name, name) for name in names) for group, names in CIFAR100_SPLITS.items()}
    assert printed == ours


@needs_glove
def test_word_vectors_agree_with_the_paper() -> None:
    group = {TABLE_WORDS.get(name, name): number for number, names in CIFAR100_SPLITS.items() for name in names}
    made = concept_splits(CIFAR10_NAMES, list(group), GLOVE, 10)
    order = list(chain(*made.values()))
    assert spearmanr(range(100), [group[word] for word in order]).statistic >= 0.85
    mine = {word: number for number, words in made.items() for word in words}
    assert spearmanr([mine[word] for word in order], [group[word] for word in order]).statistic >= 0.85
    likeness = similarities(CIFAR10_NAMES, list(group), GLOVE)
    means = [np.mean([likeness[word] for word in group if group[word] == number]) for number in range(10)]
    np.testing.assert_allclose((means[9], means[0]), (21.9, 9.3), atol=0.1)


@needs_glove
def test_the_other_ladder_is_what_word_vectors_give() -> None:
    with np.load(GLOVE, allow_pickle=False) as archive:
        vectors = {word: archive[word] for word in archive.files}
    vectors |= {name: vectors[word] for name, word in TABLE_WORDS.items()}
    assert concept_splits(CIFAR100_NAMES, CIFAR10_NAMES, vectors, 5) == CIFAR10_SPLITS


def test_a_ladder_worked_by_hand() -> None:
    # max(·cat, ·truck): tiger .9 and .2, bus .1 and 3, chair .2 and .4
    assert similarities(["cat", "truck"], ["tiger", "bus", "chair"], VECTORS) == {
        "tiger": 0.9,
        "bus": 3.0,
        "chair": 0.4,
    }
    assert concept_splits(["cat", "truck"], ["tiger", "bus", "chair"], VECTORS, 2) == {
        0: ("chair", "tiger"),
        1: ("bus",),
    }


@given(st.integers(1, 5), st.integers(1, 12), st.data())
def test_groups_are_a_partition_in_order_of_likeness(known: int, unseen: int, data: st.DataObject) -> None:
    groups, seed = data.draw(st.integers(1, unseen)), data.draw(st.integers(0, 99))
    rows = np.random.default_rng(seed).standard_normal((known + unseen, 3))
    names = [f"w{number}" for number in range(known + unseen)]
    vectors = dict(zip(names, rows, strict=True))
    made = concept_splits(names[:known], names[known:], vectors, groups)
    order = list(chain(*made.values()))
    assert sorted(order) == sorted(names[known:])
    assert list(made) == list(range(groups))
    assert {len(part) for part in made.values()} <= {unseen // groups, -(-unseen // groups)}
    likeness = (rows[known:] @ rows[:known].T).max(1)
    assert order == [names[known + place] for place in np.argsort(likeness, kind="stable")]
    shuffled = data.draw(st.permutations(names[known:]))
    assert concept_splits(names[:known], shuffled, vectors, groups) == made


def test_a_name_of_several_words_is_the_whole_or_the_mean_of_its_words() -> None:
    vectors = {
        "cat": [1.0, 1.0],
        "pickup": [2.0, 0.0],
        "truck": [0.0, 4.0],
        "lawnmower": [7.0, 0.0],
        "lawn": [0.0, 0.0],
    }
    found = similarities(["cat"], ["pickup_truck", "Lawn mower", "Truck"], vectors)
    assert found == {"pickup_truck": 3.0, "Lawn mower": 7.0, "Truck": 4.0}
    assert similarities(["cat"], ["pickup_truck"], vectors | {"pickup_truck": [9.0, 0.0]}) == {"pickup_truck": 9.0}


def test_unknown_words_are_named() -> None:
    with pytest.raises(ValueError, match=r"none for oak, unicorn; correct these names"):
        concept_splits(["cat"], ["unicorn", "tiger", "oak tiger"], VECTORS, 2)


@pytest.mark.parametrize(
    ("known", "unseen"), [(["cat", "truck"], ["tiger", "truck"]), (["pickup_truck", "cat"], ["bus", "Pickup truck"])]
)
def test_classes_on_both_sides_are_named(known: list[str], unseen: list[str]) -> None:
    with pytest.raises(ValueError, match=f"but got {unseen[1]} on both sides"):
        concept_splits(known, unseen, VECTORS, 1)
    with pytest.raises(ValueError, match=f"`other` .* but got {unseen[1]} on both sides"):
        near_far(known, far={"other": some(*unseen)})


@pytest.mark.parametrize(
    ("vectors", "groups", "problem"),
    [
        (VECTORS, 0, "`groups` to be from 1 to 2 but got 0"),
        (VECTORS, 3, "`groups` to be from 1 to 2 but got 3"),
        (VECTORS | {"bus": [1.0]}, 1, "of one dimension"),
        (VECTORS | {"bus": [1.0, np.nan]}, 1, "not finite for bus"),
    ],
)
def test_what_makes_no_ladder_is_refused(vectors: dict[str, list[float]], groups: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        concept_splits(["cat"], ["tiger", "bus"], vectors, groups)


def test_a_name_twice_and_no_known_class_are_refused() -> None:
    with pytest.raises(ValueError, match="a name twice"):
        concept_splits(["cat"], ["tiger", "tiger"], VECTORS, 1)
    with pytest.raises(ValueError, match="the classes that the model knows"):
        concept_splits([], ["tiger"], VECTORS, 1)


def files_of(folder: Path) -> dict[str, Path]:
    """The same vectors as a GloVe text file and in both forms of `.npz`."""
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in VECTORS.items()]
    # A vocabulary has words with no-break spaces and line separators in them, and lines that are not for us.
    (folder / "glove.txt").write_text("a\u2028b 1 2\n. . . 0.5 0.5\n" + "".join(lines), encoding="utf-8", newline="\n")
    np.savez(folder / "each.npz", **{word: np.array(vector, np.float32) for word, vector in VECTORS.items()})  # type: ignore[arg-type]
    np.savez(folder / "table.npz", words=np.array(list(VECTORS)), vectors=np.array(list(VECTORS.values())))
    return {name: folder / name for name in ("glove.txt", "each.npz", "table.npz")}


def test_files_of_vectors_say_what_a_mapping_says(tmp_path: Path) -> None:
    expected = concept_splits(["cat", "truck"], ["tiger", "bus", "chair"], VECTORS, 3)
    for path in files_of(tmp_path).values():
        assert concept_splits(["cat", "truck"], ["tiger", "bus", "chair"], path, 3) == expected
        assert concept_splits(["cat", "truck"], ["tiger", "bus", "chair"], str(path), 3) == expected
        with pytest.raises(ValueError, match="none for lion"):
            concept_splits(["cat"], ["lion"], path, 1)


def test_broken_files_of_vectors_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("cat 1 2\ntiger 1 two\n")
    with pytest.raises(ValueError, match=r"line 2 of .*bad\.txt"):
        concept_splits(["cat"], ["tiger"], tmp_path / "bad.txt", 1)
    pickled = np.array([[1.0], [2.0]], dtype=object)
    np.savez(tmp_path / "pickled.npz", cat=pickled, tiger=pickled)
    whole = (tmp_path / "pickled.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "array.npy", np.zeros(2))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    for name in ("pickled.npz", "cut.npz", "array.npz"):
        with pytest.raises(ValueError, match=f"a whole .npz file of plain arrays but got .*{name}"):
            concept_splits(["cat"], ["tiger"], tmp_path / name, 1)
    with pytest.raises(FileNotFoundError):
        concept_splits(["cat"], ["tiger"], tmp_path / "nowhere.txt", 1)


def test_covariate_makes_images_when_asked_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plain = CORRUPTIONS["contrast"]

    def counted(images: torch.Tensor, severity: int, draws: object) -> torch.Tensor:
        made.append(severity)
        return images // severity

    monkeypatch.setitem(CORRUPTIONS, "contrast", Corruption("contrast", plain.stream, counted))
    data = load("digits", "test").rows(slice(5))
    shifts = list(covariate(data, ["contrast"]))
    assert [(shift.name, shift.kind, shift.severity) for shift in shifts] == [
        ("contrast", "covariate", severity) for severity in range(1, 6)
    ]
    assert made == []
    found = shifts[3].make()
    assert made == [4]
    assert torch.equal(found.images, data.images // 4)
    assert torch.equal(found.labels, data.labels)


def test_an_image_keeps_its_seed_in_every_shift() -> None:
    data = load("digits", "test").rows(slice(6))
    (shift,) = covariate(data, ["gaussian_noise"], [3])
    alone = CORRUPTIONS["gaussian_noise"](data.images[4:5], 3, torch.tensor([4]))
    assert torch.equal(shift.make().images[4:5], alone)
    assert len(list(covariate(data))) == 5 * len(COMMON) == 75


def test_wrong_corruptions_are_refused_at_the_door() -> None:
    data = load("digits", "test").rows(slice(2))
    with pytest.raises(ValueError, match="but got rust; there are gaussian_noise"):
        covariate(data, ["rust", "fog"])
    with pytest.raises(ValueError, match="from 1 to 5 but got 6"):
        covariate(data, ["fog"], [1, 6])


def test_severity_1_is_the_closest_group() -> None:
    data = some(*CIFAR100_NAMES)
    shifts = list(concept(data, CIFAR100_SPLITS, "cifar100-splits"))
    assert [shift.severity for shift in shifts] == list(range(1, 11))
    assert {(shift.name, shift.kind) for shift in shifts} == {("cifar100-splits", "concept")}
    for shift in shifts:
        found = shift.make()
        assert set(found.names) == set(CIFAR100_SPLITS[10 - shift.severity])
        expected = torch.stack([image for image, label in zip(data.images, data.labels, strict=True)
                                if data.names[label] in found.names])  # fmt: skip
        assert torch.equal(found.images, expected)


@pytest.mark.parametrize(
    ("splits", "problem"),
    [
        ({}, "number them without gaps"),
        ({1: ["a"], 2: ["b"]}, "number them without gaps"),
        ({0: ["a"], 1: []}, "number them without gaps"),
        ({0: ["a"], 1: ["b", "a"]}, "a twice"),
        ({0: ["a"], 1: ["z"]}, "but got z; it has a, b, c"),
    ],
)
def test_wrong_ladders_are_refused(splits: dict[int, list[str]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        concept(some("a", "b", "c"), splits)


def test_near_is_concept_and_far_is_both() -> None:
    near, far = some("a", "b"), some("c")
    shifts = list(near_far(["x", "y"], {"near": near}, {"far": far}))
    assert [shift[:3] for shift in shifts] == [("near", "concept", 0), ("far", "both", 0)]
    assert shifts[0].make() is near
    assert shifts[1].make() is far


def test_hold_out_divides_the_classes() -> None:
    data = some("a", "b", "c", each=3)
    seen, unseen = hold_out(data, ["b"])
    assert (seen.names, unseen.names) == (("a", "c"), ("b",))
    assert len(seen.images) + len(unseen.images) == len(data.images)
    assert torch.equal(unseen.images, data.images[data.labels == 1])
    for wrong, problem in (([], "at least one class"), (["a", "b", "c"], "fewer than all"), (["z"], "it has a, b, c")):
        with pytest.raises(ValueError, match=problem):
            hold_out(data, wrong)


def test_frost_says_whether_it_is_drawn_or_photographed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHIFTPRISM_FROST", raising=False)
    digits = load("digits", "test")
    frost, fog = covariate(digits, ["frost", "fog"], [1])
    assert frost.about.endswith("; drawn frost")
    assert "frost" not in fog.about
    monkeypatch.setenv("SHIFTPRISM_FROST", str(tmp_path))
    assert next(iter(covariate(digits, ["frost"], [1]))).about.endswith("; photographed frost")
