"""A monitor of a stream of verdicts: sequential tests on style and concept that may be read at every moment."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from shiftprism._errors import choice, wrong
from shiftprism.monitor._audit import Audit, Audited
from shiftprism.monitor._bets import (
    BLOCK,
    ROW,
    Change,
    Evidence,
    Path,
    bet,
    find_change,
    from_height,
    height,
    to_cells,
)
from shiftprism.monitor._kinds import decide_kind
from shiftprism.monitor._merged import Merged
from shiftprism.monitor._ranks import AXES, Floats, Integers, Pool, join_bins, uniforms
from shiftprism.monitor._status import WARNING, Episode, Level, Status
from shiftprism.monitor._windows import Estimate, Windows
from shiftprism.verdicts import Reference, Verdicts

_CHUNK = 4096
"""Observations that are tested at once."""
_STEP = 256
"""Tested observations between two looks at whether a change has ended."""
_USUAL_LOG_P = -1 - 0.5 / 192**0.5
"""A change has ended when the mean ln p of both axes is above this: −1 less half the standard error of 192 uniform
ones. The mean of p itself hardly moves where a tenth of the images has shifted; that of ln p does."""
_MOST_EPISODES = 32
_MOST_POINTS = 500


@dataclass(frozen=True)
class Settings:
    """What a monitor promises and how it ranks."""

    false_alarm: float = 0.01
    run_length: int | None = None
    within_class: bool = False
    every: int = 1
    sides: Literal["low", "both"] = "low"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.false_alarm < 1:
            raise wrong("false_alarm", "between 0 and 1", self.false_alarm, "0.01 is usual")
        if self.run_length is not None and self.run_length < 100:
            raise wrong("run_length", "at least 100 observations", self.run_length, "leave it out for false_alarm")
        if self.every < 1:
            raise wrong("every", "1 or more", self.every, "1 tests every observation")
        choice("sides", self.sides, ("low", "both"))

    @property
    def threshold(self) -> float:
        """The evidence of either axis that raises an alarm: the promise is split between the two."""
        if self.run_length is not None:  # observation 0 is tested, then one of `every`
            return AXES * ((self.run_length - 1) / self.every + 1 + ROW)
        return AXES / self.false_alarm

    @property
    def rate(self) -> float | None:
        """What each observation adds to the wealth; see `bet`."""
        return None if self.run_length is None else 1.0


class Monitor:
    """Watches a stream of verdicts, and tells covariate from concept shift.

    The promise: on an endless stream of images exchangeable with the held-out ones, the chance of *ever* raising an
    alarm, on either axis, is at most `false_alarm`. It may be read after every observation. `run_length` promises in
    its place at least so many observations, on average, before a false alarm, and notices late changes sooner.

    Each score is ranked among the reference and all scores before it; the ranks of exchangeable scores are independent
    and uniform. Bets on small ranks win where scores fall (`docs/monitor.md`). Streams whose classes come in runs are
    not exchangeable: rank `within_class`, or test one of `every` so many observations.

    >>> rng = np.random.default_rng(0)
    >>> edges, held_out = np.sort(rng.normal(size=255)), rng.normal(size=(2, 500))
    >>> counts = [np.bincount(np.searchsorted(edges, each), minlength=256)[None] for each in held_out]
    >>> reference = Reference("abc", ("cat",), edges, edges, *counts, held_out.T, 0.05, 0.9, True)
    >>> def stream(style):
    ...     usual = rng.normal(size=len(style))
    ...     p = np.ones(len(style))
    ...     return Verdicts(np.zeros(len(style)), 0.9 * p, style, usual, p, p, p, ["in-distribution"] * len(style))
    >>> monitor = Monitor(reference)
    >>> monitor.update(stream(rng.normal(size=1000)))
    >>> monitor.status().level
    'ok'
    >>> monitor.update(stream(rng.normal(-2, 1, size=100)))
    >>> status = monitor.status()
    >>> status.level, status.kind, abs(status.since - 1000) < 10, status.alarm_at < 1050
    ('alarm', 'covariate', True, True)
    """

    def __init__(
        self,
        reference: Reference,
        false_alarm: float = 0.01,
        *,
        run_length: int | None = None,
        within_class: bool = False,
        every: int = 1,
        sides: Literal["low", "both"] = "low",
        seed: int = 0,
    ) -> None:
        self.settings = Settings(false_alarm, run_length, within_class, every, sides, seed)
        self.reference = _prepare(reference, within_class)
        self.windows = Windows()
        self.audits = Audit()
        self.resets: list[dict[str, Any]] = []
        """Every reset: the observation, the reason, and what was known then."""
        self.bookmark = ""
        """A word of the caller's that is saved with the state, such as how far a folder has been read."""
        self._start(0, 0)

    def _start(self, observations: int, tested: int) -> None:
        """A new promise from the original reference."""
        self.first = observations
        """The observation with which the present promise began."""
        self._evidence = Evidence.start(tested)
        self._pool = Pool([self.reference.style_counts, self.reference.concept_counts])
        self._clean: Pool | None = None  # the pool as it was at the alarm, while a change is young
        self._frozen = False
        self._exact = True  # until the pool first freezes: ranks in it are independent no longer
        self._highest = np.full(AXES, -np.inf)  # of the wealth while ranks are exact
        self._tail: tuple[Integers, Integers] = np.zeros((AXES, 0), np.int64), np.zeros(0, np.int64)
        self._episodes: list[Episode] = []
        self._change: Change | None = None

    @property
    def observations(self) -> int:
        """How many were seen, resets or not."""
        return self.windows.total

    def update(self, verdicts: Verdicts) -> None:
        """Take the next verdicts of the stream, one or many: only their order matters, not how they are batched."""
        bins, groups = self._find_bins(verdicts)
        number = self.windows.total
        self.windows.add(verdicts)
        tested = (number + np.arange(len(verdicts))) % self.settings.every == 0
        self._tail = (
            np.concatenate([self._tail[0], bins[:, tested]], axis=1),
            np.concatenate([self._tail[1], groups[tested]]),
        )
        while len(self._tail[1]) >= BLOCK:
            taken = self._test_blocks(*self._tail)
            self._tail = self._tail[0][:, taken:], self._tail[1][taken:]

    def status(self) -> Status:
        """What is known now."""
        evidence, episodes, change = self._evidence, list(self._episodes), self._change
        path = self._test_tail()
        if path is not None:
            wealth, exponent, sums = path.wealth[:, -1], path.exponent[:, -1], path.sums[:, -1]
            if change is None:
                episode, change = self._find_alarm(path)
                episodes += [] if episode is None else [episode]
        else:
            wealth, exponent, sums = evidence.wealth, evidence.exponent, evidence.sums
        last = episodes[-1] if episodes else None
        if last is not None and change is not None:
            seen = evidence.tested + (0 if path is None else path.sums.shape[1])
            last = replace(last, kind=decide_kind(sums - change.sums, seen - change.tested))
            episodes[-1] = last
        e_values = [from_height(float(each)) for each in height(wealth, exponent)]
        threshold = self.settings.threshold
        level: Level = "alarm" if last else "warning" if max(e_values) >= threshold / WARNING else "ok"
        return Status(
            level=level,
            kind=last.kind if last else "",
            since=last.since if last else None,
            alarm_at=last.alarm_at if last else None,
            active=last is not None and last.ended is None,
            trust=not any(one.kind == "concept" and one.ended is None for one in episodes),
            observations=self.observations,
            e_covariate=e_values[0],
            e_concept=e_values[1],
            threshold=threshold,
            accuracy=self.windows.recent(),
            usual_flagged=self.reference.flagged,
            episodes=tuple(episodes),
            resets=len(self.resets),
            calibrated=self.reference.calibrated,
        )

    def highest_evidence(self) -> tuple[float, float]:
        """The highest e-values of both axes since the last reset, before the pool first froze: exact ranks."""
        heights, path = self._highest, self._test_tail()
        if path is not None and self._exact:
            heights = np.maximum(heights, path.heights().max(1))
        style, concept = (from_height(float(each)) for each in heights)
        return style, concept

    def history(self) -> list[Estimate]:
        """Estimated accuracy and shares flagged in windows of the whole stream: at most 256, longer with time."""
        return self.windows.history()

    def evidence_history(self) -> Floats:
        """(2, windows): log2 of the highest e-values in each window of `history`, linear between powers of two.

        −inf where nothing was tested.
        """
        found, path = self.windows.evidence_history(), self._test_tail()
        if path is not None:
            places = self._numbers(path.wealth.shape[1]) // self.windows.size
            for row, heights in zip(found, path.heights(), strict=True):
                np.maximum.at(row, places, heights)
        return found

    def reset(self, reason: str) -> None:
        """Start a new promise from the original reference, after the cause of an alarm was dealt with, say.

        The reset is recorded with its reason. Observation numbers and the history go on.
        """
        if not reason.strip():
            raise wrong("reason", "a few words", repr(reason), "say why: it is kept in the state")
        status = self.status()
        known = {"level": status.level, "kind": status.kind, "episodes": [asdict(one) for one in status.episodes]}
        self.resets.append({"observation": self.observations, "reason": reason.strip(), **known})
        self._start(self.observations, self._evidence.tested + len(self._tail[1]))

    def audit(self, n: int, first: int | None = None) -> list[int]:
        """Draw n observation numbers to be labelled, at random from those since `first` (the last reset).

        A later draw replaces this one, and shares what it can with it.
        """
        begin = self.first if first is None else first
        if not 0 <= begin < max(self.observations, 1):
            raise wrong("first", "the number of an observation", begin, f"there are {self.observations}")
        return self.audits.draw(n, begin, self.observations, self.settings.seed)

    def label(self, correct: Mapping[int, bool]) -> "Audited | None":
        """Say of observations that `audit` drew last whether their predictions were right; the accuracy from those."""
        self.audits.label(correct)
        return self.audits.accuracy()

    def counts(self) -> tuple[Integers, Integers]:
        """The pool: (G, B) of style and of concept, reference and stream together."""
        style, concept = self._pool.counts
        return style.copy(), concept.copy()

    @staticmethod
    def merge(parts: Sequence["Monitor"]) -> Merged:
        """What several monitors of parts of one stream say together; see `Merged`."""
        return Merged(parts)

    def save(self, path: "str | FilePath") -> None:
        """Write everything to one file, whole or not at all; a monitor that is loaded from it continues exactly."""
        from shiftprism.monitor._state import save

        save(self, FilePath(path))

    @classmethod
    def load(cls, path: "str | FilePath", detector: str | None = None) -> "Monitor":
        """The monitor that `save` wrote. It must belong to the detector of this fingerprint, where one is given."""
        from shiftprism.monitor._state import load

        return load(cls, FilePath(path), detector)

    def _find_bins(self, verdicts: Verdicts) -> tuple[Integers, Integers]:
        """Bins (2, n) of the scores, and groups (n,)."""
        for name in ("style", "concept", "confidence"):
            if np.isnan(getattr(verdicts, name)).any():
                raise wrong(name, "numbers", "NaN", "leave such verdicts out")
        if ((verdicts.confidence < 0) | (verdicts.confidence > 1)).any():
            raise wrong("confidence", "in [0, 1]", "values outside", "pass probabilities")
        edges = (self.reference.style_edges, self.reference.concept_edges)
        scores = (verdicts.style, verdicts.concept)
        bins = np.stack([np.searchsorted(own, each) for own, each in zip(edges, scores, strict=True)]).astype(np.int64)
        if not self.settings.within_class:
            return bins, np.zeros(len(verdicts), np.int64)
        classes = len(self.reference.style_counts)
        if ((verdicts.label < 0) | (verdicts.label >= classes)).any():
            raise wrong(
                "label", f"in 0 … {classes - 1}", verdicts.label.max(initial=0), "pass this detector's verdicts"
            )
        return bins, verdicts.label

    def _rank(self, pool: Pool, bins: Integers, groups: Integers) -> Integers:
        """The cells (2, n) of the p-values of the next observations. The pool grows, unless it is frozen."""
        p = pool.rank(bins, groups, uniforms(self.settings.seed, self._numbers(len(groups))), grow=not self._frozen)
        return to_cells(p if self.settings.sides == "low" else 2 * np.minimum(p, 1 - p))

    def _numbers(self, count: int) -> Integers:
        """The numbers of the next observations that are tested."""
        return (self._evidence.tested + np.arange(count)) * self.settings.every

    def _test_tail(self) -> Path | None:
        """What the observations after the last whole block say so far; None where there are none."""
        if not len(self._tail[1]):
            return None
        return bet(self._evidence, self._rank(Pool(self._pool.counts), *self._tail), self.settings.rate)[1]

    def _test_blocks(self, bins: Integers, groups: Integers) -> int:
        """Test whole blocks from the start of the arrays; how many observations were taken."""
        age = self._evidence.tested - self._evidence.started
        most = _CHUNK if self._change is None else _STEP - age % _STEP
        n = min(len(groups) // BLOCK * BLOCK, most)
        pool = Pool(self._pool.counts)
        evidence, path = bet(self._evidence, self._rank(pool, bins[:, :n], groups[:n]), self.settings.rate)
        if self._change is None:
            episode, change = self._find_alarm(path)
            if episode is not None and change is not None:
                n = ((episode.alarm_at // self.settings.every - self._evidence.tested) // BLOCK + 1) * BLOCK
                pool = Pool(self._pool.counts)
                evidence, path = bet(self._evidence, self._rank(pool, bins[:, :n], groups[:n]), self.settings.rate)
                self._episodes = [*self._episodes, episode][-_MOST_EPISODES:]
                self._change, self._clean = change, Pool(pool.counts)
        heights = path.heights()
        self.windows.raise_evidence(self._numbers(n), heights)
        if self._exact:
            self._highest = np.maximum(self._highest, heights.max(1))
        self._evidence, self._pool = evidence, pool
        if self._change is not None:
            self._follow_change(self._change)
        return n

    def _find_alarm(self, path: Path) -> tuple[Episode | None, Change | None]:
        """The first alarm on a path, and the change that it noticed."""
        reached = path.reached(self.settings.threshold)
        if not reached.any():
            return None, None
        at = int(np.argmax(reached.any(0)))
        # both at once: the one with more evidence
        axis = int(np.argmax(height(path.wealth[:, at], path.exponent[:, at])))
        change = find_change(self._evidence, path, at, axis)
        every = self.settings.every
        seen = self._evidence.tested + at + 1
        kind = decide_kind(path.sums[:, at] - change.sums, seen - change.tested)
        return Episode(change.tested * every, (self._evidence.tested + at) * every, kind), change

    def _follow_change(self, change: Change) -> None:
        """After a block of a change: decide its kind again; freeze the pool; see whether it has ended.

        The pool grows for a few hundred observations more, for the promise of merged monitors needs the exact test
        beyond the threshold. Then it returns to what it was at the alarm, so that it does not fill with shifted scores.
        """
        last = self._episodes[-1]
        tested = self._evidence.tested
        last.kind = decide_kind(self._evidence.sums - change.sums, tested - change.tested)
        since_alarm = tested - last.alarm_at // self.settings.every
        if (tested - self._evidence.started) % _STEP or since_alarm < _STEP // 2:
            return
        if self._clean is not None:
            self._pool, self._clean, self._frozen, self._exact = self._clean, None, True, False
        elif (self._evidence.mean_log_p() >= _USUAL_LOG_P).all():
            last.ended = tested * self.settings.every
            self._frozen, self._change = False, None
            self._evidence = self._evidence.restart()


def _prepare(reference: Reference, within_class: bool) -> Reference:
    """The reference as the monitor uses it: one row of counts, or one for each class with few enough bins."""
    for axis in ("style", "concept"):
        edges, counts = getattr(reference, f"{axis}_edges"), getattr(reference, f"{axis}_counts")
        if counts.ndim != 2 or counts.shape[1] != len(edges) + 1 or (counts < 0).any() or not counts.sum():
            got = f"shape {counts.shape} beside {len(edges)} edges"
            raise wrong(f"{axis}_counts", "counts (K, B) beside B − 1 edges", got, "use detector.reference()")
        if not np.isfinite(edges).all() or (np.diff(edges) < 0).any():
            raise wrong(f"{axis}_edges", "finite and ascending", "others", "use detector.reference()")
        if within_class:
            edges, counts = join_bins(edges, counts)
        else:
            counts = counts.sum(0, keepdims=True)
        values: dict[str, Any] = {
            f"{axis}_edges": np.asarray(edges, np.float64),
            f"{axis}_counts": np.asarray(counts, np.int64),
        }
        reference = reference._replace(**values)
    if (reference.style_counts.sum(1) != reference.concept_counts.sum(1)).any():
        raise wrong("concept_counts", "of the images of style_counts", "others", "use detector.reference()")
    return reference._replace(points=np.asarray(reference.points, np.float64)[:_MOST_POINTS])
