"""The file that `export` writes and `runtime` reads: an ONNX model, a description in its metadata, a digest at its end.

An ONNX file is a protobuf message, and such messages may be joined: the digest of all bytes before it is a last entry
of the metadata. Any reader of ONNX takes it, and ours finds a changed byte without knowing anything of the format.
NumPy alone.
"""

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftprism._errors import wrong
from shiftprism._files import check_file
from shiftprism.verdicts import KINDS, Reference

FORMAT = 1
"""Changes with any part that an older reader would misread."""
KEY = "shiftprism"
"""Of the description, JSON, in the metadata."""
_DIGEST_KEY = "shiftprism.sha256"
_ADVICE = "export it again with shiftprism export"
_ARRAYS = ("style_edges", "concept_edges", "style_counts", "concept_counts", "points")


class Input(NamedTuple):
    """The images that a file takes: uint8, (N, channels, height, width)."""

    channels: int
    height: int | None
    """None takes any; all images of one batch have one size."""
    width: int | None
    shortest: int | None
    """The length that the shortest side of an image is resized to, which may enlarge a long and narrow one beyond all
    memory; None where no side is."""
    inside: str
    """What the file does to images before its network, in words."""


class About(NamedTuple):
    """The description of an exported detector."""

    shiftprism: str
    """The version that wrote it."""
    opset: int
    precision: str
    """float32, float16 or int8: of the network. Scores and ranks are computed in float32."""
    names: tuple[str, ...]
    calibrated: bool
    concept: str
    """The name of the concept score."""
    false_alarm: float
    confidence: float | None
    by_class: bool
    held_out: tuple[int, ...]
    """The number of held-out images behind the p-values; of each class where `by_class`."""
    fingerprint: str
    """Of the detector."""
    input: Input
    reference: Reference


def describe(about: About) -> str:
    """The description as JSON. Arrays are compressed; everything else can be read by people."""
    # the words for `kind` are for readers in other languages; ours know them
    plain = about._asdict() | {"format": FORMAT, "input": about.input._asdict(), "kinds": KINDS}
    reference = about.reference._asdict()
    kept = {name: reference[name] for name in ("flagged", "confidence")}
    plain["reference"] = kept | {name: _pack(reference[name]) for name in _ARRAYS}
    return json.dumps(plain, ensure_ascii=False)


def parse(text: str | None, path: Path) -> About:
    """The description in the metadata of `path`, checked as a whole."""
    try:
        plain = json.loads(text or "")
        version = plain["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise wrong("path", "a file that shiftprism export wrote", f"{path} without our description", _ADVICE) from None
    if version != FORMAT:
        got = f"{path} of format {version!r:.20}, written by shiftprism {plain.get('shiftprism')!r:.20}"
        raise wrong("path", f"an exported file of format {FORMAT}", got, "read it with the version that wrote it")
    try:
        return _build(plain)
    except (ValueError, TypeError, KeyError, AssertionError, zlib.error) as error:
        raise wrong(
            "path", "a whole exported file", f"{path}, whose description is damaged ({error})", _ADVICE
        ) from None


def _build(plain: dict[str, Any]) -> About:
    names = tuple(plain["names"])
    packed = plain["reference"]
    reference = Reference(
        detector=plain["fingerprint"],
        names=names,
        flagged=float(packed["flagged"]),
        confidence=float(packed["confidence"]),
        calibrated=plain["calibrated"],
        **{name: _unpack(packed[name], np.int64 if name.endswith("counts") else np.float64) for name in _ARRAYS},
    )
    rest = {name: plain[name] for name in About._fields if name not in ("names", "held_out", "input", "reference")}
    sizes = tuple(plain["held_out"])
    about = About(**rest, names=names, held_out=sizes, input=Input(**plain["input"]), reference=reference)
    assert len(names) > 1, "fewer than two classes"
    assert len(sizes) == (len(names) if about.by_class else 1), "held_out"
    for score in ("style", "concept"):
        edges, counts = (getattr(reference, f"{score}_{part}") for part in ("edges", "counts"))
        assert counts.shape == (len(names), len(edges) + 1), f"{score}_counts"
    return about


def _pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array as JSON: its type, its shape and base64 of its compressed bytes."""
    kind = "<f8" if array.dtype.kind == "f" else "<i8"
    data = zlib.compress(np.ascontiguousarray(array, kind).tobytes(), 9)
    return {"dtype": kind, "shape": list(array.shape), "data": base64.b64encode(data).decode()}


def _unpack(packed: dict[str, Any], dtype: Any) -> NDArray[Any]:
    size = int(np.prod(packed["shape"], dtype=np.int64)) * 8
    raw = zlib.decompressobj().decompress(base64.b64decode(packed["data"], validate=True), max(size, 1))
    return np.frombuffer(raw, packed["dtype"]).reshape(packed["shape"]).astype(dtype)


def add_digest(model: bytes) -> bytes:
    """The bytes of a model with the digest of them as a last entry of its metadata."""
    return model + _tail(hashlib.sha256(model).hexdigest())


def read_checked(path: Path) -> bytes:
    """The bytes of an exported file; one that was cut off, changed or written by others is an error."""
    data = check_file(path).read_bytes()
    length = len(_tail("0" * 64))
    body, tail = data[:-length], data[-length:]
    if tail == _tail(hashlib.sha256(body).hexdigest()):
        return data
    if _DIGEST_KEY.encode() not in data and f'"{KEY}"'.encode() not in data:
        got = f"{path}, which has no metadata of ours"
        raise wrong("path", "a file that shiftprism export wrote", got, "make one with shiftprism export")
    raise wrong("path", "a whole exported file", f"{path}, which was cut off or changed", _ADVICE)


def _tail(digest: str) -> bytes:
    """ModelProto.metadata_props, field 14: an entry with the fields key (1) and value (2)."""

    def field(number: int, content: bytes) -> bytes:
        assert len(content) < 128, "longer lengths take two bytes"
        return bytes([number << 3 | 2, len(content)]) + content

    return field(14, field(1, _DIGEST_KEY.encode()) + field(2, digest.encode()))
