"""What a claim is, and how the evidence for it becomes a judgement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from shiftprism.rows import LEVEL, Effect, Measured, adjust_p_values

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

    @property
    def is_about_training(self) -> bool:
        """Whether another training run may change it; not if it is about images or pixels alone."""
        return self.rule != "zero" and self.unit != "distance"

    def decides(self, estimate: "Estimate") -> bool:
        """Whether an estimate has enough seeds to decide anything."""
        return estimate.seeds > 1 or not self.is_about_training


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
    """A claim holds if every deciding interval lies above −margin, and is contradicted if one lies below.

    One of many intervals lies below by chance, so a contradiction needs Holm's correction for their number. (All of
    many lie above by chance less often than one does: to hold needs none.) One seed says nothing about another training
    run, so an effect of a model with one seed decides nothing, unless no training is in the claim.
    """
    effects, missing, scope = claim.measure(measured)
    members = [make_estimate(name, effect, claim) for name, effect in effects]
    if not members:
        lacks = f"no rows of {', '.join(missing)}" if missing else ""
        return Finding(claim, "not measured", [], _join(lacks, scope), measured.title)
    deciding = take_deciding(claim, effects)
    judgement, reason = _judge(claim, deciding, missing)
    family = _exceptions(members, claim) if deciding is not effects else ""
    few = _few_seeds(members) if claim.is_about_training else ""
    evidence = [make_estimate(name, effect, claim) for name, effect in deciding] if deciding is not effects else []
    return Finding(claim, judgement, evidence + members, _join(reason, family, scope, few), measured.title)


def take_deciding(claim: Claim, effects: list[tuple[str, Effect]]) -> list[tuple[str, Effect]]:
    """What decides about a claim: the mean of a family, or every effect (the same list)."""
    if claim.rule != "mean" or len(effects) < 2:
        return effects
    return [(f"mean of {len(effects)}", Effect.mean([effect for _, effect in effects]))]


def _judge(claim: Claim, deciding: Sequence[tuple[str, Effect]], missing: Sequence[str]) -> tuple[Judgement, str]:
    """The judgement and its reason."""
    edge, estimates = -claim.margin, [make_estimate(name, effect, claim) for name, effect in deciding]
    if claim.rule == "zero":
        against, undecided = [one for one in estimates if one.value != 0], list[Estimate]()
    else:
        able = [i for i, one in enumerate(estimates) if claim.decides(one)]
        adjusted = dict(zip(able, adjust_p_values([deciding[i][1].p_value(edge) for i in able]), strict=True))
        against = [estimates[i] for i in able if adjusted[i] < 1 - LEVEL and estimates[i].value < edge]
        undecided = [one for one in estimates if one.low <= edge or not claim.decides(one)]
    if against:
        return "contradicted", _list_estimates(against)
    if undecided:
        return "not shown", _explain_undecided(claim, undecided, len(deciding) > 1)
    if missing:
        return "not measured", f"what was measured agrees, but there are no rows of {', '.join(missing)}"
    return "holds", f"within a margin of {_margin(claim)}" if claim.margin else ""


def _explain_undecided(claim: Claim, undecided: Sequence[Estimate], of_many: bool) -> str:
    """Why the effects decide nothing, with their names where there are others."""
    edge = f"−{_margin(claim)}" if claim.margin else "0"
    reasons: dict[str, list[Estimate]] = {}
    for one in undecided:
        if not claim.decides(one):
            reason = "one seed decides nothing"
        elif one.high < -claim.margin:
            reason = f"the interval is below {edge}, but not with Holm's correction,"
        else:
            reason = f"the interval includes {edge}"
        reasons.setdefault(reason, []).append(one)
    names = {reason: ", ".join(one.name for one in group[:3]) + _more(group) for reason, group in reasons.items()}
    return _join(*(f"{reason} for {names[reason]}" if of_many else reason.rstrip(",") for reason in reasons))


def _exceptions(members: Sequence[Estimate], claim: Claim) -> str:
    """How many members of a family hold on their own, and which point the other way."""
    above = sum(one.low > -claim.margin and claim.decides(one) for one in members)
    below = sorted((one for one in members if one.value < -claim.margin), key=lambda one: one.value)
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


def make_estimate(name: str, effect: Effect, claim: Claim) -> Estimate:
    """An effect as a finding shows it."""
    return Estimate(name, effect.value, effect.low, effect.high, effect.seeds, effect.n, claim.unit)


_WORDS = {
    "AUROC": (100, 1, "points of AUROC"),
    "rank correlation": (1, 2, "rank correlation"),
    "ECE": (1, 4, "ECE"),
    "share": (100, 1, "%"),
    "distance": (1, 3, "distance"),
}
