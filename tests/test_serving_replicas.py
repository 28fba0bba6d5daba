"""Several replicas on one PostgreSQL: one order, one monitor, one status, and the role of the leader handed on."""

import contextlib
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from postgres import Server
from serving_examples import Brightness, Running, made_picture, run_service
from shiftprism.monitor import Monitor
from shiftprism.store import MonitorFold, open_store


def wait_until_folded(replicas: list[Running], count: int) -> list[Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        statuses = [each.client.get("/v1/status").json for each in replicas]
        if all(status["observations"] == count for status in statuses):
            return statuses
        time.sleep(0.05)
    raise AssertionError("not folded")


@pytest.mark.slow
def test_three_replicas_say_what_one_monitor_says(postgres: Server, tmp_path: Path) -> None:
    """The witness is a monitor that is given the verdicts directly, in the order in which clients asked."""
    where = postgres.make_database(f"replicas_{uuid.uuid4().hex}")
    pictures = [made_picture(seed) for seed in range(90)] + [made_picture(seed, brightness=140) for seed in range(60)]
    with contextlib.ExitStack() as stack:
        replicas = []
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            replicas.append(stack.enter_context(run_service(folder, store=where)))
        for turn, first in enumerate(range(0, len(pictures), 5)):
            assert replicas[turn % 3].client.predict(*pictures[first : first + 5]).status == 200
        statuses = wait_until_folded(replicas, len(pictures))
        assert sum(each.service.streams.leads for each in replicas) == 1
    assert statuses[0] == statuses[1] == statuses[2]
    with open_store(where) as store:
        (stream,) = store.streams()
        alone = Monitor(Brightness().reference)
        for block in store.read_all(stream):
            alone.update(block.verdicts)
        expected = alone.status()
        _, replayed, stored = store.replay(stream, MonitorFold())
        assert replayed == stored
    found = statuses[0]
    assert (found["level"], found["kind"]) == ("alarm", "covariate")
    assert (found["since"], found["alarm_at"]) == (expected.since, expected.alarm_at)
    assert abs(found["since"] - 90) <= 5
    assert found["sentence"] == str(expected)


def test_another_replica_leads_when_the_leader_ends(postgres: Server, tmp_path: Path) -> None:
    where = postgres.make_database(f"handed_on_{uuid.uuid4().hex}")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with run_service(folders[0], store=where) as first:
        first.client.predict(made_picture(1))
        wait_until_folded([first], 1)
        with run_service(folders[1], store=where) as second:
            second.client.predict(made_picture(2))
            wait_until_folded([first, second], 2)
            first.service.store._database.close()  # as if its machine were gone
            assert first.client.get("/readyz").status == 503
            assert first.client.predict(made_picture(3)).status == 503
            assert second.client.predict(made_picture(3)).status == 200
            wait_until_folded([second], 3)
            assert second.service.streams.leads
