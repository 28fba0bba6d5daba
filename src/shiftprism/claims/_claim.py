"""What a claim is, and how the evidence for it becomes a judgement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from shiftprism.rows import Effect, Measured

Judgement = Literal["holds", "contradicted", "not shown", "not measured"]
"""What the rows say about a claim. "Not shown": the rows cannot tell. "Not measured": they say nothing about it."""
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
Unit = Literal["AUROC", "rank correlation", "ECE", "share", "distance"]
ENOUGH_SEEDS = 5


class Evidence(NamedTuple):
    """What the rows say about a claim: named effects, positive where they support it."""

    effects: list[tuple[str, Effect]]
    missing: tuple[str, ...] = ()
    """What the claim is about and the rows lack."""
    scope: str = ""
    """A limit of the evidence that the note mentions whatever comes out."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper as a predicate over rows."""

    name: str
    sentence: str
    """In our words."""
    place: str
    """Its place in the paper."""
    measure: Callable[[Measured], Evidence] = field(repr=False, compare=False)
    unit: Unit = "AUROC"
    rule: Literal["mean", "every", "zero"] = "every"
    """mean: the mean of the effects decides, exceptions are listed; every: each must hold; zero: all are exactly 0."""
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
    """The images of the smallest set in it."""
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
    """The judgement of a claim on one ID data set."""

    claim: Claim
    judgement: Judgement
    evidence: list[Estimate]
    """What decided comes first; of a family its mean, then its members."""
    note: str
    data: str
    """The ID data set, with the protocol where it is not the held-out one."""

    @property
    def deciding(self) -> list[Estimate]:
        """What decided: the mean of a family; of a claim that must hold everywhere the three weakest effects."""
        if self.claim.rule == "mean":
            return self.evidence[:1]
        return sorted(self.evidence, key=lambda one: one.low)[:3]


def judge_claim(claim: Claim, measured: Measured) -> Finding:
    """A claim holds if its 95 % interval lies above −margin, and is contradicted if it lies below.

    The interval of a single seed is over images alone: another training run may differ by more. So one seed shows no
    claim, unless the claim is about images or pixels and no training is in it.
    """
    effects, missing, scope = claim.measure(measured)
    members = [_estimate(name, effect, claim) for name, effect in effects]
    if not members:
        lacks = f"no rows of {', '.join(missing)}" if missing else ""
        return Finding(claim, "not measured", [], _join(lacks, scope), measured.title)
    deciding = members
    if claim.rule == "mean" and len(members) > 1:
        deciding = [_estimate(f"mean of {len(members)}", Effect.mean([effect for _, effect in effects]), claim)]
    judgement, reason = _judge(claim, deciding, missing)
    trained = claim.rule != "zero" and claim.unit != "distance"
    if trained and judgement == "holds" and all(one.seeds == 1 for one in members):
        judgement = "not shown"  # the note on few seeds is the reason
    family = _exceptions(members, claim.margin) if deciding is not members else ""
    few = _few_seeds(members) if trained else ""
    evidence = deciding if deciding is members else deciding + members
    return Finding(claim, judgement, evidence, _join(reason, family, scope, few), measured.title)


def _judge(claim: Claim, deciding: Sequence[Estimate], missing: Sequence[str]) -> tuple[Judgement, str]:
    """The judgement and its reason."""
    if claim.rule == "zero":
        against, undecided = [one for one in deciding if one.value != 0], list[Estimate]()
    else:
        against = [one for one in deciding if one.high < -claim.margin]
        undecided = [one for one in deciding if one.low <= -claim.margin]
    if against:
        return "contradicted", _list_estimates(against)
    if undecided:
        edge = f"−{_margin(claim)}" if claim.margin else "0"
        names = "" if len(deciding) == 1 else f" for {', '.join(one.name for one in undecided[:3])}{_more(undecided)}"
        return "not shown", f"the interval includes {edge}{names}"
    if missing:
        return "not measured", f"what was measured agrees, but there are no rows of {', '.join(missing)}"
    return "holds", f"within a margin of {_margin(claim)}" if claim.margin else ""


def _exceptions(members: Sequence[Estimate], margin: float) -> str:
    """How many members of a family hold on their own, and which point the other way."""
    above = sum(one.low > -margin for one in members)
    below = sorted((one for one in members if one.value < -margin), key=lambda one: one.value)
    against = f", against it: {_list_estimates(below)}" if below else ""
    return f"{above} of {len(members)} hold on their own{against}"


def _list_estimates(estimates: Sequence[Estimate]) -> str:
    return "; ".join(f"{one.name} {one.text}" for one in estimates[:3]) + _more(estimates)


def _more(estimates: Sequence[Estimate]) -> str:
    return f" and {len(estimates) - 3} more" if len(estimates) > 3 else ""


def _few_seeds(members: Sequence[Estimate]) -> str:
    seeds = min(one.seeds for one in members)
    if seeds == 1:
        return "one seed: another training run may differ"
    return f"few seeds ({seeds})" if seeds < ENOUGH_SEEDS else ""


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _margin(claim: Claim) -> str:
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
