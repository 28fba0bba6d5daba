"""What the store holds: observations, streams of them, and the function that folds them into a monitor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftprism._errors import wrong
from shiftprism.store._database import explain_damage
from shiftprism.verdicts import ARRAYS, Verdicts

NO_CLASS = -1
"""The truth of an image that shows none of the model's classes."""


class Stream(NamedTuple):
    """What one detector says under one name: its observations feed one monitor."""

    number: int
    model: str
    """The name under which the detector is served."""
    detector: str
    """The detector's fingerprint. Another detector under the same name has a stream of its own."""
    names: tuple[str, ...]
    """The class names."""
    calibrated: bool
    began: float
    """Seconds since 1970, UTC, like every time here."""
    sequence: int
    """The sequence number of the last observation that is folded into the monitor; 0 before the first."""


class Observation(NamedTuple):
    """One image that was answered, before it has a sequence number."""

    id: str
    """A UUID: the client reports the truth under it."""
    stream: int
    request: str
    """The id of the request, which may have had several images."""
    time: float
    label: int
    confidence: float
    style: float
    concept: float
    p_covariate: float
    p_concept: float
    p_combined: float
    kind: str
    image: bytes | None = None
    """The file as it was sent; None unless images are kept."""


def make_observations(
    verdicts: Verdicts,
    ids: Sequence[str],
    stream: int,
    request: str,
    time: float,
    images: Sequence[bytes] | None = None,
) -> list[Observation]:
    """One `Observation` for each verdict of a request."""
    columns = [getattr(verdicts, name).tolist() for name in ARRAYS]
    for name, column in zip(ARRAYS, columns, strict=True):
        if name != "kind" and not all(map(math.isfinite, column)):
            raise wrong(name, "finite", "a value that is not", "check the detector")
    pictures: Sequence[bytes | None] = images if images is not None else [None] * len(verdicts)
    rows = zip(ids, *columns, pictures, strict=True)
    return [Observation._make((id_, stream, request, time, *rest)) for id_, *rest in rows]


@dataclass(frozen=True, eq=False)
class Observations:
    """N stored observations of one stream, in the order of their sequence numbers."""

    sequence: NDArray[np.int64]
    """(N,): ascending; numbers may be left out, where a transaction was rolled back."""
    id: tuple[str, ...]
    request: tuple[str, ...]
    time: NDArray[np.float64]
    truth: NDArray[np.float64]
    """(N,): the true class where it was reported, NaN where not, `NO_CLASS` for none of the classes."""
    verdicts: Verdicts

    def __len__(self) -> int:
        return len(self.sequence)

    def cut(self, first: int, last: int) -> "Observations":
        """Those from the first-th to before the last-th."""
        part = slice(first, last)
        arrays = (self.sequence[part], self.id[part], self.request[part], self.time[part], self.truth[part])
        return Observations(*arrays, self.verdicts[part])


COLUMNS = ("sequence", "id", "request", "time", "truth", *ARRAYS)
"""The columns of the table from which `Observations` are read, in order."""


@explain_damage()
def read_rows(rows: Sequence[Sequence[Any]], stream: Stream) -> Observations:
    """Rows of `COLUMNS` as arrays."""
    columns: dict[str, Any] = dict(zip(COLUMNS, zip(*rows, strict=True) if rows else ((),) * len(COLUMNS), strict=True))
    verdicts = Verdicts(**{name: columns[name] for name in ARRAYS}, names=stream.names, calibrated=stream.calibrated)
    return Observations(
        sequence=np.array(columns["sequence"], np.int64),
        id=tuple(map(str, columns["id"])),
        request=tuple(columns["request"]),
        time=np.array(columns["time"], np.float64),
        truth=np.array(columns["truth"], np.float64),
        verdicts=verdicts,
    )


class Fold(Protocol):
    """How observations become the state of a monitor. States are bytes, so that the store knows no monitor.

    One call with all observations must equal any number of calls with parts of them: a replay cuts them elsewhere.
    """

    def update(self, state: bytes, observations: Observations) -> bytes:
        """The state after more observations."""

    def reset(self, state: bytes, reason: str) -> bytes:
        """The state after an operator's reset."""


class Accuracy(NamedTuple):
    """How many of the observations whose truth was reported were right."""

    labelled: int
    right: int
