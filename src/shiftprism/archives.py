"""Archives of images (folders, tar shards, Parquet files) in parts, which the workers of a Ray cluster score.

The model is an exported file: it goes to each worker once, and onnxruntime runs it there. A part that a lost worker had
is scored again by another. Nothing is written here: results come back to the caller, part by part.
"""

import hashlib
import os
import posixpath
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from shiftprism._errors import wrong
from shiftprism._extras import need
from shiftprism._tasks import check_shared_disk, connect, run_tasks
from shiftprism.datasets import MOST_BYTES, NOTES, EncodedImage, list_images
from shiftprism.detector import score_files
from shiftprism.runtime import ExportedDetector, load
from shiftprism.verdicts import Verdict

__all__ = ["Part", "PartResult", "ScoredImage", "find_kind", "list_parts", "list_places", "score_parts"]

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PARQUET = (".parquet",)
FILES_IN_PART = 256
"""A part of image files: seconds to minutes of one worker, which is what a lost worker costs."""
_BESIDE = frozenset((".cls", ".id", ".index", ".key"))
"""What WebDataset keeps beside an image, further to notes."""
_PATH_COLUMNS = ("path", "file_name", "filename", "file", "key", "__key__", "url", "id")
_ROWS = 64
"""Rows of a Parquet file that are read at a time."""
_UNKNOWN_GROUPS = -1
"""The row group of a Parquet file that could not be opened when it was listed."""
_REMOTE_THREADS = 8
"""Threads of a worker that read images over a network: each waits most of the time."""


class Part(NamedTuple):
    """What one worker scores at a time: some image files, a tar shard, or a row group of a Parquet file."""

    kind: Literal["files", "tar", "parquet"]
    names: tuple[str, ...]
    """The files as they are named in the results, or the one archive."""
    folder: str = ""
    """What relative names are relative to."""
    group: int = 0
    """The row group."""
    columns: tuple[str, ...] = ()
    """Of a Parquet file: the column of images, and that of their names where there is one."""

    @property
    def key(self) -> str:
        """Equal for equal parts, here and in a later run."""
        text = "\n".join((self.kind, str(self.group), *self.columns, *self.names))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]


class ScoredImage(NamedTuple):
    """What was decided about an image, or why nothing was; as `detector.FileVerdict`, with a name for the path."""

    path: str
    """The file, or archive/name."""
    verdict: Verdict | None
    label: int
    problem: str


class PartResult(NamedTuple):
    """The images of a part in order, or the reason why the part failed."""

    part: Part
    images: list[ScoredImage]
    error: str


def list_places(words: "Iterable[str | Path]") -> Iterator[str]:
    """Each file that is named, and every file in and below a folder or a URI that is named, in order of their names.

    Hidden files and notes in a folder are left out, as by `datasets.list_images`.
    """
    for word in words:
        if not is_uri(word):
            yield from map(os.fspath, list_images(word))
            continue
        yield from _list_storage(str(word).rstrip("/"))


def _list_storage(place: str) -> Iterator[str]:
    system, path = _open_place(place, "")
    files = need("pyarrow.fs", "parquet")
    try:
        if system.get_file_info(path).is_file:
            yield place
            return
        found = system.get_file_info(files.FileSelector(path, recursive=True))
    except OSError as error:
        raise wrong("images", "in a storage that answers", f"{place} ({_one_line(error)})", "correct it") from error
    names = sorted(file.path for file in found if file.is_file)
    yield from (f"s3://{name}" for name in names if not _is_beside(name.removeprefix(path), NOTES))


def is_uri(word: "str | Path") -> bool:
    """Whether it is in a storage, s3://bucket/folder, and not on a disk. Another scheme is an error.

    >>> is_uri("s3://photos/2026"), is_uri("photos/2026")
    (True, False)
    """
    scheme, separator, _ = str(word).partition("://")
    if not isinstance(word, str) or not separator or "/" in scheme:
        return False
    if scheme != "s3":
        raise wrong("images", "files, folders or s3://bucket/folder", word, "copy the images to one of these")
    return True


