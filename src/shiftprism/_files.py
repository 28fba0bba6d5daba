"""The one reader and writer of our files: whole or absent when written, strict about format and names when read.

Nothing here needs torch or NumPy before it is called. Nothing is pickled.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shiftprism._errors import wrong

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "weights.safetensors"
"""The file of tensors in the folder of a saved model, score or calibrator. A JSON file beside it is written last."""


_DIGEST, _ABOUT_DIGEST = "digest", "digest of metadata"
"""In the metadata of a safetensors file: of its tensors, and of other metadata. In sealed JSON: of all else in it."""


def check_file(path: Path) -> Path:
    """`path`, unless it is a pipe, a device or a folder: to read one may hang or never end. A missing file passes."""
    try:
        mode = path.stat().st_mode
    except OSError:  # opening it says why
        return path
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise OSError(errno.EINVAL, f"this is {kind}, not a file", str(path))
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed when it does not.

    The bytes are on the disk before the name changes, so a crash leaves the old file or the new one, never a half.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        beside.touch()
        # the umask's mode: safetensors replaces the file by one that only its owner may read
        mode = beside.stat().st_mode
        yield beside
        beside.chmod(mode)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with a digest of all that is in it, for `check_seal`."""
    write_json(path, value | {_DIGEST: _digest_json(value)})


def check_seal(path: Path, found: Mapping[str, Any], expected: str, advice: str) -> dict[str, Any]:
    """The object of a JSON file without its digest; an error where that differs. Older files have none."""
    rest = {name: value for name, value in found.items() if name != _DIGEST}
    if _DIGEST in found and found[_DIGEST] != _digest_json(rest):
        raise wrong("folder", expected, f"{path}, which was changed", advice)
    return rest


def _digest_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, expected: str, advice: str) -> dict[str, Any]:
    """The JSON object in a file; a missing or damaged file is an error that names it.

    `expected` says what the file should be ("a saved model"), `advice` what to do about it.
    """
    try:
        found = json.loads(check_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise wrong("path", expected, f"{path} ({error.strerror})", advice) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested without end
        raise wrong("path", expected, f"{path} ({error})", advice) from error
    if not isinstance(found, dict):
        raise wrong("path", expected, f"{path} with a {type(found).__name__} in place of an object", advice)
    return found


def write_tensors(path: Path, tensors: Mapping[str, Any], about: dict[str, str]) -> None:
    """Write torch tensors, or NumPy arrays, to a safetensors file, whole or not at all.

    A full disk is an OSError, as for any other file. The metadata carry digests for the reader.
    """
    from safetensors import SafetensorError

    arrays = all(hasattr(value, "__array_interface__") for value in tensors.values())  # torch tensors have none
    about = about | {_DIGEST: _digest(tensors)}
    about |= {_ABOUT_DIGEST: _digest_json(about)}
    with replacing(path) as beside:
        try:
            if arrays:
                import numpy as np
                from safetensors.numpy import save_file as save_arrays

                save_arrays({name: np.ascontiguousarray(value) for name, value in tensors.items()}, beside, about)
            else:
                from safetensors.torch import save_file

                save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, beside, about)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}; what was there before is untouched") from error
        _sort_metadata(beside)


