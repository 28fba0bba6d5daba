"""What a claim is, and how the evidence for it becomes a verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from shiftprism.benchmark._bootstrap import Effect, Measured

Verdict = Literal["holds", "does not hold", "not measured"]
Unit = Literal["AUROC", "rank correlation", "ECE", "share", "distance"]
ENOUGH_SEEDS = 5


class Lines(NamedTuple):
    """What a claim looks at: named effects, positive where they speak for it."""

    effects: list[tuple[str, Effect]]
    missing: tuple[str, ...] = ()
    """What the claim speaks of and the rows lack."""
    aside: str = ""
    """Said in the note whatever comes out, such as the scope."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper as a predicate over rows."""

    name: str
    sentence: str
    """In our words."""
    place: str
    """Where it stands in the paper."""
    look: Callable[[Measured], Lines] = field(repr=False, compare=False)
    unit: Unit = "AUROC"
    rule: Literal["mean", "every", "zero"] = "every"
    """mean: the mean of the effects decides, exceptions are told; every: each must hold; zero: all are exactly 0."""
    margin: float = 0.0
    """How far below 0 an effect may lie: for claims of "not worse"."""


class Estimate(NamedTuple):
    """A named number with its 95 % interval over seeds and images."""

    name: str
    value: float
    low: float
    high: float
    seeds: int
    n: int
    """Images of the smallest set in it."""
    unit: str

    @property
    def text(self) -> str:
        """For a reader.

        >>> Estimate("motion blur", 0.091, 0.07, 0.112, 3, 10000, "AUROC").text
        '+9.1 [+7.0, +11.2] points of AUROC'
        """
        scale, digits, word = _WORDS[self.unit]
        value, low, high = (_signed(scale * number, digits) for number in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}] {word}"


class Finding(NamedTuple):
    """What came of a claim on one ID data set."""

    claim: Claim
    verdict: Verdict
    evidence: list[Estimate]
    """What decided first; for a family its mean, then its members."""
    note: str
    data: str
    """The ID data set, with the protocol where it is not the held-out one."""

    @property
    def reason(self) -> str:
        """Why it does not hold: "contradicted", or "not shown" where the data at hand cannot tell; else empty."""
        return self.note.partition(":")[0] if self.verdict == "does not hold" else ""

    @property
    def short(self) -> list[Estimate]:
        """What decided: the mean of a family; of claims that must hold everywhere the three weakest."""
        if self.claim.rule == "mean":
            return self.evidence[:1]
        return sorted(self.evidence, key=lambda one: one.low)[:3]


def find(claim: Claim, measured: Measured) -> Finding:
    """The verdict on one claim, decided by 95 % intervals: above −margin it holds, below it is contradicted."""
    where = (
        measured.data if measured.protocol in ("", "held-out") else f"{measured.data} ({measured.protocol} protocol)"
    )
    effects, missing, aside = claim.look(measured)
    own = [_estimate(name, effect, claim) for name, effect in effects]
    if not own:
        lacks = f"no rows of {', '.join(missing)}" if missing else ""
        return Finding(claim, "not measured", [], "; ".join(part for part in (lacks, aside) if part), where)
    decide = own
    if claim.rule == "mean" and len(own) > 1:
        decide = [_estimate(f"mean of {len(own)}", Effect.mean([effect for _, effect in effects]), claim)]
    verdict, reason = _verdict(claim, decide, missing)
    family = _exceptions(own, claim.margin) if decide is not own else ""
    few = "" if claim.rule == "zero" or claim.unit == "distance" else _few(own)
    note = "; ".join(part for part in (reason, family, aside, few) if part)
    return Finding(claim, verdict, decide + (own if decide is not own else []), note, where)


def _verdict(claim: Claim, decide: Sequence[Estimate], missing: Sequence[str]) -> tuple[Verdict, str]:
    if claim.rule == "zero":
        changed = [one for one in decide if one.value != 0]
        against, short = changed, list[Estimate]()
    else:
        against = [one for one in decide if one.high < -claim.margin]
        short = [one for one in decide if one.low <= -claim.margin]
    if against:
        return "does not hold", f"contradicted: {_listed(against)}"
    if short:
        edge = f"−{_amount(claim)}" if claim.margin else "0"
        names = "" if len(decide) == 1 else f" for {', '.join(one.name for one in short[:3])}{_more(short)}"
        return "does not hold", f"not shown: the interval includes {edge}{names}"
    if missing:
        return "not measured", f"what was measured agrees, but there are no rows of {', '.join(missing)}"
    return "holds", f"within a margin of {_amount(claim)}" if claim.margin else ""


def _exceptions(own: Sequence[Estimate], margin: float) -> str:
    """How many members of a family hold by themselves, and which point the other way."""
    above = sum(one.low > -margin for one in own)
    below = sorted((one for one in own if one.value < -margin), key=lambda one: one.value)
    told = f", against it: {_listed(below)}" if below else ""
    return f"{above} of {len(own)} hold by themselves{told}"


def _listed(some: Sequence[Estimate]) -> str:
    return "; ".join(f"{one.name} {one.text}" for one in some[:3]) + _more(some)


def _more(some: Sequence[Estimate]) -> str:
    return f" and {len(some) - 3} more" if len(some) > 3 else ""


def _few(own: Sequence[Estimate]) -> str:
    seeds = min(one.seeds for one in own)
    if seeds == 1:
        return "one seed: what another training would give is not known"
    return f"few seeds ({seeds})" if seeds < ENOUGH_SEEDS else ""


def _amount(claim: Claim) -> str:
    scale, _, word = _WORDS[claim.unit]
    return f"{scale * claim.margin:g} {word}"


def _signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def _estimate(name: str, effect: Effect, claim: Claim) -> Estimate:
    return Estimate(name, effect.value, effect.low, effect.high, effect.seeds, effect.n, claim.unit)


_WORDS = {
    "AUROC": (100, 1, "points of AUROC"),
    "rank correlation": (1, 2, "rank correlation"),
    "ECE": (1, 4, "ECE"),
    "share": (100, 1, "%"),
    "distance": (1, 3, "distance"),
}
