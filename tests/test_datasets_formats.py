"""Every format, on small files of its true layout: read right when whole, refused when cut, damaged or mislabelled."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from dataset_files import (
    MAKERS,
    ROWS,
    TINY,
    Made,
    cifar10_binary,
    cifar10_python,
    cifar100_binary,
    corrupted_arrays,
    corrupted_folder,
    folder,
    idx,
    npy,
    png,
    svhn,
    tiny_folder,
    tiny_small,
    tiny_zip,
    write,
)
from shiftprism.datasets import Dataset, _cifar, _tiny_imagenet, load

TINY_CLASSES = 3


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Data sets of a few images, and no data of this machine's."""
    monkeypatch.setattr(_cifar, "ROWS", ROWS)
    monkeypatch.setattr(_tiny_imagenet, "CLASSES", TINY_CLASSES)
    monkeypatch.setattr(_tiny_imagenet, "EACH", {"train": 2, "test": 2})
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))


MAPPED = (
    "cifar100-binary", "corrupted-folder", "corrupted-tar", "folder", "mnist", "npz", "safetensors",
    "svhn",
)  # fmt: skip
SPLITS = [(name, split) for name in MAKERS for split in ("train", "test") if split == "test" or "corrupted" not in name]


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> Callable[[Path, str], Made]:
    return MAKERS[request.param]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_a_whole_file_is_read_to_the_pixel(name: str, split: str, tmp_path: Path) -> None:
    made = MAKERS[name](tmp_path / "data", split)
    data = load(made.name, split, tmp_path / "data")
    assert data.labels.tolist() == made.labels.tolist()
    assert data.images.dtype == torch.uint8
    difference = np.abs(data.images.numpy().astype(int) - made.images)
    assert difference.max() <= made.loss
    assert data.check() is data


def test_a_second_read_gives_the_same(maker: Callable[[Path, str], Made], tmp_path: Path) -> None:
    made = maker(tmp_path / "data", "test")
    first, second = (load(made.name, "test", tmp_path / "data") for _ in range(2))
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)
    assert first.names == second.names


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells which files are mapped")
@pytest.mark.parametrize("name", MAPPED)
def test_what_can_be_mapped_is_mapped(name: str, tmp_path: Path) -> None:
    made = MAKERS[name](tmp_path / "data", "test")
    data = load(made.name, "test", tmp_path / "data")
    begin, end = data.images.data_ptr(), data.images.data_ptr() + 1
    spans = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert any(int(span[0].split("-")[0], 16) <= begin and end <= int(span[0].split("-")[1], 16) for span in spans)
    data.images.fill_(7)  # copy on write: the file stays as it was
    again = load(made.name, "test", tmp_path / "data")
    assert np.array_equal(again.images.numpy(), made.images)


# Our readers name the byte; safetensors does not say it.
DAMAGED = r"is damaged at byte \d+|a whole safetensors file but got"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.99, -1])
def test_a_cut_file_is_refused_with_its_name_and_byte(
    share: float, maker: Callable[[Path, str], Made], tmp_path: Path
) -> None:
    made = maker(tmp_path / "data", "test")
    content = made.file.read_bytes()
    made.file.write_bytes(content[: int(len(content) * share)] if share >= 0 else content[:-1])
    with pytest.raises(ValueError, match=DAMAGED) as caught:
        load(made.name, "test", tmp_path / "data")
    assert made.file.name in str(caught.value)


@pytest.mark.parametrize("kind", ["cifar10-binary-archive", "fashion-mnist-gz", "tiny-imagenet-zip", "npz"])
def test_a_flipped_bit_never_passes_where_the_format_has_a_check_sum(kind: str, tmp_path: Path) -> None:
    made = MAKERS[kind](tmp_path / "data", "test")
    content = made.file.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).integers(10, len(content) - 80, 40):
        made.file.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            data = load(made.name, "test", tmp_path / "data")
        except ValueError:
            refused += 1
        else:  # the bit was in a time stamp or the like
            assert np.abs(data.images.numpy().astype(int) - made.images).max() <= made.loss
            assert data.labels.tolist() == made.labels.tolist()
    assert refused > 20