def find_kind(name: str) -> Literal["files", "tar", "parquet"]:
    """How a file is read, by the end of its name."""
    lower = name.lower()
    return "tar" if lower.endswith(TAR) else "parquet" if lower.endswith(PARQUET) else "files"


def list_parts(
    names: Iterable[str], column: str | None = None, *, files: int = FILES_IN_PART, folder: str | None = None
) -> Iterator[Part]:
    """The parts of the files `names`: `files` images each, each tar shard, each row group of a Parquet file.

    `column` names the images of a Parquet file; by default its only column of bytes, or of structures with `bytes` and
    `path`. Without such a column, the column of paths names image files beside it.

    >>> [(part.kind, part.names) for part in list_parts(["a.jpg", "b.tar", "c.jpg", "d.jpg"], files=2)]
    [('tar', ('b.tar',)), ('files', ('a.jpg', 'c.jpg')), ('files', ('d.jpg',))]
    """
    folder = os.getcwd() if folder is None else folder
    waiting: list[str] = []
    for name in names:
        kind = find_kind(name)
        if kind == "tar":
            yield Part("tar", (name,), folder)
        elif kind == "parquet":
            yield from _list_row_groups(name, folder, column)
        else:
            waiting.append(name)
        if len(waiting) == files:
            yield Part("files", tuple(waiting), folder)
            waiting = []
    if waiting:
        yield Part("files", tuple(waiting), folder)


def score_parts(
    model: "str | Path", parts: Sequence[Part], cluster: str = "local", false_alarm: float | None = None
) -> Iterator[PartResult]:
    """The results of all parts, in the order they end, from the workers of a Ray cluster.

    `model` is an exported file on this machine. `cluster` is the address of a running cluster, or "local" for one on
    the cores of this machine. Image files and archives must be where every worker reads them, under the same names.
    Each task has one core: a thread decodes while another computes.
    """
    data = Path(model).read_bytes()
    load(model)  # what is wrong about the file is said before anything starts
    if not parts:
        return
    with connect(cluster) as ray:
        shared = _Model(hashlib.sha256(data).hexdigest(), ray.put(data), false_alarm)
        for task in run_tasks(partial(_score_part, shared), parts, cluster=cluster, device="cpu"):
            yield PartResult(parts[task.number], task.result or [], task.error)


class _Model(NamedTuple):
    """An exported file in the cluster's memory."""

    digest: str
    reference: Any
    false_alarm: float | None


_OPENED: dict[tuple[str, float | None], ExportedDetector] = {}
"""Of this worker: the model is loaded once, and not for each part."""


def _open_model(model: _Model) -> ExportedDetector:
    key = (model.digest, model.false_alarm)
    if key not in _OPENED:
        ray = need("ray", "cluster")
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(ray.get(model.reference))
            file.flush()
            detector = load(file.name, threads=1)
        if model.false_alarm is not None:
            detector = detector.at(model.false_alarm, detector.confidence)
        _OPENED.clear()  # a worker that is used again for another model keeps one
        _OPENED[key] = detector
    return _OPENED[key]


def _score_part(model: _Model, part: Part, threads: int, device: str) -> list[ScoredImage]:
    """In a worker: the verdicts on the images of a part."""
    check_shared_disk(os.path.join(part.folder, name) for name in part.names if not is_uri(name))
    detector = _open_model(model)
    names: deque[str] = deque()
    problems: list[ScoredImage] = []

    def listed() -> Iterator[Path | EncodedImage]:
        for name, read in _read_part(part, problems):
            names.append(name)
            yield read if isinstance(read, Path) else EncodedImage(Path(name), read)

    remote = part.kind == "files" and any(map(is_uri, part.names))
    scored = score_files(
        lambda images: detector(images.numpy()),
        listed(),
        prepare=lambda image: torch.from_numpy(detector.prepare(image.numpy())),
        threads=_REMOTE_THREADS if remote else threads,
    )
    images = [ScoredImage(names.popleft(), file.verdict, file.label, file.problem) for file in scored]
    return images + problems


