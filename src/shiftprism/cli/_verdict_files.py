"""Files of verdicts: csv and jsonl grow row by row and survive being killed; parquet is made of rows at the end."""

import csv
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftprism._errors import wrong
from shiftprism._extras import need
from shiftprism._files import check_file, replacing

if TYPE_CHECKING:
    from shiftprism.archives import ScoredImage
    from shiftprism.detector import FileVerdict

ENDINGS = (".csv", ".jsonl", ".parquet")
NUMBERS = ("confidence", "style", "concept", "p_covariate", "p_concept", "p_combined")
COLUMNS = ("path", "label", "name", "kind", *NUMBERS, "calibrated", "problem", "detector")
"""`label` is the number of the class and `name` its name. A row with a `problem` has no verdict."""
SKIPPED = "skipped"
PART_KEYS = b"shiftprism.parts"
"""Of the keys of the parts that a cluster put into a Parquet file, JSON, in its metadata."""
_ROWS_IN_GROUP = 10_000


def path_text(path: str | Path) -> str:
    """A path as it stands in a file: names that are not Unicode have their bytes escaped."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def make_row(file: "FileVerdict | ScoredImage", detector: str) -> dict[str, Any]:
    """One row; its keys are `COLUMNS`."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"path": path_text(file.path), "problem": file.problem, "detector": detector}
    if file.verdict is not None:
        row |= {"label": file.label, **file.verdict._asdict()}
    return row


