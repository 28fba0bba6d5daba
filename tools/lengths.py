"""What longer training changes: rows of `laptop-long` (60 epochs) beside those of `laptop` (12), and its checkpoints.

Networks of the longer runs are called vanilla-long and alpha-beta-long. Their rows are in results/long.
"""

from dataclasses import replace

from matplotlib.figure import Figure

from shiftprism import claims, plots
from shiftprism.rows import Effect, Measured, Results, display_name

LONG = "-long"
SETS = ("cifar100", "corrupted", "svhn", "tiny-imagenet")
Pair = tuple[str, str]
CONTRASTS: tuple[tuple[Pair, Pair], ...] = (
    (("alpha-beta", "u"), ("vanilla", "u")),
    (("alpha-beta", "u"), ("vanilla", "energy")),
    (("alpha-beta", "h"), ("vanilla", "h")),
    (("alpha-beta", "gen"), ("vanilla", "gen")),
)
"""Pairs of model and score whose difference is compared between the two lengths."""


def length_gains(results: Results) -> str:
    """For each contrast and set: the lead after 12 epochs, after 60, and how far it grew, with 95 % intervals."""
    (measured,) = (one for one in Measured.split(_both_lengths(results)) if one.data == "cifar10")
    lines = ["| lead of | on | 12 epochs | 60 epochs | grew by |", "| :-- | :-- | --: | --: | --: |"]
    for better, worse in CONTRASTS:
        name = f"{' '.join(better)} over {' '.join(worse)}"
        leads = {one: [_lead(measured, one, better, worse, ending) for ending in ("", LONG)] for one in SETS}
        leads[f"mean of {len(SETS)}"] = [Effect.mean(column) for column in zip(*leads.values(), strict=True)]
        for one, (short, long) in leads.items():
            cells = [_points(effect) for effect in (short, long, long - short)]
            lines.append(f"| {name} | {display_name(one)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def length_claims(results: Results) -> str:
    """The judgement of every claim that both lengths have rows for, and the effect that decides it.

    Rivals other than the two heads are left out of both columns, because they have no rows of the longer runs.
    """
    short, long = (
        {one.claim.name: one for one in claims.judge(_as_laptop(results, ending)) if one.judgement != "not measured"}
        for ending in ("", LONG)
    )
    lines = ["| claim | 12 epochs | 60 epochs |", "| :-- | :-- | :-- |"]
    for name in short:
        if name in long:
            cells = [_describe(one) for one in (short[name], long[name])]
            lines.append(f"| {short[name].claim.sentence} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def length_ranking(results: Results, best: int = 3) -> str:
    """The best scores of each head and length in the mean of the sets, and U where it is not among them."""
    (measured,) = (one for one in Measured.split(_both_lengths(results)) if one.data == "cifar10")
    subjects = dict.fromkeys(row.subject for row in measured.results.rows if row.metric == "auroc")
    lines = [
        f"| network | seeds | score | {' | '.join(SETS)} | mean | 95 % interval |",
        "| :-- | --: | :-- |" + " --: |" * (len(SETS) + 2),
    ]
    for model in (model + ending for ending in ("", LONG) for model in ("vanilla", "alpha-beta")):
        found: dict[str, list[Effect]] = {}
        for subject in subjects:
            effects = [measured.effect(model, one, 0, subject, "auroc") for one in SETS]
            present = [one for one in effects if one is not None]
            if len(present) == len(SETS):
                found[subject] = [*present, Effect.mean(present)]
        order = sorted(found, key=lambda subject: -found[subject][-1].value)
        for subject in dict.fromkeys((*order[:best], *(one for one in order if one == "u"))):
            *_, mean = own = found[subject]
            numbers = " | ".join(f"{100 * one.value:.1f}" for one in own)
            interval = f"{100 * mean.low:.1f} to {100 * mean.high:.1f}" if mean.seeds > 1 else "one seed"
            lines.append(f"| {model} | {mean.seeds} | {subject} | {numbers} | {interval} |")
    return "\n".join(lines) + "\n"


def take_epochs(results: Results) -> Results:
    """The AUROCs of checkpoints on whole sets; their other rows are as many as those of a published network."""
    wanted = [
        number
        for number, row in enumerate(results.rows)
        if "@" in row.model and row.shift in SETS and not row.severity and row.metric == "auroc"
    ]
    return results.take(wanted)


def draw_epochs(results: Results) -> Figure:
    """AUROC of U and h against epochs, a panel a set."""
    rows = [replace(row, model=row.model.replace(f"{LONG}@", "@")) for row in results.rows]
    return plots.epoch_curves(rows, shifts=SETS)


def _describe(finding: claims.Finding) -> str:
    """The judgement, and of the effects that decided it the weakest."""
    weakest = finding.deciding[0]
    return f"{finding.judgement}; {weakest.name}: {weakest.text}"


def _both_lengths(results: Results) -> Results:
    models = [model + ending for model in ("vanilla", "alpha-beta") for ending in ("", LONG)]
    return results.where(data="cifar10", protocol="held-out", model=models)


def _as_laptop(results: Results, ending: str) -> Results:
    """The networks of one length under the names that claims know, so that both are judged by the same rules."""
    models = ["vanilla" + ending, "alpha-beta" + ending]
    found = results.where(data="cifar10", protocol="held-out", model=models)
    return Results([replace(row, model=row.model.removesuffix(LONG)) for row in found.rows], found.resamples)


def _lead(measured: Measured, shift: str, better: Pair, worse: Pair, ending: str) -> Effect:
    ours, theirs = (_effect(measured, model + ending, shift, score, "auroc") for model, score in (better, worse))
    return ours - theirs


def _effect(measured: Measured, model: str, shift: str, subject: str, metric: str) -> Effect:
    found = measured.effect(model, shift, 0, subject, metric)
    if found is None:
        raise SystemExit(f"no rows of {model}: {metric} of {subject} on {shift}")
    return found


def _points(effect: Effect) -> str:
    """In points of AUROC; the interval of one seed is over images alone, so it is left out."""
    low, high = (f"{100 * end:+.1f}" for end in (effect.low, effect.high))
    interval = f" [{low}, {high}]" if effect.decides else " (one seed)"
    return f"{100 * effect.value:+.1f}{interval}".replace("-", "−")
