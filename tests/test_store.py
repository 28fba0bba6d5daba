"""The store: the same tests on SQLite and on PostgreSQL."""

import csv
import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from postgres import Server
from shiftprism.store import (
    NO_CLASS,
    Observation,
    Observations,
    Store,
    StoreError,
    Stream,
    export,
    make_observations,
    open_store,
)
from shiftprism.verdicts import ARRAYS, KINDS, Verdicts


class Chain:
    """A fold whose state is a chain of digests: it tells orders, gaps and repetitions apart, whatever the batches."""

    def update(self, state: bytes, observations: Observations) -> bytes:
        for id_, style in zip(observations.id, observations.verdicts.style.tolist(), strict=True):
            state = hashlib.sha256(state + f"{id_} {style!r}".encode()).digest()
        return state

    def reset(self, state: bytes, reason: str) -> bytes:
        return hashlib.sha256(b"reset " + state + reason.encode()).digest()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "store.sqlite")
    running: Server = request.getfixturevalue("postgres")
    return running.make_database(f"test_{uuid.uuid4().hex}")


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_store(where) as opened:
        yield opened


def made_verdicts(n: int, seed: int = 0) -> Verdicts:
    rng = np.random.default_rng(seed)
    numbers = {name: rng.normal(size=n) for name in ARRAYS[1:-1]}
    labels, kinds = rng.integers(0, 3, n), rng.choice(KINDS, n)
    return Verdicts(label=labels, kind=kinds, **numbers, names=("a", "b", "ç"), calibrated=False)


def new_stream(store: Store, detector: str = "abc", model: str = "digits") -> Stream:
    return store.open_stream(model, detector, ("a", "b", "ç"), calibrated=False, state=b"start")


def made(stream: Stream, n: int, seed: int = 0, time: float = 1000.0) -> list[Observation]:
    return make_observations(
        made_verdicts(n, seed), [str(uuid.uuid4()) for _ in range(n)], stream.number, f"request-{seed}", time
    )


def test_what_was_appended_is_read_bit_for_bit_and_in_order(store: Store, where: str) -> None:
    stream = new_stream(store)
    verdicts, ids = made_verdicts(300), [str(uuid.uuid4()) for _ in range(300)]
    store.append(make_observations(verdicts, ids, stream.number, "r1", 1234.5678))
    with open_store(where) as again:  # another process would see the same
        found = again.read(stream)
        assert again.read(stream, after=int(found.sequence[9]), limit=5).id == tuple(ids[10:15])
    assert found.id == tuple(ids)
    assert set(found.request) == {"r1"}
    assert set(found.time.tolist()) == {1234.5678}
    assert np.isnan(found.truth).all()
    assert (np.diff(found.sequence) > 0).all()
    for name in ARRAYS:
        assert (getattr(found.verdicts, name) == getattr(verdicts, name)).all(), name
    assert found.verdicts.names == verdicts.names
    assert not found.verdicts.calibrated


def test_an_append_is_whole_or_absent(store: Store) -> None:
    stream = new_stream(store)
    one, two = made(stream, 2)
    store.append([one])
    with pytest.raises(StoreError):
        store.append([two, one])  # the second has an id that is there
    assert store.read(stream).id == (one.id,)


def test_numbers_that_are_not_finite_are_refused() -> None:
    good = made_verdicts(1)
    bad = replace(good, style=good.style * np.nan)
    with pytest.raises(ValueError, match="Expected `style` to be finite"):
        make_observations(bad, ["x"], 1, "r", 0.0)


def test_a_new_detector_has_a_stream_of_its_own(store: Store) -> None:
    first, second = new_stream(store, "abc"), new_stream(store, "def")
    assert first.number != second.number
    assert new_stream(store, "abc")[:5] == first[:5]
    store.append(made(second, 3))
    assert len(store.read(first)) == 0
    assert [each.detector for each in store.streams()] == ["abc", "def"]


def test_truth_comes_late_and_may_be_corrected(store: Store) -> None:
    stream, other = new_stream(store), new_stream(store, "other")
    rows = made(stream, 4)
    store.append(rows)
    missing = str(uuid.uuid4())
    truths = {rows[0].id: rows[0].label, rows[1].id: NO_CLASS, missing: 1}
    store.label(truths)
    assert store.accuracy(stream) == (2, 1)
    store.label({rows[1].id: rows[1].label})
    assert store.accuracy(stream) == (2, 2)
    assert store.read(stream).truth.tolist()[:2] == [rows[0].label, rows[1].label]
    store.append(elsewhere := made(other, 1, 1))
    places = store.locate([rows[0].id, missing, elsewhere[0].id])
    assert {id_: place.detector for id_, place in places.items()} == {rows[0].id: "abc", elsewhere[0].id: "other"}


def test_images_are_stored_only_where_they_are_given(store: Store) -> None:
    stream = new_stream(store)
    without, with_image = made(stream, 2)
    store.append([without, with_image._replace(image=b"\x00picture\xff")])
    assert store.image(without.id) is None
    assert store.image(with_image.id) == b"\x00picture\xff"


