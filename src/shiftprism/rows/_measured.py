"""The rows of one ID data set and protocol, found by what they are about, with their effects over seeds."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from shiftprism._errors import wrong
from shiftprism.rows._effect import Effect
from shiftprism.rows._results import Results
from shiftprism.rows._row import Row

Key = tuple[str, str, int, str, str]
"""(model, shift, severity, subject, metric)."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The rows of one ID data set and protocol, by (model, shift, severity, subject, metric), over seeds."""

    data: str
    protocol: str
    results: Results
    _effects: dict[Key, Effect | None] = field(default_factory=dict)

    @staticmethod
    def split(results: Results) -> "list[Measured]":
        """One for each ID data set and protocol; rows about the pixels alone belong to every protocol."""
        pairs = dict.fromkeys((row.data, row.protocol) for row in results.rows if row.model != "pixels")
        pairs = pairs or dict.fromkeys((row.data, row.protocol) for row in results.rows)
        made = []
        for data, protocol in pairs:
            rows = [(i, row) for i, row in enumerate(results.rows) if row.data == data]
            kept = [i for i, row in rows if row.protocol == protocol or row.model == "pixels"]
            made.append(Measured(data, protocol, results.take(kept)))
        return made

    @cached_property
    def index(self) -> dict[Key, dict[int, int]]:
        """{key: {seed: number of the row}}; rows of two networks for one key and seed are an error."""
        found: dict[Key, dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(self.results.rows):
            seeds = found[row.model, row.shift, row.severity, row.subject, row.metric]
            other = self.results.rows[seeds[row.seed]] if row.seed in seeds and row.model != "pixels" else row
            if other.weights != row.weights or other.backbone != row.backbone:
                both = f"{other.backbone} {other.weights} and {row.backbone} {row.weights}"
                got = f"{row.model}, seed {row.seed}, of {both}"
                raise wrong("results", "of one network for each model and seed", got, "take a part with results.where")
            seeds[row.seed] = number
        return dict(found)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """{shift: kind}, in the order of the rows."""
        return {row.shift: row.kind for row in self.results.rows}

    @cached_property
    def steps(self) -> dict[str, list[int]]:
        """{shift: its severities, in order}; 0 is none, so a set without severities has an empty list."""
        found: dict[str, set[int]] = {name: set() for name in self.kinds}
        for row in self.results.rows:
            found[row.shift].add(row.severity)
        return {name: sorted(own - {0}) for name, own in found.items()}

    @property
    def title(self) -> str:
        """The data set, with the protocol where it is not the held-out one."""
        return self.data if self.protocol in ("", "held-out") else f"{self.data} ({self.protocol} protocol)"

    def shifts(self, kind: str, ladder: bool) -> list[str]:
        """The shifts of a kind: those with several severities (a ladder), or those without."""
        return [name for name, own in self.kinds.items() if own == kind and bool(self.steps[name]) == ladder]

    def rows(self, key: Key) -> list[Row]:
        """The rows of a key, one a seed; an empty list where it was not measured."""
        return [self.results.rows[i] for i in self.index.get(key, {}).values()]

    def effect(self, model: str, shift: str, severity: int, subject: str, metric: str) -> Effect | None:
        """The mean over seeds with its draws; None where it was not measured."""
        key = model, shift, severity, subject, metric
        if key not in self._effects:
            at = self.index.get(key, {})
            values = {seed: self.results.rows[i].value for seed, i in at.items()}
            resamples = {seed: self.results.resamples[i] for seed, i in at.items()}
            n = min((self.results.rows[i].n for i in at.values()), default=0)
            self._effects[key] = Effect.of(values, resamples, model, n) if at else None
        return self._effects[key]
