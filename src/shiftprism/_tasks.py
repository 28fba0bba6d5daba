"""Independent tasks on the cores of this machine (joblib) or on a Ray cluster; no scheduler of our own."""

import os
import socket
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from multiprocessing import Manager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from shiftprism._devices import choose_device, count_cores, list_devices
from shiftprism._errors import wrong
from shiftprism._extras import need

Work = Callable[[Any, int, str], Any]
"""A function of an item, the number of threads it may use, and the name of its device."""
_RETRIES = 3
"""How often Ray repeats a task whose worker was lost."""
_LEAST_RUNNING = 16
"""So many tasks are handed to Ray at a time at least; a cluster that is just starting has few workers."""
_LOST = "its process was killed twice (out of memory?); run fewer jobs at a time"


class TaskResult(NamedTuple):
    """The outcome of one task."""

    number: int
    result: Any
    error: str
    """"" where there was none."""
    trace: str


def run_tasks(
    work: Work, items: Sequence[Any], jobs: int = 1, cluster: str | None = None, device: str = "cpu"
) -> Iterator[TaskResult]:
    """`work(item, threads, device)` for each item, in the order they end; an error of one does not stop the others.

    `jobs` processes share the cores of this machine, and each takes a GPU that no other has, where `device` allows for
    several. With `cluster`, the address of a Ray cluster ("local" starts one here), its workers do it, with a GPU each
    where the cluster has some, and Ray repeats the task of a worker that was lost.

    >>> sorted(task.result for task in run_tasks(lambda item, threads, device: item * item, [1, 2, 3]))
    [1, 4, 9]
    """
    if not items:
        return iter(())
    if cluster:
        return _run_on_ray(work, items, cluster, device)
    return _run_on_cores(work, items, jobs, list_devices(device))


def check_device(device: str, cluster: str | None) -> None:
    """Refuse a device that is not there, and on a cluster any but those that Ray can give out."""
    if not cluster:
        choose_device(device)
    elif device not in ("auto", "cpu", "cuda"):
        raise wrong("device", "auto, cpu or cuda on a cluster", device, "Ray decides which GPU a task gets")


def count_threads(jobs: int) -> int:
    """The threads of each of `jobs` processes that share the cores; no more than OMP_NUM_THREADS, where a user set it.

    On a busy machine two threads wait for each other: one thread is then much faster.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # "4,2" is one number a level of nesting
    share = max(1, count_cores() // jobs)
    return min(share, int(limit)) if limit.isdigit() and int(limit) else share


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch compute on so many threads; afterwards as before, for a task may run in the process of the user."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_task(work: Work, number: int, item: Any, threads: int, device: "str | Queue[str]") -> TaskResult:
    """The outcome of a task on a device, or on one that is free in a queue of them, where it is put back."""
    name = device if isinstance(device, str) else device.get()
    try:
        return TaskResult(number, work(item, threads, name), "", "")
    except Exception as error:
        return TaskResult(number, None, f"{error or type(error).__name__}", traceback.format_exc())
    finally:
        if not isinstance(device, str):
            device.put(name)


def _run_on_cores(work: Work, items: Sequence[Any], jobs: int, devices: Sequence[str]) -> Iterator[TaskResult]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # loky replaces a process that has grown, between two tasks, and warns the user, who can do nothing about it
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    remaining, threads = dict(enumerate(items)), count_threads(jobs)
    for _ in range(2):  # a killed process takes the whole pool with it: the remaining tasks are started once more
        limits = {"inner_max_num_threads": threads} if jobs > 1 else {}
        try:
            with (
                _share_devices(jobs, devices) as device,
                parallel_config("loky" if jobs > 1 else "sequential", **limits),
            ):
                pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs)
                run = delayed(_run_task)
                for task in pool(run(work, number, item, threads, device) for number, item in remaining.items()):
                    yield task
                    remaining = {number: item for number, item in remaining.items() if number != task.number}
                return
        except TerminatedWorkerError:
            continue
    yield from (TaskResult(number, None, _LOST, "") for number in remaining)


@contextmanager
def _share_devices(jobs: int, devices: Sequence[str]) -> "Iterator[str | Queue[str]]":
    """The one device, or a queue of them with an entry for each job: no two jobs share one before all are taken."""
    if jobs == 1 or len(devices) == 1:
        yield devices[0]
        return
    with Manager() as manager:
        free = manager.Queue()
        for number in range(jobs):
            free.put(devices[number % len(devices)])
        yield free


@contextmanager
def connect(cluster: str) -> Iterator[Any]:
    """Ray, connected to the cluster of an address ("local" starts one here) until the block ends.

    Where this process is connected already, that connection is used, and kept.
    """
    ray = need("ray", "cluster")
    mine = not ray.is_initialized()
    if mine:
        # a dashboard takes a core for seconds, and dies with the cluster
        own = {"include_dashboard": False} if cluster == "local" else {}
        try:
            ray.init(address=cluster, log_to_driver=False, logging_level="error", **own)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            got = f"{cluster} ({' '.join(str(error).split()):.120})"
            advice = "give the address of a running cluster with the same versions of Ray and Python, or say local"
            raise wrong("cluster", "a Ray cluster that answers", got, advice) from error
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def check_shared_disk(paths: "Iterable[str | Path]") -> None:
    """In a worker: refuse files of which not even a folder is here, since another machine listed a disk of its own.

    Without this, each of them would be called missing, and a later run would not try them again.
    """
    folders = {os.path.dirname(path) for path in paths}
    if folders and not any(map(os.path.isdir, folders)):
        got = f"{min(folders)}, which {socket.gethostname()} does not have"
        raise wrong("images", "on a disk that every worker shares", got, "mount it there, or put them into s3://")


def _run_on_ray(work: Work, items: Iterable[Any], cluster: str, device: str) -> Iterator[TaskResult]:
    with connect(cluster) as ray:
        resources = ray.cluster_resources()
        gpus = int(device != "cpu" and resources.get("GPU", 0) >= 1)
        if device == "cuda" and not gpus:
            raise wrong("device", "one that the cluster has", device, "start Ray with --num-gpus, or choose cpu")
        # Ray shows a task only the GPU that it gave it: under "auto" the task finds it, and it has no other number
        device = device if gpus else "cpu"
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)(_run_task)
        shared, waiting = ray.put(work), enumerate(items)
        running: dict[Any, int] = {}
        while True:
            # some wait for a worker, so that none idles, and not all: there may be a million
            most = max(_LEAST_RUNNING, 2 * int(ray.cluster_resources().get("CPU", 1)))
            for number, item in islice(waiting, max(0, most - len(running))):  # fewer than before where a node was lost
                running[remote.remote(shared, number, item, 1, device)] = number
            if not running:
                return
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            number = running.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                yield TaskResult(
                    number, None, f"{type(error).__name__}: {_RETRIES + 1} workers were lost with it", str(error)
                )
