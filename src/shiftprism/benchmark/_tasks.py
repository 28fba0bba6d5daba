"""Independent tasks on the cores of this machine (joblib) or on a Ray cluster; no scheduler of our own."""

import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shiftprism._extras import need

_RETRIES = 3
"""How often Ray repeats a task whose worker was lost."""
_LOST = "its process was killed twice (out of memory?); run fewer jobs at a time"


class TaskResult(NamedTuple):
    """The outcome of one task."""

    number: int
    result: Any
    error: str
    """"" where there was none."""
    trace: str


def run_tasks(
    work: Callable[[Any, int], Any], items: Sequence[Any], jobs: int = 1, cluster: str | None = None
) -> Iterator[TaskResult]:
    """`work(item, threads)` for each item, in the order they end; an error of one does not stop the others.

    `jobs` processes share the cores of this machine. With `cluster`, the address of a Ray cluster ("local" starts one
    here), its workers do it, and Ray repeats the task of a worker that was lost.

    >>> sorted(task.result for task in run_tasks(lambda item, threads: item * item, [1, 2, 3]))
    [1, 4, 9]
    """
    if not items:
        return iter(())
    return _run_on_ray(work, items, cluster) if cluster else _run_on_cores(work, items, jobs)


def count_threads(jobs: int) -> int:
    """The threads of each of `jobs` processes that share the cores."""
    return max(1, (os.cpu_count() or 1) // jobs)


def _run_task(work: Callable[[Any, int], Any], number: int, item: Any, threads: int) -> TaskResult:
    try:
        return TaskResult(number, work(item, threads), "", "")
    except Exception as error:
        return TaskResult(number, None, f"{error or type(error).__name__}", traceback.format_exc())


def _run_on_cores(work: Callable[[Any, int], Any], items: Sequence[Any], jobs: int) -> Iterator[TaskResult]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # loky replaces a process that has grown, between two tasks, and warns the user, who can do nothing about it
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    remaining, threads = dict(enumerate(items)), count_threads(jobs)
    for _ in range(2):  # a killed process takes the whole pool with it: the remaining tasks are started once more
        limits = {"inner_max_num_threads": threads} if jobs > 1 else {}
        try:
            with parallel_config("loky" if jobs > 1 else "sequential", **limits):
                pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs)
                for task in pool(delayed(_run_task)(work, number, item, threads) for number, item in remaining.items()):
                    yield task
                    remaining = {number: item for number, item in remaining.items() if number != task.number}
                return
        except TerminatedWorkerError:
            continue
    yield from (TaskResult(number, None, _LOST, "") for number in remaining)


def _run_on_ray(work: Callable[[Any, int], Any], items: Sequence[Any], cluster: str) -> Iterator[TaskResult]:
    ray = need("ray", "cluster")
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=None if cluster == "local" else cluster, log_to_driver=False)
    try:
        remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run_task)
        remaining = {remote.remote(work, number, item, 1): number for number, item in enumerate(items)}
        while remaining:
            (ready, *_), _ = ray.wait(list(remaining), num_returns=1)
            number = remaining.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                yield TaskResult(
                    number, None, f"{type(error).__name__}: {_RETRIES + 1} workers were lost with it", str(error)
                )
    finally:
        if mine:
            ray.shutdown()