def test_whatever_the_bytes_say_it_is_refused_by_name_or_as_long_as_it_should_be(
    maker: Callable[[Path, str], Made], tmp_path: Path
) -> None:
    made = maker(tmp_path / "data", "test")
    content = made.file.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for number in range(40):
        changed = bytearray(content)
        if number % 2:  # a hole
            first, last = sorted(random.integers(0, len(content), 2))
            del changed[first : last + 1]
        else:  # a head or a tail of other bytes
            start = 0 if number % 4 else max(0, len(content) - 300)
            for place in random.integers(start, min(len(content), start + 300), 3):
                changed[place] = random.integers(256)
        made.file.write_bytes(changed)
        try:
            assert len(load(made.name, "test", tmp_path / "data").images) == len(made.images)
        except ValueError as error:
            refused += 1
            assert str(tmp_path) in str(error)  # noqa: PT017 (some changes do no harm)
    assert refused >= 20


def test_another_file_in_its_place_is_refused(maker: Callable[[Path, str], Made], tmp_path: Path) -> None:
    made = maker(tmp_path / "data", "test")
    made.file.write_bytes(b"<html>Not found</html>" * 1000)
    with pytest.raises(ValueError, match=DAMAGED):
        load(made.name, "test", tmp_path / "data")


def test_a_split_without_its_second_batch_is_refused(tmp_path: Path) -> None:
    cifar10_binary(tmp_path, "train")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_2\.bin"):
        load("cifar10", "train", tmp_path)


@pytest.mark.parametrize(
    ("make", "byte", "place"),
    [
        (cifar10_binary, 2 * 3073, 2 * 3073),
        (cifar100_binary, 3 * 3074 + 1, 3 * 3074 + 1),
        (cifar100_binary, 3074, 3074),
        (
            lambda root, split: idx(root, split, "mnist", "")._replace(file=root / "mnist" / "t10k-labels-idx1-ubyte"),
            10,
            10,
        ),
    ],
)
def test_a_label_that_is_no_class_is_refused_with_its_byte(
    make: Callable[[Path, str], Made], byte: int, place: int, tmp_path: Path
) -> None:
    made = make(tmp_path, "test")
    content = bytearray(made.file.read_bytes())
    content[place] = 200
    made.file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"byte {byte}: .*label 200"):
        load(made.name, "test", tmp_path)


def test_svhn_reads_ten_as_zero_and_refuses_eleven(tmp_path: Path) -> None:
    made = svhn(tmp_path, "test", True)
    assert load("svhn", "test", tmp_path).labels.tolist() == [0, 1, 9, 0, 5]
    savemat(made.file, {"X": made.images.transpose(2, 3, 1, 0), "y": np.array([[1], [2], [11], [3], [4]])})
    with pytest.raises(ValueError, match="image 2 has label 11"):
        load("svhn", "test", tmp_path)


def test_a_batch_under_another_name_is_refused(tmp_path: Path) -> None:
    cifar10_python(tmp_path, "train")
    batches = tmp_path / "cifar-10-batches-py"
    (batches / "data_batch_3").write_bytes((batches / "data_batch_2").read_bytes())
    with pytest.raises(ValueError, match=r"data_batch_3 is damaged.*training batch 2 of 5"):
        load("cifar10", "train", tmp_path)


def test_class_names_in_another_order_are_refused(tmp_path: Path) -> None:
    cifar100_binary(tmp_path, "test")
    listed = tmp_path / "cifar-100-binary" / "fine_label_names.txt"
    listed.write_text("\n".join(sorted(_cifar.CIFAR100_NAMES, reverse=True)))
    with pytest.raises(ValueError, match="fine_label_names"):
        load("cifar100", "test", tmp_path)