class VerdictFile:
    """A file that rows are appended to. What another run of the same detector wrote to it stays.

    A row is whole or absent: the part of one at the end of the file, where a run was killed, is cut off.
    """

    def __init__(self, path: Path, detector: str, force: bool) -> None:
        if path.suffix.lower() not in ENDINGS:
            raise wrong("--to", f"a file that ends in {', '.join(ENDINGS)}", path, "name it verdicts.csv, say")
        self.path, self.detector = path, detector
        self.parquet = path.suffix.lower() == ".parquet"
        if self.parquet:
            need("pyarrow", "parquet")
        # rows of a parquet file wait in a jsonl file beside it: parquet has its index at the end and cannot grow
        self.rows_path = waiting_rows(path) if self.parquet else path
        if self.parquet and not force and waiting_parts(path).exists():
            advice = "finish it with the same command as before, or add --force to begin anew"
            raise wrong("--to", "a file that no cluster is writing", f"{waiting_parts(path)}, which waits", advice)
        if force:
            self.rows_path.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            shutil.rmtree(waiting_parts(path), ignore_errors=True)
        check_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.parquet and path.exists() and not self.rows_path.exists():
            _write_lines(self.rows_path, _read_parquet(path))
        self.kinds: dict[str, str] = self._keep_whole_rows()
        """path -> kind, or SKIPPED, of the rows that are there."""
        self._file = self.rows_path.open("a", encoding="utf-8", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS)
        if self.rows_path.suffix.lower() == ".csv" and self._file.tell() == 0:
            self._writer.writeheader()

    def append(self, row: dict[str, Any]) -> None:
        """Add a row; `flush` makes it survive the end of this process."""
        if self.rows_path.suffix.lower() == ".csv":
            self._writer.writerow(row)
        else:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        """Hand the rows so far to the operating system."""
        self._file.flush()

    def close(self, finished: bool) -> None:
        """Put the rows on the disk; of a `finished` parquet file, make the file itself."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if finished and self.parquet:
            _write_parquet(self.path, _read_lines(self.rows_path), read_part_keys(self.path))
            self.rows_path.unlink()

    def _keep_whole_rows(self) -> dict[str, str]:
        if not self.rows_path.exists() or not self.rows_path.stat().st_size:
            return {}
        if not _begins_as_ours(self.rows_path):
            raise _other_file(self.path, ValueError("it does not begin as one"))
        _cut_half_row(self.rows_path)
        read = _read_csv if self.rows_path.suffix.lower() == ".csv" else _read_lines
        kinds: dict[str, str] = {}
        for number, row in enumerate(read(self.rows_path), 1):
            if not _is_row(row):
                got, advice = f"{self.path}, where row {number} is none of ours", "choose another file, or add --force"
                raise wrong("--to", "new, or a file of verdicts", got, advice)
            if row["detector"] != self.detector:
                got = f"{self.path} of {row['detector']}, and this is {self.detector}"
                advice = "choose another file, or add --force to replace it"
                raise wrong("--to", "new, or written by the same detector at the same level,", got, advice)
            kinds[str(row["path"])] = str(row["kind"] or SKIPPED)
        return kinds


def _is_row(row: dict[str, Any]) -> bool:
    """Whether a row has our columns, and either a kind or a problem."""
    from shiftprism.verdicts import KINDS

    if set(row) != set(COLUMNS) or not row["path"]:
        return False
    return row["kind"] in KINDS and not row["problem"] if row["kind"] else bool(row["problem"])


def _begins_as_ours(path: Path) -> bool:
    """Whether the first line is ours, or the beginning of it: a file of others is never cut."""
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    if path.suffix.lower() == ".csv":
        return (",".join(COLUMNS) + "\r\n").encode().startswith(first)
    return first.startswith(b'{"path":')


def _cut_half_row(path: Path) -> None:
    """Cut off what follows the last whole row.

    In a csv file a quoted field may hold line ends, so a row is whole where the number of quotes before it is even.
    """
    quoted = path.suffix.lower() == ".csv"
    whole = place = quotes = 0
    with path.open("rb+") as file:
        for line in file:
            place += len(line)
            quotes += line.count(b'"') if quoted else 0
            if line.endswith(b"\n") and quotes % 2 == 0:
                whole = place
        file.truncate(whole)


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            yield from csv.DictReader(file, strict=True)
        except (csv.Error, UnicodeDecodeError) as error:
            raise _other_file(path, error) from error


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        try:
            for line in file:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("a line that is no object")
                yield row
        except (ValueError, RecursionError) as error:
            raise _other_file(path, error) from error


def _other_file(path: Path, error: Exception) -> ValueError:
    got = f"{path} ({' '.join(str(error).split()):.80})"
    return wrong("--to", "new, or a file of verdicts", got, "choose another file, or add --force to replace it")


def _write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with replacing(path) as beside, beside.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def make_schema() -> Any:
    """Of a Parquet file of verdicts."""
    arrow = need("pyarrow", "parquet")
    types = {name: arrow.float64() for name in NUMBERS} | {"label": arrow.int64(), "calibrated": arrow.bool_()}
    return arrow.schema([(name, types.get(name, arrow.string())) for name in COLUMNS])


def waiting_rows(path: Path) -> Path:
    """Where the rows of a Parquet file wait that one machine writes."""
    return path.with_name(f"{path.name}.part.jsonl")


def waiting_parts(path: Path) -> Path:
    """The folder where the parts of a Parquet file wait that a cluster writes."""
    return path.with_name(f"{path.name}.parts")


def read_part_keys(path: Path) -> list[str]:
    """The keys of the parts that a cluster put into a Parquet file; of another file, or none, there are none."""
    arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    if not path.exists():
        return []
    try:
        return list(json.loads((parquet.read_schema(path).metadata or {}).get(PART_KEYS, b"[]")))
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise _other_file(path, error) from error


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], keys: list[str]) -> None:
    """The rows in groups, so that memory stays flat."""
    arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    schema = make_schema().with_metadata({PART_KEYS: json.dumps(keys)})
    with replacing(path) as beside, parquet.ParquetWriter(beside, schema) as writer:
        group: list[dict[str, Any]] = []
        for row in rows:
            group.append(row)
            if len(group) == _ROWS_IN_GROUP:
                writer.write_table(arrow.Table.from_pylist(group, schema))
                group = []
        writer.write_table(arrow.Table.from_pylist(group, schema))


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_IN_GROUP):
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise _other_file(path, error) from error
