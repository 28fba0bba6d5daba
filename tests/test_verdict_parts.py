"""Parquet files of verdicts that are made of parts, and what is left where a run was killed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from shiftprism.archives import ScoredImage
from shiftprism.cli._verdict_files import VerdictFile, make_row
from shiftprism.cli._verdict_parts import VerdictParts

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def rows_of(paths: list[str], detector: str = "d") -> list[dict[str, Any]]:
    return [make_row(ScoredImage(path, None, -1, f"reason of {path}"), detector) for path in paths]


def test_parts_become_one_file_in_the_order_of_the_paths(tmp_path: Path) -> None:
    """Fails if a row group that overlaps another is copied before it, or rows of the first run are lost."""
    to = tmp_path / "v.parquet"
    first = VerdictParts(to, "d", force=False)
    first.add("one", rows_of(["b/3", "b/1", "ä", "a/9"]))
    first.add("two", rows_of(["c", "b/2"]))
    assert first.finish() == {"skipped": 6}
    assert not first.folder.exists()
    second = VerdictParts(to, "d", force=False)
    assert (second.keys, second.paths) == ({"one", "two"}, {"b/3", "b/1", "ä", "a/9", "c", "b/2"})
    second.add("three", rows_of(["b/25", "0"]))
    second.finish()
    found = parquet.read_table(to).to_pylist()
    expected = sorted(["b/3", "b/1", "ä", "a/9", "c", "b/2", "b/25", "0"])
    assert [row["path"] for row in found] == expected
    assert [row["problem"] for row in found] == [f"reason of {path}" for path in expected]
    assert VerdictParts(to, "d", force=False).keys == {"one", "two", "three"}


def test_a_run_killed_while_it_removes_its_parts_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "v.parquet"
    first = VerdictParts(to, "d", force=False)
    first.add("one", rows_of(["a"]))
    first.add("two", rows_of(["b"]))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *words, **options: None)
        first.finish()
    (first.folder / "one.parquet").unlink()
    second = VerdictParts(to, "d", force=False)
    second.add("three", rows_of(["c"]))
    assert second.finish() == {"skipped": 3}
    assert not second.folder.exists()


def test_a_run_on_one_machine_keeps_what_a_cluster_did(tmp_path: Path) -> None:
    to = tmp_path / "v.parquet"
    first = VerdictParts(to, "d", force=False)
    first.add("one", rows_of(["shard.tar/a"]))
    with pytest.raises(ValueError, match=r"that no cluster is writing but got .*v\.parquet\.parts, which waits"):
        VerdictFile(to, "d", force=False)
    first.finish()
    alone = VerdictFile(to, "d", force=False)
    alone.append(rows_of(["b.png"])[0])
    with pytest.raises(ValueError, match=r"that no other run is writing but got .*v\.parquet\.part\.jsonl, which"):
        VerdictParts(to, "d", force=False)
    alone.close(finished=True)
    again = VerdictParts(to, "d", force=False)
    assert (again.keys, again.paths) == ({"one"}, {"shard.tar/a", "b.png"})


def test_force_removes_nothing_before_it_starts(tmp_path: Path) -> None:
    to = tmp_path / "v.parquet"
    first = VerdictParts(to, "d", force=False)
    first.add("one", rows_of(["a"]))
    first.finish()
    anew = VerdictParts(to, "e", force=True)
    assert (anew.keys, anew.paths, to.exists()) == (set(), set(), True)
    anew.start()
    assert not to.exists()


def test_parts_of_another_detector_are_refused(tmp_path: Path) -> None:
    to = tmp_path / "v.parquet"
    VerdictParts(to, "d", force=False).add("one", rows_of(["a"]))
    with pytest.raises(ValueError, match=r"written by the same detector .* of d, and this is e; "):
        VerdictParts(to, "e", force=False)
    assert VerdictParts(to, "e", force=True).paths == set()
    parquet.write_table(arrow.table({"x": [1]}), to)
    with pytest.raises(ValueError, match="it has other columns"):
        VerdictParts(to, "d", force=False)
    with pytest.raises(ValueError, match=r"a \.parquet file with --cluster but got v\.csv"):
        VerdictParts(Path("v.csv"), "d", force=False)