def test_labels_of_another_split_are_refused(tmp_path: Path) -> None:
    idx(tmp_path, "test", "mnist", "")
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(struct.pack(">2I", 0x801, 5) + bytes(5))
    with pytest.raises(ValueError, match="byte 4: it counts 5 labels"):
        load("mnist", "test", tmp_path)


def test_tiny_imagenet_with_an_image_missing_is_refused(tmp_path: Path) -> None:
    made = tiny_small(tmp_path, "test")
    made.file.unlink()
    with pytest.raises(ValueError, match="where 3 classes have 2 each"):
        load("tiny-imagenet", "test", tmp_path)


def test_the_three_layouts_of_tiny_imagenet_number_their_classes_alike(tmp_path: Path) -> None:
    found = [make(tmp_path / make.__name__, "test") for make in (tiny_folder, tiny_zip, tiny_small)]
    data = [load("tiny-imagenet", "test", tmp_path / make) for make in ("tiny_folder", "tiny_zip", "tiny_small")]
    assert {each.names for each in data} == {TINY}
    assert {tuple(each.labels.tolist()) for each in data} == {tuple(found[0].labels.tolist())}


def test_what_was_decoded_is_decoded_again_when_the_file_changes(tmp_path: Path) -> None:
    made = folder(tmp_path / "data", "test")
    load(made.name, "test", tmp_path / "data")
    kept = list((tmp_path / "home" / "decoded").glob("folder-*.npy"))
    changed = 255 - made.images[2]
    write(made.file, png(changed))
    data = load(made.name, "test", tmp_path / "data")
    assert np.array_equal(data.images[2].numpy(), changed)
    now = list((tmp_path / "home" / "decoded").glob("folder-*.npy"))
    assert len(kept) == len(now) == 1
    assert kept != now


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    made = folder(tmp_path / "data", "test")
    load(made.name, "test", tmp_path / "data")
    (kept,) = (tmp_path / "home" / "decoded").glob("*.npy")
    kept.write_bytes(kept.read_bytes()[:-5])
    assert np.array_equal(load(made.name, "test", tmp_path / "data").images.numpy(), made.images)


def test_a_cache_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    made = folder(tmp_path / "data", "test")
    write(tmp_path / "home", b"a file where the folder should be")
    assert np.array_equal(load(made.name, "test", tmp_path / "data").images.numpy(), made.images)


def test_debians_fashion_mnist_is_found_by_itself(tmp_path: Path) -> None:
    made = idx(tmp_path / "share" / "datasets", "test", "fashion-mnist", ".gz")
    data = load("fashion-mnist", "test")
    assert np.array_equal(data.images.numpy(), made.images)
    assert data.names[9] == "Ankle boot"


def test_every_severity_is_its_own_part_of_the_file(tmp_path: Path) -> None:
    images, _ = corrupted_arrays()
    corrupted_folder(tmp_path, "test")
    parts = [load(f"cifar10-c/motion_blur/{severity}", "test", tmp_path) for severity in range(1, 6)]
    assert np.array_equal(Dataset.concat(parts).images.permute(0, 2, 3, 1).numpy(), images)
    assert parts[0].names == _cifar.CIFAR10_NAMES


def test_a_corrupted_set_of_ones_own_is_read_by_its_path(tmp_path: Path) -> None:
    images, labels = corrupted_arrays()
    write(tmp_path / "out" / "fog.npy", npy(images))
    write(tmp_path / "out" / "labels.npy", npy(labels % 3))
    assert load("out/fog/2", "test", tmp_path).names == ("0", "1", "2")
    write(tmp_path / "out" / "names.txt", b"x\ny\nz\n")
    data = load(str(tmp_path / "out" / "fog" / "2"), "test")
    assert data.names == ("x", "y", "z")
    assert np.array_equal(data.images.numpy(), images[4:8].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cifar10-c", "a corruption and a severity"),
        ("cifar10-c/motion_blur", "a severity from 1 to 5"),
        ("cifar10-c/motion_blur/6", "a severity from 1 to 5"),
        ("cifar10-c/frost/1", "one of motion_blur"),
    ],
)
def test_a_corruption_that_is_not_there_is_an_error_that_lists_what_is(name: str, problem: str, tmp_path: Path) -> None:
    corrupted_folder(tmp_path, "test")
    with pytest.raises(ValueError, match=problem):
        load(name, "test", tmp_path)


