"""Several monitors of parts of one stream, read together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftprism._errors import wrong
from shiftprism.monitor._ranks import Integers
from shiftprism.monitor._status import WARNING, Status
from shiftprism.verdicts import KINDS

if TYPE_CHECKING:
    from shiftprism.monitor._monitor import Monitor


class Merged:
    """What monitors of several shards say together: an alarm where one of m has m times the usual evidence.

    Each shard was watched by its own monitor from the same reference, so their evidence is dependent; Bonferroni's
    bound holds for any dependence. The promise of one monitor holds for all together, and the price is delay: a shard
    must gather ln m more evidence, from 1/m of the stream.
    """

    def __init__(self, parts: "Sequence[Monitor]") -> None:
        if not parts:
            raise wrong("parts", "non-empty", "no monitors", "pass at least one")
        first = parts[0]
        for part in parts[1:]:
            if part.reference.detector != first.reference.detector:
                got = f"{part.reference.detector} beside {first.reference.detector}"
                raise wrong("parts", "monitors of one detector", got, "merge those of each detector")
            pairs = zip(part.reference[2:6], first.reference[2:6], strict=True)
            if not all(np.array_equal(one, other) for one, other in pairs):
                raise wrong("parts", "monitors from one reference", "several", "start them from one reference")
            if replace(part.settings, seed=0) != replace(first.settings, seed=0):
                raise wrong("parts", "monitors with equal settings", "different ones", "merge those with equal ones")
        self.parts = tuple(parts)

    @property
    def threshold(self) -> float:
        """The evidence that raises an alarm: that of one monitor, times the number of shards."""
        return self.parts[0].settings.threshold * len(self.parts)

    def shard(self) -> int | None:
        """The shard with the most evidence among those that raise an alarm; None without one."""
        heights = [part.highest_evidence() for part in self.parts]
        best = int(np.argmax([max(pair) for pair in heights]))
        return best if max(heights[best]) >= self.threshold else None

    def status(self) -> Status:
        """The status of the whole. `since` and `alarm_at` count the observations of `shard()`."""
        number = self.shard()
        statuses = [part.status() for part in self.parts]
        highest = np.array([part.highest_evidence() for part in self.parts]).max(0)
        chosen = statuses[0 if number is None else number]
        total = sum(one.observations for one in statuses)
        windows = [one.accuracy for one in statuses if one.accuracy]
        accuracy = None
        if windows:
            counts = np.array([one.images for one in windows], float)
            mean = float(counts @ [one.value for one in windows] / counts.sum())
            half = float(np.sqrt((counts**2) @ [((one.high - one.low) / 2) ** 2 for one in windows]) / counts.sum())
            flags = [float(counts @ [getattr(one, kind) for one in windows] / counts.sum()) for kind in KINDS[1:]]
            ends = max(mean - half, 0.0), min(mean + half, 1.0)
            accuracy = windows[0]._replace(
                value=mean,
                low=ends[0],
                high=ends[1],
                first=0,
                images=int(counts.sum()),
                covariate=flags[0],
                concept=flags[1],
            )
        common: dict[str, Any] = {
            "observations": total,
            "e_covariate": float(highest[0]),
            "e_concept": float(highest[1]),
            "threshold": self.threshold,
            "accuracy": accuracy,
            "resets": sum(one.resets for one in statuses),
        }
        if number is not None:
            return replace(chosen, **common)
        warned = highest.max() >= self.threshold / WARNING
        none: dict[str, Any] = {
            "kind": "",
            "since": None,
            "alarm_at": None,
            "active": False,
            "trust": True,
            "episodes": (),
        }
        return replace(chosen, level="warning" if warned else "ok", **none, **common)

    def counts(self) -> tuple[Integers, Integers]:
        """The pools of all shards together, with the reference that they share counted once."""
        extra = len(self.parts) - 1
        pools = [part.counts() for part in self.parts]
        first = self.parts[0].reference
        style = sum((pool[0] for pool in pools[1:]), pools[0][0]) - extra * first.style_counts
        concept = sum((pool[1] for pool in pools[1:]), pools[0][1]) - extra * first.concept_counts
        return style, concept