def join_tensors(path: Path, parts: Sequence[Path], about: dict[str, str]) -> None:
    """Write a safetensors file of the tensors of the `parts`, joined row by row; one tensor of a part is in memory.

    The parts have the same names and types. The file is whole or absent, and reads like one of `write_tensors`.
    """
    from safetensors import safe_open

    def read(name: str) -> Iterator[Any]:
        for part in parts:
            with safe_open(part, framework="np") as file:
                yield file.get_tensor(name)

    with safe_open(parts[0], framework="np") as file:
        kinds = {name: str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118 (not a dict)
    digest, shapes, sizes = hashlib.sha256(), {}, {}
    for name in sorted(kinds):
        first = next(read(name))
        rows = sum(len(array) for array in read(name))
        shapes[name] = (rows, *first.shape[1:])
        sizes[name] = first.itemsize
        digest.update(f"{name}{first.dtype}{shapes[name]}".encode())
        for array in read(name):
            digest.update(array.tobytes())
    header, place = {}, 0
    for name in sorted(kinds, key=lambda name: (-sizes[name], name)):  # each type at a multiple of its size
        end = place + math.prod(shapes[name]) * sizes[name]
        header[name] = {"dtype": kinds[name], "shape": list(shapes[name]), "data_offsets": [place, end]}
        place = end
    metadata = dict(sorted((about | {_DIGEST: digest.hexdigest()}).items()))
    text = json.dumps({"__metadata__": metadata} | header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # spaces, as in the format
    with replacing(path) as beside, beside.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            for array in read(name):
                out.write(array.tobytes())


def _sort_metadata(path: Path) -> None:
    """Put the metadata of a safetensors file in order: the library's own order differs from run to run."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:  # the same characters in another order; spaces fill the rest, as in the format
            file.seek(8)
            file.write(text.ljust(length))


def read_tensors(
    path: Path, known: str | None, advice: str, framework: Literal["pt", "np"] = "pt", *, mapped: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a safetensors file and its metadata.

    `known` is the format that the metadata must name, None for a file of any origin. A damaged file, or one of another
    format, is a ValueError that names it and gives the `advice`; a missing one is a FileNotFoundError. `mapped` torch
    tensors stay in their file, are read when they are used, and are not compared with the digest.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(check_file(path), framework=framework) as file:
            about = _check_metadata(path, file.metadata(), known, advice)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if framework == "pt" and not mapped:
                # a tensor of the mapped file may lie unaligned in memory, where matrix products round differently
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    except SafetensorError as error:
        raise wrong("path", "a whole safetensors file", f"{path} ({error})", advice) from error
    written = about.pop(_DIGEST, None)  # older files have none, and those of others
    if written is not None and not mapped and written != _digest(tensors):
        raise wrong("path", "a whole safetensors file", f"{path}, whose tensors have changed", advice)
    return tensors, about


def read_metadata(path: Path, known: str, advice: str) -> dict[str, str]:
    """The metadata alone: the tensors stay on the disk."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(check_file(path), framework="np") as file:
            about = _check_metadata(path, file.metadata(), known, advice)
    except SafetensorError as error:
        raise wrong("path", "a whole safetensors file", f"{path} ({error})", advice) from error
    about.pop(_DIGEST, None)
    return about


def _check_metadata(path: Path, about: dict[str, str] | None, known: str | None, advice: str) -> dict[str, str]:
    """The metadata without their own digest, if they are of the known format and as they were written."""
    about = about or {}
    if known is not None and about.get("format") != known:
        raise wrong("path", f"a file of format {known}", f"{path} of format {about.get('format')}", advice)
    written = about.pop(_ABOUT_DIGEST, None)  # older files have none, and those of others
    if written is not None and written != _digest_json(about):
        raise wrong("path", "a whole safetensors file", f"{path}, whose metadata have changed", advice)
    return about


def _digest(tensors: Mapping[str, Any]) -> str:
    """A SHA-256 of torch tensors or NumPy arrays, equal for both."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".replace("torch.", "").encode())
        digest.update(_view_bytes(value) if hasattr(value, "detach") else value.tobytes())
    return digest.hexdigest()


def load_state(module: "nn.Module", tensors: Mapping[str, Any], path: Path, advice: str) -> None:
    """Put `tensors` into a module; every one that is missing, unknown or of another shape is named in the error."""
    own = module.state_dict()
    faults = [f"{name} is missing" for name in sorted(own.keys() - tensors.keys())]
    faults += [f"{name} is unknown" for name in sorted(tensors.keys() - own.keys())]
    faults += [
        f"{name} has shape {tuple(tensors[name].shape)} for {tuple(own[name].shape)}"
        for name in sorted(own.keys() & tensors.keys())
        if own[name].shape != tensors[name].shape
    ]
    if faults:
        raise wrong("path", "tensors that fit the code", f"{path}, where {'; '.join(faults)}", advice)
    module.load_state_dict(dict(tensors))


def fingerprint(tensors: "Mapping[str, Tensor]") -> str:
    """A SHA-256 of the names, dtypes, shapes and bytes of tensors: equal for equal ones, on any device."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(_view_bytes(tensor))
    return digest.hexdigest()


def tensor_bytes(tensor: "Tensor") -> bytes:
    """The elements of a tensor as they lie in memory, row by row."""
    return bytes(_view_bytes(tensor))


def _view_bytes(tensor: "Tensor") -> memoryview:
    """The same without a copy where the tensor is contiguous: a digest of gigabytes needs no second gigabytes."""
    import torch

    flat = tensor.detach().cpu().reshape(-1)
    # torch calls an expanded tensor of one element contiguous, though its stride is 0
    flat = flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().data
