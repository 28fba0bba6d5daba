"""A Parquet file of verdicts that is made of parts: each is a file beside it until all are there. Rows are by path."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism._errors import wrong
from shiftprism._extras import need
from shiftprism._files import check_file, replacing
from shiftprism.cli._verdict_files import (
    COLUMNS,
    PART_KEYS,
    SKIPPED,
    make_schema,
    read_part_keys,
    waiting_parts,
    waiting_rows,
)

_ROWS_IN_GROUP = 10_000


class _Piece(NamedTuple):
    """A row group of a file, whose rows are in the order of their paths."""

    first: str
    last: str
    path: Path
    group: int


class VerdictParts:
    """A file of verdicts that grows by parts. What another run of the same detector wrote stays.

    A part is whole or absent. They wait in a folder beside the file; `finish` makes the file of them.
    """

    def __init__(self, path: Path, detector: str, force: bool) -> None:
        if path.suffix.lower() != ".parquet":
            raise wrong("--to", "a .parquet file with --cluster", path, "name it verdicts.parquet, say")
        need("pyarrow.parquet", "parquet")
        self.path, self.detector, self.replaced = path, detector, force
        self.folder = waiting_parts(path)
        if not force and waiting_rows(path).exists():
            advice = "finish it with the same command as before, or add --force to begin anew"
            raise wrong("--to", "a file that no other run is writing", f"{waiting_rows(path)}, which waits", advice)
        check_file(path)
        self.paths: set[str] = set()
        """Of the rows that are there."""
        self.keys: set[str] = set() if force else set(read_part_keys(path))
        """Of the parts that are there."""
        self._joined = set(self.keys)
        for file in [] if force else self._list_files():
            self._take(file)

    def start(self) -> None:
        """Remove what is to be replaced. Until now nothing was lost."""
        if self.replaced:
            for file in (self.path, waiting_rows(self.path)):
                file.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, key: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a part, whole or not at all."""
        arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
        ordered = sorted(rows, key=lambda row: str(row["path"]))
        schema = make_schema()
        with replacing(self.folder / f"{key}.parquet") as beside:
            parquet.write_table(arrow.Table.from_pylist(ordered, schema), beside, row_group_size=_ROWS_IN_GROUP)
        self.keys.add(key)

    def finish(self) -> Counter[str]:
        """Make the file of what it had and of all parts, in the order of the paths, and count the kinds.

        Row groups whose paths overlap are sorted together; others are copied one by one, so that memory does not grow
        with the file.
        """
        parquet = need("pyarrow.parquet", "parquet")
        kinds: Counter[str] = Counter()
        schema = make_schema().with_metadata({PART_KEYS: json.dumps(sorted(self.keys))})
        if self.folder.exists() or not self.path.exists():
            with replacing(self.path) as beside, parquet.ParquetWriter(beside, schema) as writer:
                for table in self._sort():
                    writer.write_table(table.replace_schema_metadata(schema.metadata), _ROWS_IN_GROUP)
            shutil.rmtree(self.folder, ignore_errors=True)
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_ROWS_IN_GROUP, columns=["kind"]):
                kinds.update(kind or SKIPPED for kind in batch.column(0).to_pylist())
        return kinds

    def _list_files(self) -> list[Path]:
        parts = sorted(self.folder.glob("*.parquet")) if self.folder.is_dir() else []
        # a run that was killed between the two last steps left parts that are in the file already
        parts = [path for path in parts if not path.name.startswith(".") and path.stem not in self._joined]
        return [self.path, *parts] if self.path.exists() else parts

    def _take(self, path: Path) -> None:
        """Note what is in a file, if it is ours and of this detector."""
        arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
        advice = "choose another file, or add --force to replace it"
        try:
            with parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
                if schema.names != list(COLUMNS):
                    raise arrow.ArrowInvalid("it has other columns")
                self.keys.update([path.stem] if path != self.path else [])
                for batch in file.iter_batches(_ROWS_IN_GROUP, columns=["path", "detector"]):
                    self.paths.update(batch.column(0).to_pylist())
                    other = set(batch.column(1).unique().to_pylist()) - {self.detector}
                    if other:
                        got = f"{path} of {other.pop()}, and this is {self.detector}"
                        raise wrong("--to", "new, or written by the same detector at the same level,", got, advice)
        except arrow.ArrowException as error:
            got = f"{path} ({' '.join(str(error).split()):.80})"
            raise wrong("--to", "new, or a file of verdicts", got, advice) from error

    def _sort(self) -> Iterator[Any]:
        """The rows of all files as tables, in the order of the paths."""
        arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
        pieces = sorted(piece for path in self._list_files() for piece in _list_pieces(path))
        while pieces:
            together, last = [pieces[0]], pieces[0].last
            while len(together) < len(pieces) and pieces[len(together)].first <= last:
                last = max(last, pieces[len(together)].last)
                together.append(pieces[len(together)])
            pieces = pieces[len(together) :]
            tables = []
            for piece in together:
                with parquet.ParquetFile(piece.path) as file:
                    tables.append(file.read_row_group(piece.group))
            table = tables[0] if len(tables) == 1 else arrow.concat_tables(tables)
            yield table.sort_by("path")


def _list_pieces(path: Path) -> Iterator[_Piece]:
    parquet, compute = need("pyarrow.parquet", "parquet"), need("pyarrow.compute", "parquet")
    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            # not the file's own statistics, which may be cut short
            ends = compute.min_max(file.read_row_group(group, columns=["path"]).column(0)).as_py()
            if ends["min"] is not None:
                yield _Piece(ends["min"], ends["max"], path, group)