def test_state_equals_a_replay_through_resets_and_pruning(store: Store) -> None:
    stream, fold = new_stream(store), Chain()
    expected = b"start"
    every: list[Observation] = []
    for number, size in enumerate((1, 5000, 3, 70)):
        rows = made(stream, size, seed=number, time=1000.0 + number)
        every += rows
        store.append(rows)
        while store.fold(stream, fold):
            pass
        for row in rows:  # by hand, one after the other
            expected = hashlib.sha256(expected + f"{row.id} {row.style!r}".encode()).digest()
        if number in (0, 2):
            store.reset(stream, fold, f"reason {number}")
            expected = hashlib.sha256(b"reset " + expected + f"reason {number}".encode()).digest()
    last = int(store.read(stream, after=0, limit=10000).sequence[-1])
    assert store.state(stream) == (last, expected)
    assert store.replay(stream, fold) == (last, expected, expected)
    for before, gone in ((1000.5, 1), (1001.0, 0), (1002.5, 5003), (2000.0, 70)):
        assert store.prune(before, fold) == gone
        assert store.replay(stream, fold) == (last, expected, expected)
    assert len(store.read(stream)) == 0
    store.reset(stream, fold, "nothing is left")
    _, replayed, stored = store.replay(stream, fold)
    assert replayed == stored != expected


def test_pruning_spares_what_is_not_folded_and_takes_images_along(store: Store) -> None:
    stream = new_stream(store)
    old, new = made(stream, 1, 0, time=1.0), made(stream, 1, 1, time=2.0)
    store.append([old[0]._replace(image=b"x")])
    assert store.prune(10.0, Chain()) == 0
    store.fold(stream, Chain())
    store.append(new)
    assert store.prune(10.0, Chain()) == 1
    assert store.read(stream).id == (new[0].id,)
    assert store.image(old[0].id) is None


