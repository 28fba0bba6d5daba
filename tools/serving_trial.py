"""What a service stands: kills under load, slow and hostile clients, tokens by time, replicas. Loopback only.

    python tools/serving_trial.py kill MODEL.onnx IMAGES --kills 20 [--postgres]
    python tools/serving_trial.py clients MODEL.onnx IMAGES
    python tools/serving_trial.py tokens MODEL.onnx
    python tools/serving_trial.py replicas MODEL.onnx IMAGES SHIFTED

IMAGES is a folder of image files that the model takes. docs/serving.md has what came out.
"""

import argparse
import contextlib
import http.client
import json
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from postgres import Server, run_server
from serving_process import Client, Process, make_body
from shiftprism.store import MonitorFold, open_store


class Survival(NamedTuple):
    """What was left after kills."""

    kills: int
    acknowledged: int
    """Observations whose answers arrived at a client."""
    stored: int
    lost: int
    """Acknowledged, and not stored."""
    replay_equal: bool


def kill_under_load(
    model: Path,
    store: str,
    images: Sequence[bytes],
    *,
    kills: int,
    clients: int = 4,
    postgres: "Server | None" = None,
    seed: int = 0,
) -> Survival:
    """Kill the service (and every second time PostgreSQL's server, where there is one) while clients ask."""
    rng = random.Random(seed)
    acknowledged: set[str] = set()
    for number in range(kills):
        process = Process(model, store)
        with asking(process.port, images, clients, acknowledged):
            wait_for_answers(acknowledged, len(acknowledged) + 4 * clients)  # under load, not before it
            time.sleep(rng.uniform(0, 0.5))
            if postgres is not None and number % 2:
                postgres.kill()
                time.sleep(rng.uniform(0, 0.5))
                postgres.start()
                wait_for_answers(acknowledged, len(acknowledged) + 1)  # it is used again
            process.kill()
    Process(model, store).stop()  # folds what was left
    with open_store(store, create=False) as opened:
        (stream,) = opened.streams()
        stored = {id_ for block in opened.read_all(stream) for id_ in block.id}
        until, replayed, state = opened.replay(stream, MonitorFold())
        equal = replayed == state and until == max(int(b.sequence[-1]) for b in opened.read_all(stream))
    return Survival(kills, len(acknowledged), len(stored), len(acknowledged - stored), equal)