def test_corrupted_labels_that_do_not_repeat_are_refused(tmp_path: Path) -> None:
    corrupted_folder(tmp_path, "test")
    write(tmp_path / "CIFAR-10-C" / "labels.npy", npy(np.arange(20, dtype=np.uint8) % 10))
    with pytest.raises(ValueError, match="does not repeat"):
        load("cifar10-c/motion_blur/1", "test", tmp_path)


def misfit_lengths(root: Path) -> str:
    corrupted_folder(root, "test")
    write(root / "CIFAR-10-C" / "labels.npy", npy(np.zeros(15, np.uint8)))
    return "cifar10-c/motion_blur/1"


def misfit_floats(root: Path) -> str:
    corrupted_folder(root, "test")
    write(root / "CIFAR-10-C" / "motion_blur.npy", npy(np.zeros((20, 32, 32, 3), np.float32)))
    return "cifar10-c/motion_blur/1"


def misfit_labels(root: Path) -> str:
    corrupted_folder(root, "test")
    write(root / "CIFAR-10-C" / "labels.npy", npy(np.zeros(20, np.float32)))
    return "cifar10-c/motion_blur/1"


def misfit_batch(old: bytes, new: bytes) -> Callable[[Path], str]:
    def make(root: Path) -> str:
        made = cifar10_python(root, "test")
        content = made.file.read_bytes()
        assert content.count(old) == 1
        made.file.write_bytes(content.replace(old, new))
        return "cifar10"

    return make


def misfit_matrix(root: Path) -> str:
    made = svhn(root, "test", True)
    savemat(made.file, {"X": made.images.transpose(2, 3, 1, 0).astype(np.float32), "y": np.ones((5, 1))})
    return "svhn"


def misfit_count(root: Path) -> str:
    made = svhn(root, "test", True)
    savemat(made.file, {"X": made.images.transpose(2, 3, 1, 0), "y": np.ones((4, 1), np.uint8)})
    return "svhn"


def misfit_size(root: Path) -> str:
    made = idx(root, "test", "mnist", "")
    made.file.write_bytes(struct.pack(">4I", 0x803, 6, 14, 56) + bytes(6 * 784))
    return "mnist"


def misfit_list(root: Path) -> str:
    tiny_folder(root, "test")
    listed = root / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    listed.write_text(listed.read_text().replace(TINY[1], "n99999999"))
    return "tiny-imagenet"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (misfit_lengths, "20 images and labels.npy 15 labels"),
        (misfit_floats, "motion_blur is float32"),
        (misfit_labels, "where class numbers belong"),
        (misfit_batch(b"U\x06labels", b"U\x06lebals"), "its `labels` are not 4 whole numbers"),
        (misfit_batch(b"U\x04data", b"U\x04dada"), "its `data` is not an array of 4 × 3072 bytes"),
        (misfit_batch(b"K\x01M\x04\x00", b"K\x01M\x05\x00"), "not a readable pickle"),
        (misfit_batch(b"U\x02u1", b"U\x02f4"), "holds an array of type f4"),
        (misfit_matrix, "X is float32"),
        (misfit_count, "y has 4 numbers"),
        (misfit_size, "byte 8: images of 14 × 56"),
        (misfit_list, "of class 'n99999999' is listed"),
    ],
)
def test_what_does_not_fit_together_is_refused(make: Callable[[Path], str], problem: str, tmp_path: Path) -> None:
    name = make(tmp_path)
    with pytest.raises(ValueError, match=problem) as caught:
        load(name, "test", tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_corruptions_without_labels_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    write(tmp_path / "out" / "fog.npy", npy(corrupted_arrays()[0]))
    with pytest.raises(FileNotFoundError, match=r"no labels\.npy"):
        load("out/fog/1", "test", tmp_path)
