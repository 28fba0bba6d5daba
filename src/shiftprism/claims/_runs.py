"""The cheapest training runs that settle open claims, and both as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shiftprism._errors import wrong
from shiftprism.claims._power import MOST_SEEDS, POWER, OpenClaim

RUN_MINUTES = 28.0
"""Core-minutes of one run of `laptop`: some 20 of training, the rest of measuring."""
RUNS_A_SEED = {"ensemble": 5, "alpha-beta-ensemble": 5}
"""Networks that one seed of a model consists of, where it is not one."""


class RunStep(NamedTuple):
    """Runs to add, and the claims that they settle with a chance of 80 % each, if the truth is the effects seen."""

    seeds: dict[tuple[str, str], int]
    """(data, model): how many seeds to add."""
    runs: int
    minutes: float
    """Core-minutes of this step."""
    claims: list[OpenClaim]

    @property
    def text(self) -> str:
        """The seeds to add, for a reader."""
        return ", ".join(f"{data} {model} +{count}" for (data, model), count in self.seeds.items())


def plan_runs(claims: Sequence[OpenClaim], minutes: float = RUN_MINUTES) -> list[RunStep]:
    """The runs that settle as many of the claims as ten seeds a model can, cheapest claims first.

    Greedy: each step adds the runs that cost least for each claim that they settle beside those of the steps before.
    For one claim, seeds are added one by one where they raise its power most for their cost. `minutes` are the
    core-minutes of one run; an ensemble takes five.
    """
    if not 0 < minutes < float("inf"):
        raise wrong("minutes", "positive", minutes, "give the core-minutes of one training run")
    seeds: dict[tuple[str, str], int] = {}
    for one in claims:
        for model, now in one.seeds.items():
            seeds[one.data, model] = min(now, seeds.get((one.data, model), now))
    pending = [one for one in claims if one.required_seeds is not None]
    steps = []
    while pending:
        offers = [_settle(one, pending, seeds) for one in pending]
        # the first of equals: the order is that of the paper
        best = min(offers, key=lambda step: step.runs / len(step.claims))
        steps.append(best._replace(minutes=best.runs * minutes))
        seeds |= {key: seeds[key] + added for key, added in best.seeds.items()}
        pending = [one for one in pending if one not in best.claims]
    return steps


def _settle(claim: OpenClaim, pending: Sequence[OpenClaim], seeds: Mapping[tuple[str, str], int]) -> RunStep:
    """The runs that settle one claim beside those that there are, and all that they settle."""
    counts = {model: max(2, seeds[claim.data, model]) for model in claim.seeds}
    while claim.power(counts) < POWER:
        more = [model for model, count in counts.items() if count < MOST_SEEDS]
        gains = {model: claim.power(counts | {model: counts[model] + 1}) - claim.power(counts) for model in more}
        counts[max(more, key=lambda model: gains[model] / RUNS_A_SEED.get(model, 1))] += 1
    added = {(claim.data, model): count - seeds[claim.data, model] for model, count in counts.items()}
    added = {key: count for key, count in added.items() if count}
    after = {**seeds, **{key: seeds[key] + count for key, count in added.items()}}
    settled = [one for one in pending if one is claim or one.power({m: after[one.data, m] for m in one.seeds}) >= POWER]
    return RunStep(added, sum(count * RUNS_A_SEED.get(key[1], 1) for key, count in added.items()), 0.0, settled)


def seeds_to_markdown(claims: Sequence[OpenClaim]) -> str:
    """A table of open claims with the seeds that each would need."""
    lines = [
        "| ID data | claim | effect seen | seeds now | seeds needed | it would be | note |",
        "| :-- | :-- | :-- | :-- | --: | :-- | :-- |",
    ]
    for one in claims:
        effect = f"{one.hardest.name}: {one.hardest.text}"
        decided = one.outcome if one.required_seeds is not None else "undecided at this size" if one.noises else "–"
        cells = (one.data, one.claim.sentence, effect, one.seeds_text, one.required_text, decided, one.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def runs_to_markdown(steps: Sequence[RunStep]) -> str:
    """A table of the runs that settle most, cheapest first."""
    lines = [
        "| order | seeds to add | runs | core-hours | core-hours so far | claims settled |",
        "| --: | :-- | --: | --: | --: | :-- |",
    ]
    total = 0.0
    for number, step in enumerate(steps, 1):
        total += step.minutes
        names = ", ".join(f"{one.data} {one.claim.name}" for one in step.claims)
        hours = f"{step.minutes / 60:.1f} | {total / 60:.1f}"
        lines.append(f"| {number} | {step.text} | {step.runs} | {hours} | {names} |")
    return "\n".join(lines) + "\n"


def seeds_to_json(claims: Sequence[OpenClaim], steps: Sequence[RunStep]) -> str:
    """Both as one JSON object."""
    found = {"claims": [_claim_object(one) for one in claims], "runs": [_step_object(step) for step in steps]}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _claim_object(one: OpenClaim) -> dict[str, Any]:
    names = {"data": one.data, "claim": one.claim.name, "note": one.note, "outcome": one.outcome}
    return names | {"seeds": dict(one.seeds), "required_seeds": one.required_seeds, "effect": one.hardest._asdict()}


def _step_object(step: RunStep) -> dict[str, Any]:
    added = [{"data": data, "model": model, "seeds": count} for (data, model), count in step.seeds.items()]
    names = [{"data": one.data, "claim": one.claim.name} for one in step.claims]
    return {"added": added, "runs": step.runs, "core_minutes": step.minutes, "claims": names}