_Read = Path | Callable[[], bytes]
_Named = tuple[str, _Read]
"""The name of an image, and its file or what returns its bytes."""


def _read_part(part: Part, problems: list[ScoredImage]) -> Iterator[_Named]:
    """Each image of a part, in order. An archive that breaks off is a problem."""
    if part.kind == "files":
        yield from _read_files(part)
        return
    (archive,) = part.names
    count = 0
    try:
        read = _read_tar(part, archive) if part.kind == "tar" else _read_row_group(part, archive)
        for item in read:
            count += 1
            yield item
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        if is_uri(archive) and _is_failure(error):
            raise _StorageFailure(f"{archive} ({_one_line(error)})") from error
        reason = f"the archive cannot be read after {count} images ({_one_line(error)})"
        problems.append(ScoredImage(archive, None, -1, reason))


def _read_files(part: Part) -> Iterator[_Named]:
    for name in part.names:
        yield name, partial(_read_remote, name) if is_uri(name) else Path(part.folder, name)


class _StorageFailure(RuntimeError):
    """A storage did not answer, or not this worker: the part fails, and a later run tries it again.

    No OSError, which would be the reason of a single image.
    """


def _is_failure(error: Exception) -> bool:
    """Whether it is the storage that failed, and not that a file is missing or damaged. pyarrow's errors are alike."""
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and "AWS Error" in str(error)


def _read_remote(name: str) -> bytes:
    try:
        system, path = _open_place(name, "")
        with system.open_input_stream(path) as file:
            content: bytes = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise _StorageFailure(f"{name} ({_one_line(error)})") from error
    return content