def test_appends_from_many_threads_are_folded_once_each(store: Store, where: str) -> None:
    """Numbers are given before a commit: a folder that trusts the highest number it sees would leave some out."""
    stream, fold = new_stream(store), Chain()
    batches = [made(stream, 3, seed) for seed in range(60)]
    failures: list[BaseException] = []

    def append(part: list[list[Observation]], to: Store) -> None:
        try:
            for batch in part:
                to.append(batch)
        except BaseException as error:
            failures.append(error)

    with open_store(where) as second:
        threads = [
            threading.Thread(target=append, args=(batches[first::4], (store, second)[first % 2])) for first in range(4)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.fold(stream, fold)
        for thread in threads:
            thread.join()
    while store.fold(stream, fold):
        pass
    assert failures == []
    found = store.read(stream)
    assert sorted(found.id) == sorted(row.id for batch in batches for row in batch)
    assert store.state(stream)[1] == fold.update(b"start", found)


def test_a_number_under_way_holds_the_fold_back(postgres: Server) -> None:
    """An append that has a number but has not committed yet: later ones are stored, but not folded before it."""
    with open_store(postgres.make_database("under_way")) as store:
        stream, fold = new_stream(store), Chain()
        slow, fast = made(stream, 1, 0), made(stream, 1, 1)
        with store._database.append() as cursor:
            sql = (
                "INSERT INTO observations (id, stream, request, time, label, confidence, style, concept, p_covariate, "
                "p_concept, p_combined, kind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            )
            cursor.execute(sql, slow[0][:12])
            store.append(fast)  # has the higher number, and is committed first
            assert store.read(stream).id == (fast[0].id,)
            assert store.fold(stream, fold) == 0
            store.append(made(stream, 1, 2))  # nor does a fold that waits hold others up
            assert store.fold(stream, fold) == 0
        assert store.fold(stream, fold) == 3
        assert store.read(stream).id[:2] == (slow[0].id, fast[0].id)
        assert store.state(stream)[1] == fold.update(b"start", store.read(stream))


def test_one_of_several_leads(store: Store, where: str) -> None:
    with open_store(where) as second:
        assert store.lead()
        assert store.lead()
        assert not second.lead()
        store.close()
        end = time.monotonic() + 60
        while not second.lead():  # a server frees the lock when it has noticed that the connection is closed
            assert not store.lead()  # one that was closed does not take the lock again
            assert time.monotonic() < end
            time.sleep(0.02)
        assert not store.lead()


def test_the_lead_ends_with_the_process(where: str) -> None:
    code = (
        "import os, sys\nfrom shiftprism.store import open_store\n"
        "store = open_store(sys.argv[1])\nassert store.lead()\nprint('leads', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "leads\n"
        with open_store(where) as store:
            assert not store.lead()
            other.kill()
            other.wait()
            while not store.lead():  # the server notices the closed connection within moments
                pass


@pytest.mark.slow
def test_a_server_that_was_killed_and_started_again_is_used_again(postgres: Server) -> None:
    with open_store(postgres.make_database("killed")) as store:
        stream = new_stream(store)
        before, after = made(stream, 5, 0), made(stream, 5, 1)
        store.append(before)
        assert store.lead()
        postgres.kill()
        with pytest.raises(StoreError):
            store.append(after)
        assert not store.lead()
        postgres.start()
        store.append(after)
        assert store.lead()
        assert store.read(stream).id == tuple(row.id for row in [*before, *after])


def test_migrations_run_once_and_a_newer_store_is_refused(where: str, store: Store) -> None:
    new_stream(store)
    with open_store(where) as again:
        assert len(again.streams()) == 1
    with store._database.write() as cursor:
        cursor.execute("INSERT INTO migrations VALUES (9999, 'from_the_future', 0)")
    with pytest.raises(ValueError, match="a newer version has changed"):
        open_store(where)


def test_both_databases_have_the_same_migrations_tables_and_columns(postgres: Server, tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[1] / "src" / "shiftprism" / "store"
    names = [sorted(file.name for file in (folder / dialect).glob("*.sql")) for dialect in ("sqlite", "postgresql")]
    assert names[0] == names[1] != []
    columns = []
    schema = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    pragma = "SELECT m.name, p.name FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'"
    for place, sql in ((str(tmp_path / "x.sqlite"), pragma), (postgres.make_database("columns"), schema)):
        with open_store(place) as store, store._database.read() as cursor:
            cursor.execute(sql)
            own = {tuple(row) for row in cursor.fetchall() if not row[0].startswith(("sqlite_", "observations_by"))}
            columns.append(own)
    assert columns[0] == columns[1] != set()


def _damage(path: Path) -> None:
    path.write_bytes(b"this is no database, only words, and more than a hundred of them are needed" * 20)


@pytest.mark.parametrize("spoil", [_damage, Path.mkdir])
def test_what_is_no_database_is_one_line(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    spoil(path)
    with pytest.raises(StoreError, match=r"store\.sqlite: (file is not a database|this is a folder)") as caught:
        open_store(path)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_one_line_without_the_password() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=2")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "127.0.0.1:1/x" in str(caught.value)
    with pytest.raises(ValueError, match="Expected `store` to be a path, sqlite:///path or postgresql://"):
        open_store("mysql://me:secret@host/x")


def test_sqlite_is_durable_and_private(tmp_path: Path) -> None:
    """FULL writes every commit to the disk; the file is its owner's alone."""
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        assert path.stat().st_mode & 0o777 == 0o600
        with store._database.read() as cursor:
            assert cursor.execute("PRAGMA synchronous").fetchone() == (2,)
            assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with sqlite3.connect(path) as plain:  # anyone can read it without us
        assert plain.execute("SELECT count(*) FROM observations").fetchone() == (0,)
    plain.close()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_export_has_every_observation(store: Store, suffix: str, tmp_path: Path) -> None:
    stream, other = new_stream(store), new_stream(store, "def", "second")
    rows = made(stream, 5000)
    store.append(rows)
    store.append(made(other, 1, 1))
    store.label({rows[0].id: 2, rows[1].id: NO_CLASS})
    path = tmp_path / f"all{suffix}"
    assert export(store, path) == 5001
    if suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(path).to_pylist()
    elif suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
    else:
        table = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in table[:5000]] == [row.id for row in rows]
    assert [float(row["p_combined"]) for row in table[:5000]] == [row.p_combined for row in rows]
    assert {row["name"] for row in table} == {"a", "b", "ç"}
    assert [row["truth_name"] or None for row in table[:2]] == ["ç", None]
    assert [int(row["truth"]) for row in table[:2]] == [2, -1]
    assert table[-1]["model"] == "second"
    with pytest.raises(ValueError, match=r"Expected `path` to be one of \.csv, \.jsonl, \.parquet"):
        export(store, tmp_path / "all.xlsx")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("streams", "names", "7"),
        ("streams", "names", "["),
        ("streams", "sequence", "many"),
        ("streams", "state", "text"),
        ("streams", "first_state", "text"),
        ("observations", "style", "high"),
        ("observations", "kind", "unknown"),
    ],
)
def test_a_value_that_its_column_does_not_allow_is_damage_and_not_a_bug(
    tmp_path: Path, table: str, column: str, value: str
) -> None:
    """SQLite reads whatever a damaged file holds: `tools/fuzz.py` found a NULL among the names."""
    path = tmp_path / "store.sqlite"
    with open_store(str(path)) as opened:
        stream = new_stream(opened)
        opened.append(make_observations(made_verdicts(3), ["1", "2", "3"], stream.number, "r", 1.0))
        opened.fold(stream, Chain())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    connection.close()

    def read_everything() -> None:
        with open_store(str(path)) as opened:
            for each in opened.streams():
                opened.replay(each, Chain())
                opened.state(each)

    with pytest.raises(StoreError, match=r"a row of it is damaged \(.*restore a back"):
        read_everything()
