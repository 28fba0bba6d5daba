"""A monitor in one file: arrays and a few words, strict when read."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shiftprism._errors import wrong
from shiftprism._files import read_tensors, write_tensors
from shiftprism.monitor._bets import Change, Evidence
from shiftprism.monitor._ranks import AXES, Pool
from shiftprism.monitor._status import Episode
from shiftprism.verdicts import Reference

if TYPE_CHECKING:
    from shiftprism.monitor._monitor import Monitor

_FORMAT = "shiftprism-monitor-1"
_ADVICE = "point to a file that Monitor.save wrote"
_REFERENCE_ARRAYS = ("style_edges", "concept_edges", "style_counts", "concept_counts", "points")
_WINDOW_ARRAYS = ("sums", "evidence", "ring")


def save(monitor: "Monitor", path: Path) -> None:
    """Write the state of a monitor, whole or not at all."""
    evidence = {field.name: getattr(monitor._evidence, field.name) for field in fields(Evidence)}
    arrays = {f"evidence.{name}": value for name, value in evidence.items() if isinstance(value, np.ndarray)}
    arrays |= {f"reference.{name}": getattr(monitor.reference, name) for name in _REFERENCE_ARRAYS}
    arrays |= {f"windows.{name}": getattr(monitor.windows, name) for name in _WINDOW_ARRAYS}
    arrays |= {"highest": monitor._highest, "tail.bins": monitor._tail[0], "tail.groups": monitor._tail[1]}
    pools = {"pool": monitor._pool, "clean": monitor._clean}
    for name, pool in pools.items():
        if pool is not None:
            arrays |= {f"{name}.style": pool.counts[0], f"{name}.concept": pool.counts[1]}
    if monitor._change is not None:
        arrays["change.sums"] = monitor._change.sums
    words = {
        "settings": asdict(monitor.settings),
        "reference": {
            name: getattr(monitor.reference, name) for name in Reference._fields if name not in _REFERENCE_ARRAYS
        },
        "tested": monitor._evidence.tested,
        "started": monitor._evidence.started,
        "first": monitor.first,
        "bookmark": monitor.bookmark,
        "frozen": monitor._frozen,
        "exact": monitor._exact,
        "change": None if monitor._change is None else monitor._change.tested,
        "episodes": [asdict(one) for one in monitor._episodes],
        "resets": monitor.resets,
        "windows": {"size": monitor.windows.size, "total": monitor.windows.total},
        "audit": {
            "range": [monitor.audits.first, monitor.audits.after],
            "drawn": monitor.audits.drawn,
            "labels": sorted(monitor.audits.labels.items()),
        },
    }
    small = {name: _shrink(value) for name, value in arrays.items()}
    write_tensors(path, small, {"format": _FORMAT, "state": json.dumps(words)})


def load(kind: "type[Monitor]", path: Path, detector: str | None) -> "Monitor":
    """The monitor that `save` wrote."""
    tensors, about = read_tensors(path, _FORMAT, _ADVICE, framework="np")
    arrays = {
        name: np.array(value, np.int64) if value.dtype.kind in "iu" else value.copy() for name, value in tensors.items()
    }
    try:
        monitor = _build(kind, arrays, json.loads(about["state"]))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise wrong(
            "path", "a whole state of a monitor", f"{path} ({type(error).__name__}: {error})", _ADVICE
        ) from error
    if detector is not None and detector != monitor.reference.detector:
        got = f"{path}, of detector {monitor.reference.detector}"
        raise wrong(
            "path", f"the state of a monitor of detector {detector}", got, "start a new state for this detector"
        )
    return monitor


def _build(kind: "type[Monitor]", arrays: dict[str, Any], words: dict[str, Any]) -> "Monitor":
    about = words["reference"] | {"names": tuple(words["reference"]["names"])}
    reference = Reference(**about, **{name: arrays.pop(f"reference.{name}") for name in _REFERENCE_ARRAYS})
    monitor = kind.__new__(kind)
    kind.__init__(monitor, reference, **words["settings"])
    monitor.reference = reference  # as it was: bins that were joined are not joined again
    monitor._start(words["first"], 0)
    template = {field.name: getattr(monitor._evidence, field.name) for field in fields(Evidence)}
    own = {name: arrays.pop(f"evidence.{name}") for name, value in template.items() if isinstance(value, np.ndarray)}
    _check_shapes({name: (own[name], template[name]) for name in own})
    monitor._evidence = Evidence(**own, tested=int(words["tested"]), started=int(words["started"]))
    like = {name: getattr(monitor.windows, name) for name in _WINDOW_ARRAYS}
    new = {name: arrays.pop(f"windows.{name}") for name in _WINDOW_ARRAYS}
    _check_shapes({name: (new[name], like[name]) for name in new})
    for name, value in new.items():
        setattr(monitor.windows, name, value)
    monitor.windows.size, monitor.windows.total = int(words["windows"]["size"]), int(words["windows"]["total"])
    pools = [reference.style_counts, reference.concept_counts]
    monitor._pool = _read_pool("pool", arrays, pools)
    monitor._clean = _read_pool("clean", arrays, pools) if "clean.style" in arrays else None
    monitor._frozen, monitor._exact = bool(words["frozen"]), bool(words["exact"])
    monitor._highest = arrays.pop("highest")
    bins, groups = arrays.pop("tail.bins"), arrays.pop("tail.groups")
    _check_shapes({"highest": (monitor._highest, np.zeros(AXES)), "tail": (bins, np.zeros((AXES, len(groups))))})
    monitor._tail = bins, groups
    monitor._episodes = [Episode(**one) for one in words["episodes"]]
    if words["change"] is not None:
        monitor._change = Change(int(words["change"]), arrays.pop("change.sums"))
    monitor.resets, monitor.bookmark = words["resets"], str(words["bookmark"])
    audit = words["audit"]
    monitor.audits.first, monitor.audits.after = map(int, audit["range"])
    monitor.audits.drawn = [int(number) for number in audit["drawn"]]
    monitor.audits.labels = {int(number): bool(right) for number, right in audit["labels"]}
    if arrays:
        raise KeyError(f"{', '.join(sorted(arrays))} is unknown")
    return monitor


def _read_pool(name: str, arrays: dict[str, Any], like: list[Any]) -> Pool:
    counts = [arrays.pop(f"{name}.{axis}") for axis in ("style", "concept")]
    _check_shapes({f"{name}.{place}": pair for place, pair in enumerate(zip(counts, like, strict=True))})
    return Pool(counts)


def _check_shapes(pairs: dict[str, tuple[Any, Any]]) -> None:
    for name, (value, like) in pairs.items():
        if value.shape != like.shape:
            raise TypeError(f"{name} has shape {value.shape} for {like.shape}")


def _shrink(value: Any) -> Any:
    """Counts as the smallest type that holds them: a class seldom has many images in one bin."""
    if value.dtype.kind != "i" or not value.size or value.min() < 0:
        return value
    return cast("Any", value.astype(np.min_scalar_type(int(value.max()))))