class _TarMember(tarfile.TarInfo):
    """A member whose header must be whole: `tarfile` takes a damaged or missing one for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "_TarMember":
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # the block of zeros that ends an archive
                raise
            raise tarfile.ReadError(f"it breaks off: {error}") from error


def _read_tar(part: Part, archive: str) -> Iterator[_Named]:
    system, path = _open_place(archive, part.folder)
    with system.open_input_stream(path, compression=None) as file, _open_tar(file) as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # otherwise it keeps all of them
            if not member.isfile() or _is_beside(member.name, NOTES | _BESIDE):
                continue
            name = posixpath.join(archive, member.name.removeprefix("./").lstrip("/"))
            if member.size > MOST_BYTES:
                yield name, partial(_refuse, f"it has {member.size:,} bytes, and at most {MOST_BYTES:,} are read")
                continue
            content = tar.extractfile(member)
            assert content is not None, "isfile"
            yield name, partial(bytes, content.read())


def _open_tar(file: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|*", tarinfo=_TarMember)


def _read_row_group(part: Part, archive: str) -> Iterator[_Named]:
    parquet = need("pyarrow.parquet", "parquet")
    system, path = _open_place(archive, part.folder)
    images, *named = part.columns
    # Without these settings the whole row group would be in memory, twice.
    settings = {"pre_buffer": False, "buffer_size": 1 << 20}
    with system.open_input_file(path) as opened, parquet.ParquetFile(opened, **settings) as file:
        if part.group == _UNKNOWN_GROUPS:
            raise _StorageFailure(f"{archive} could not be read when it was listed, and can be now; start again")
        first = sum(file.metadata.row_group(group).num_rows for group in range(part.group))
        for batch in file.iter_batches(_ROWS, row_groups=[part.group], columns=list(part.columns)):
            for row in batch.to_pylist():
                value: Any = row[images]
                name = row[named[0]] if named else None
                if isinstance(value, dict):
                    content, own = value.get("bytes"), value.get("path")
                    value, name = own if content is None else content, name or own
                name = value if isinstance(value, str) and name is None else name
                yield f"{archive}/{first if name is None else name}", _find_image(value, archive, part.folder)
                first += 1


def _find_image(value: Any, archive: str, folder: str) -> _Read:
    """The image of a row: its bytes, or the file that it names."""
    if isinstance(value, bytes):
        return partial(bytes, value)
    if not value:
        return partial(_refuse, "this row has no image")
    try:
        remote = is_uri(value)
    except ValueError as error:  # http://, say
        return partial(_refuse, _one_line(error))
    if remote:
        return partial(_read_remote, value)
    if is_uri(archive):
        return partial(_read_remote, f"{posixpath.dirname(archive)}/{value}")
    return Path(folder, archive).parent / str(value)


def _refuse(reason: str) -> bytes:
    raise OSError(reason)


def _list_row_groups(name: str, folder: str, column: str | None) -> Iterator[Part]:
    arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    system, path = _open_place(name, folder)
    try:
        with system.open_input_file(path) as opened, parquet.ParquetFile(opened) as file:
            columns, groups = _choose_columns(file.schema_arrow, name, column), file.num_row_groups
    except (OSError, arrow.ArrowException) as error:
        if is_uri(name) and _is_failure(error):
            raise wrong("images", "in a storage that answers", f"{name} ({_one_line(error)})", "try again") from error
        yield Part("parquet", (name,), folder, _UNKNOWN_GROUPS, (column or "image",))  # its one row says why
        return
    yield from (Part("parquet", (name,), folder, group, columns) for group in range(groups))


def _choose_columns(schema: Any, name: str, column: str | None) -> tuple[str, ...]:
    """The column of images, and that of their names where there is one."""
    types = need("pyarrow.types", "parquet")

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(field.name == "bytes" and holds_bytes(field.type) for field in kind)
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    texts = {field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)}
    named = [one for one in _PATH_COLUMNS if one in texts]
    found = [field.name for field in schema if holds_bytes(field.type)]
    if column is not None:
        if column not in found and column not in texts:
            got = f"{column!r}, and {name} has {', '.join(schema.names)}"
            raise wrong("--column", "a column of images", got, "name one of bytes, or of paths")
        found = [column]
    if len(found) > 1:
        got = f"{name} with {', '.join(found)}"
        raise wrong("images", "a Parquet file with one column of bytes", got, f"say which: --column {found[0]}")
    if not found and not named:
        got = f"{name} with {', '.join(schema.names)}"
        raise wrong("images", "a Parquet file with a column of images", got, "name one of paths with --column")
    images = found[0] if found else named[0]
    return (images, named[0]) if named and named[0] != images else (images,)


def _is_beside(name: str, endings: frozenset[str]) -> bool:
    """Whether it is hidden, or no image but something about one."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return any(part.startswith(".") for part in parts) or os.path.splitext(name)[1].lower() in endings


def _open_place(name: str, folder: str) -> tuple[Any, str]:
    """The file system of pyarrow and the path in it."""
    if is_uri(name):
        path = name.removeprefix("s3://")
        return _open_bucket(path.partition("/")[0]), path
    return need("pyarrow.fs", "parquet").LocalFileSystem(), os.path.join(folder, name)


@lru_cache(maxsize=16)
def _open_bucket(bucket: str) -> Any:
    """The storage of a bucket, with the credentials, region and endpoint of AWS's own environment variables."""
    files = need("pyarrow.fs", "parquet")
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    scheme, _, host = endpoint.rpartition("://")
    try:
        region = region or ("us-east-1" if endpoint else files.resolve_s3_region(bucket))
        return files.S3FileSystem(region=region, endpoint_override=host or None, scheme=scheme or "https")
    except OSError as error:
        got = f"s3://{bucket} ({_one_line(error)})"
        raise wrong("images", "in a bucket that can be reached", got, "set AWS_REGION, or correct the name") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