@contextlib.contextmanager
def asking(port: int, images: Sequence[bytes], clients: int, acknowledged: "set[str]") -> Iterator[None]:
    """Clients that ask for as long as the block lasts, and note the ids of what they were answered."""
    stop = threading.Event()

    def work(first: int) -> None:
        client, turn = Client(port), first
        while not stop.is_set():
            body = make_body([images[turn % len(images)], images[(turn + 1) % len(images)]])
            turn += 2
            try:
                status, answer = client.predict(body)
            except (OSError, ValueError, http.client.HTTPException):  # killed in the middle of an answer
                status = 0
            if status == 200:
                acknowledged.update(row["id"] for row in answer["predictions"])
            else:
                time.sleep(0.02)
        client.close()

    threads = [threading.Thread(target=work, args=(1000 * each,), daemon=True) for each in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def wait_for_answers(acknowledged: "set[str]", count: int) -> None:
    """Two minutes at most, of those in which this process runs: a pause of everything does not count."""
    for _ in range(12_000):
        if len(acknowledged) >= count:
            return
        time.sleep(0.01)
    raise RuntimeError("the service does not answer")


class Meanwhile(NamedTuple):
    """How others fared."""

    answered: int
    refused: int
    p50: float
    p99: float


@contextlib.contextmanager
def half_open(port: int, count: int) -> Iterator[None]:
    """Connections that have begun a request and do not end it."""
    connections = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            connections.append(connection)
        yield
    finally:
        for connection in connections:
            connection.close()


def ask_meanwhile(port: int, images: Sequence[bytes], count: int) -> Meanwhile:
    client = Client(port)
    times, refused = [], 0
    for turn in range(count):
        began = time.perf_counter()
        refused += client.predict(make_body([images[turn % len(images)]]))[0] != 200
        times.append(time.perf_counter() - began)
    client.close()
    times.sort()
    return Meanwhile(count - refused, refused, statistics.median(times), times[int(0.99 * (count - 1))])


def time_tokens(model: Path, rounds: int) -> dict[str, Any]:
    """Medians of the time to a 401, by what is wrong with the token, and the largest difference in their noise."""
    right, revoked = "right-token-0123456789", "revoked-token-0123456"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens"
        file.write_text(f"a {right}\nb {revoked}\n")
        process = Process(model, f"{folder}/store.sqlite", "--tokens", str(file))
        client = Client(process.port)
        assert client.ask("GET", "/v1/models", authorization=f"Bearer {revoked}")[0] == 200
        file.write_text(f"a {right}\n")
        kinds = {
            "missing": None,
            "wrong": "Bearer wrong-token-0123456789",
            "first character wrong": f"Bearer x{right[1:]}",
            "last character wrong": f"Bearer {right[:-1]}x",
            "too long": f"Bearer {right * 40}",
            "revoked": f"Bearer {revoked}",
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        order = list(kinds)
        rng = random.Random(0)
        for _ in range(rounds):
            rng.shuffle(order)
            for kind in order:
                value = kinds[kind]
                began = time.perf_counter()
                headers: dict[str, Any] = {} if value is None else {"authorization": value}
                status = client.ask("GET", "/v1/models", **headers)[0]
                times[kind].append(time.perf_counter() - began)
                assert status == 401, (kind, status)
        client.close()
        process.stop()
    base = times["wrong"]
    return {
        kind: {
            "median_microseconds": round(1e6 * statistics.median(values), 1),
            "auroc_against_wrong": round(_auroc(values, base), 4),
        }
        for kind, values in times.items()
    }


def _auroc(a: Sequence[float], b: Sequence[float]) -> float:
    """The chance that a time of `a` is longer than one of `b`; ½ where they cannot be told apart."""
    ordered = sorted([(value, 1) for value in a] + [(value, 0) for value in b])
    ranks = sum(place for place, (_, is_a) in enumerate(ordered, 1) if is_a)
    return (ranks - len(a) * (len(a) + 1) / 2) / (len(a) * len(b))


class Watched(NamedTuple):
    """What the monitors of replicas say about one stream."""

    sentences: list[str]
    level: str
    kind: str
    since: "int | None"
    alarm_at: "int | None"
    observations: int
    leaders: int


def watch_stream(model: Path, store: str, stream: Sequence[bytes], replicas: int) -> Watched:
    """Feed a stream to replicas in turn, one image a request, and read the status from each of them."""
    processes = [Process(model, store) for _ in range(replicas)]
    clients = [Client(process.port) for process in processes]
    for turn, image in enumerate(stream):
        status, _ = clients[turn % replicas].predict(make_body([image]))
        assert status == 200
    statuses: list[Any] = []
    while not statuses or any(each["observations"] < len(stream) for each in statuses):
        time.sleep(0.2)
        statuses = [json.loads(client.ask("GET", "/v1/status")[1]) for client in clients]
    numbers = [client.ask("GET", "/metrics")[1].decode() for client in clients]
    leaders = sum("\nshiftprism_leads 1.0" in each for each in numbers)
    for client, process in zip(clients, processes, strict=True):
        client.close()
        process.stop()
    last = statuses[0]
    known = {name: last[name] for name in ("level", "kind", "since", "alarm_at", "observations")}
    return Watched([each["sentence"] for each in statuses], **known, leaders=leaders)


def read_folder(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kill", "clients", "tokens", "replicas"])
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path, nargs="*")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2000)
    chosen = parser.parse_args()
    folders = [read_folder(folder) for folder in chosen.images]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(run_server(sync=True)) if chosen.postgres or chosen.what == "replicas" else None
        store = server.make_database("trial") if server is not None else f"{folder}/store.sqlite"
        if chosen.what == "kill":
            print(kill_under_load(chosen.model, store, folders[0], kills=chosen.kills, postgres=server))
        elif chosen.what == "clients":
            process = Process(chosen.model, store)
            print("alone", ask_meanwhile(process.port, folders[0], 200))
            with half_open(process.port, chosen.connections):
                print(f"{chosen.connections} half-open", ask_meanwhile(process.port, folders[0], 200))
            process.stop()
        elif chosen.what == "tokens":
            for kind, values in time_tokens(chosen.model, chosen.rounds).items():
                print(kind, values)
        else:
            assert server is not None
            stream = [*folders[0], *folders[1]]
            for count in (1, 3):
                print(count, watch_stream(chosen.model, server.make_database(f"replicas{count}"), stream, count))


if __name__ == "__main__":
    main()
