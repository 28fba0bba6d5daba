"""Independent pieces of work on the cores of this machine (joblib) or on a Ray cluster; no scheduler of our own."""

import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shiftprism._extras import need

_RETRIES = 3
"""How often Ray runs a piece again whose worker was lost."""
_LOST = "its process was killed twice (out of memory?); fewer jobs at a time need less"


class Done(NamedTuple):
    """What became of one piece of work."""

    number: int
    result: Any
    error: str
    """"" where all went well."""
    trace: str


def spread(
    work: Callable[[Any, int], Any], items: Sequence[Any], jobs: int = 1, cluster: str | None = None
) -> Iterator[Done]:
    """`work(item, threads)` for each item, in the order they end; an error of one does not stop the others.

    `jobs` processes share the cores of this machine. With `cluster`, the address of a Ray cluster ("local" starts one
    here), its workers do it, and Ray runs again what a lost one had in hand.

    >>> sorted(done.result for done in spread(lambda item, threads: item * item, [1, 2, 3]))
    [1, 4, 9]
    """
    if not items:
        return iter(())
    return _on_ray(work, items, cluster) if cluster else _on_cores(work, items, jobs)


def threads_for(jobs: int) -> int:
    """What each of `jobs` processes may use of the cores."""
    return max(1, (os.cpu_count() or 1) // jobs)


def _guarded(work: Callable[[Any, int], Any], number: int, item: Any, threads: int) -> Done:
    try:
        return Done(number, work(item, threads), "", "")
    except Exception as error:
        return Done(number, None, f"{error or type(error).__name__}", traceback.format_exc())


def _on_cores(work: Callable[[Any, int], Any], items: Sequence[Any], jobs: int) -> Iterator[Done]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # loky renews a process that has grown, between two pieces of work, and tells the user, who can do nothing about it
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    left, threads = dict(enumerate(items)), threads_for(jobs)
    for _ in range(2):  # a killed process takes the whole pool with it: what is left is begun once more
        limits = {"inner_max_num_threads": threads} if jobs > 1 else {}
        try:
            with parallel_config("loky" if jobs > 1 else "sequential", **limits):
                pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs)
                for done in pool(delayed(_guarded)(work, number, item, threads) for number, item in left.items()):
                    yield done
                    left = {number: item for number, item in left.items() if number != done.number}
                return
        except TerminatedWorkerError:
            continue
    yield from (Done(number, None, _LOST, "") for number in left)


def _on_ray(work: Callable[[Any, int], Any], items: Sequence[Any], cluster: str) -> Iterator[Done]:
    ray = need("ray", "cluster")
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=None if cluster == "local" else cluster, log_to_driver=False)
    try:
        remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_guarded)
        left = {remote.remote(work, number, item, 1): number for number, item in enumerate(items)}
        while left:
            (ready, *_), _ = ray.wait(list(left), num_returns=1)
            number = left.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                yield Done(
                    number, None, f"{type(error).__name__}: {_RETRIES + 1} workers were lost with it", str(error)
                )
    finally:
        if mine:
            ray.shutdown()
