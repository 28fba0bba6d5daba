"""The evidence for each claim: contrasts of scores and models on the shifts that the rows have, by any name."""

from collections.abc import Callable, Iterable, Sequence

from shiftprism.claims._claim import Evidence
from shiftprism.claims._paper import PAPER
from shiftprism.rows import Effect, Measured, display_name

Measure = Callable[[Measured], Evidence]
Pair = tuple[str, str]
"""(model, score) or (model, calibrator)."""
Effects = list[tuple[str, Effect]]
HEADS = ("vanilla", "alpha", "beta", "alpha-beta")
OURS: Pair = ("alpha-beta", "u")
RIVALS = (
    *dict.fromkeys((one.model, one.subject) for one in PAPER if one.table == 1 and (one.model, one.subject) != OURS),
    ("hyper-free", "max_cosine"),
)
"""The other (model, score) pairs of Table 1."""


def correlation_with_severity(kind: str) -> Measure:
    """Rank correlation of AUROC with severity: an effect a corruption, or a model where there is one ladder."""

    def measure(measured: Measured) -> Evidence:
        grouped: dict[str, list[Effect]] = {}
        for shift in measured.shifts(kind, ladder=True):
            for model in HEADS:
                ladders = [_ladder(measured, shift, (model, score)) for score in ("g", "h", "u")]
                correlations = [Effect.rank_correlation(steps) for steps in ladders if len(steps) > 2]
                name = display_name(shift) if kind == "covariate" else model
                if correlations:
                    grouped.setdefault(name, []).extend(correlations)
        effects = [(name, Effect.mean(members)) for name, members in grouped.items()]
        return Evidence(effects, _missing_ladders(measured, kind))

    return measure


def contrast_by_ladder(kind: str, better: Pair, worse: Pair, only: Sequence[str] = ()) -> Measure:
    """AUROC of one pair minus that of another: an effect for each ladder of a kind, averaged over its severities."""

    def measure(measured: Measured) -> Evidence:
        shifts = [name for name in measured.shifts(kind, ladder=True) if not only or name in only]
        effects = [(display_name(name), _ladder_contrast(measured, name, better, worse)) for name in shifts]
        missing = () if shifts else tuple(only) or _missing_ladders(measured, kind)
        return Evidence(_present(effects), missing or _missing_pairs(measured, better, worse))

    return measure


def contrast_on_splits(betters: Sequence[Pair], worse: Pair) -> Measure:
    """The same on the concept ladder, with an effect for each of several pairs."""

    def measure(measured: Measured) -> Evidence:
        effects, missing = Effects(), list(_missing_ladders(measured, "concept"))
        for shift in measured.shifts("concept", ladder=True):
            for better in betters:
                effect = _ladder_contrast(measured, shift, better, worse)
                effects += [(f"{' '.join(better)} − {' '.join(worse)}", effect)] if effect else []
                missing += [] if effect else [better[0]]
        return Evidence(effects, tuple(missing))

    return measure


def mean_contrast_on_corruptions(better: Pair, rivals: Sequence[Pair]) -> Measure:
    """An effect for each rival: the mean over all corruptions and severities."""

    def measure(measured: Measured) -> Evidence:
        effects, missing = Effects(), list[str]()
        for rival in rivals:
            shifts = measured.shifts("covariate", ladder=True)
            contrasts = [e for s in shifts if (e := _ladder_contrast(measured, s, better, rival)) is not None]
            effects += [(f"{' '.join(better)} − {' '.join(rival)}", Effect.mean(contrasts))] if contrasts else []
            missing += [] if contrasts else _missing_pairs(measured, better, rival)
        return Evidence(effects, _missing_ladders(measured, "covariate") or tuple(dict.fromkeys(missing)))

    return measure


def contrast_by_set(kinds: Sequence[str], better: Pair, worse: Pair, everywhere: bool = False) -> Measure:
    """An effect for each whole set (concept, corrupted, far); of CIFAR-100 where the paper's numbers support it."""

    def measure(measured: Measured) -> Evidence:
        sets, scope = _whole_sets(measured, kinds, everywhere)
        effects = _present(
            (f"{display_name(s)}: {_name_contrast(better, worse)}", _contrast(measured, s, 0, better, worse))
            for s in sets
        )
        missing = () if effects else _missing_pairs(measured, better, worse) or ("whole sets",)
        return Evidence(effects, missing, scope)

    return measure


def mean_contrast_over_sets(better: Pair, rivals: Sequence[Pair]) -> Measure:
    """An effect for each rival: the mean over the concept, corrupted and far sets."""

    def measure(measured: Measured) -> Evidence:
        sets, scope = _whole_sets(measured, ("concept", "covariate", "both"))
        effects, missing = Effects(), list[str]()
        for rival in rivals:
            contrasts = _present((display_name(name), _contrast(measured, name, 0, better, rival)) for name in sets)
            if contrasts:
                over = contrasts[0][0] if len(contrasts) == 1 else f"mean of {len(contrasts)} sets"
                mean = Effect.mean([effect for _, effect in contrasts])
                effects.append((f"{over}: {_name_contrast(better, rival)}", mean))
            else:
                missing += _missing_pairs(measured, better, rival)
        no_sets = () if effects else ("whole sets",)
        return Evidence(effects, tuple(dict.fromkeys(missing)) or no_sets, scope)

    return measure


def contrast_with_rivals(kind: str, but: Sequence[str] = ()) -> Measure:
    """U of α-β minus every other pair of Table 1 that was measured, on the whole sets of a kind."""

    def measure(measured: Measured) -> Evidence:
        if measured.data in but:
            return Evidence([], scope=f"the paper makes no such claim for {measured.data}")
        sets, limits = (_far_sets(measured), "") if kind == "both" else _whole_sets(measured, (kind,))
        contrasts = {(s, rival): _contrast(measured, s, 0, OURS, rival) for s in sets for rival in RIVALS}
        if not any(contrasts.values()):
            return Evidence([], (f"U of α-β and a rival on a {kind} set",))
        there = {rival for (_, rival), effect in contrasts.items() if effect}
        # hyper-free and odin are one method under two names: either will do
        absent = [" ".join(rival) for rival in RIVALS if rival not in there and rival[0] != "hyper-free"]
        lacking = f"rivals not measured: {', '.join(absent)}" if absent else ""
        effects = ((f"{display_name(s)}: over {' '.join(rival)}", effect) for (s, rival), effect in contrasts.items())
        return Evidence(_present(effects), scope="; ".join(part for part in (lacking, limits) if part))

    return measure


def reduction(metric: str, shift: str, ours: Pair, theirs: Pair) -> Measure:
    """By how much ours is below theirs."""

    def measure(measured: Measured) -> Evidence:
        a, b = (measured.effect(model, shift, 0, subject, metric) for model, subject in (ours, theirs))
        absent = [" ".join(pair) for pair, effect in ((ours, a), (theirs, b)) if effect is None]
        if a is None or b is None:
            return Evidence([], (f"{shift} {metric} of {' and '.join(absent)}",))
        return Evidence([(f"{shift}: {' '.join(theirs)} − {' '.join(ours)}", b - a)])

    return measure


def share_changed(metric: str, model: str = "alpha-beta", calibrator: str = "alpha-beta") -> Measure:
    """The share of images that a calibrator changes, on every set where it was counted."""

    def measure(measured: Measured) -> Evidence:
        keys = [key for key in measured.index if (key[0], *key[3:]) == (model, calibrator, metric)]
        effects = [(display_name(key[1]) + (f" {key[2]}" if key[2] else ""), measured.effect(*key)) for key in keys]
        return Evidence(_present(effects), () if effects else (metric,))

    return measure


def time_saved(measured: Measured) -> Evidence:
    """The share of vanilla's training time that α-β saves."""
    ours, theirs = (measured.effect(model, "clean", 0, "training", "seconds") for model in ("alpha-beta", "vanilla"))
    if ours is None or theirs is None:
        return Evidence([], ("training times of vanilla and alpha-beta",))
    if min(ours.seeds, theirs.seeds) < 2:  # images say nothing about time: a single training has no interval
        return Evidence([], ("training times of two seeds",))
    return Evidence([("time saved", (theirs - ours) * (1 / theirs.value))])


def norm_reduction(measured: Measured) -> Evidence:
    """The share by which the median norm is below that of clean images, over all severities of each corruption."""
    clean = measured.effect("alpha-beta", "clean", 0, "norm", "median")
    effects = Effects()
    for shift in measured.shifts("covariate", ladder=True):
        steps = [measured.effect("alpha-beta", shift, step, "norm", "median") for step in measured.steps[shift]]
        present = [step for step in steps if step is not None]
        if clean and present:
            effects.append((display_name(shift), (clean - Effect.mean(present)) * (1 / clean.value)))
    return Evidence(effects, () if effects else ("median norms",))


def histogram_distance(measured: Measured) -> Evidence:
    """How much farther the far set's pixel histogram is than twice the distance of the concept set's.

    The paper says "very similar" and "very different" without a measure. Twice as far is our reading, chosen before
    anyone looked at the distances of the CIFARs and SVHN.
    """
    near = _present((name, _pixel_distance(measured, name)) for name in measured.shifts("concept", ladder=False))
    far = _present((name, _pixel_distance(measured, name)) for name in _far_sets(measured))
    if not near or not far:
        return Evidence([], ("pixel histograms",))
    twice = Effect.mean([effect for _, effect in near]) * 2.0
    distances = ", ".join(f"{display_name(name)} {effect.value:.3f}" for name, effect in near + far)
    effects = [(f"{display_name(name)}: beyond twice the near distance", effect - twice) for name, effect in far]
    return Evidence(effects, scope=f"distances: {distances}")


def _pixel_distance(measured: Measured, shift: str) -> Effect | None:
    return measured.effect("pixels", shift, 0, "histogram", "distance")


def _contrast(measured: Measured, shift: str, severity: int, better: Pair, worse: Pair) -> Effect | None:
    a, b = (measured.effect(model, shift, severity, score, "auroc") for model, score in (better, worse))
    return a - b if a and b else None


def _ladder_contrast(measured: Measured, shift: str, better: Pair, worse: Pair) -> Effect | None:
    """The mean contrast over the severities of a ladder."""
    steps = (_contrast(measured, shift, severity, better, worse) for severity in measured.steps[shift])
    contrasts = [step for step in steps if step is not None]
    return Effect.mean(contrasts) if contrasts else None


def _ladder(measured: Measured, shift: str, pair: Pair) -> list[Effect]:
    """AUROC of a pair at each severity."""
    model, score = pair
    steps = (measured.effect(model, shift, severity, score, "auroc") for severity in measured.steps[shift])
    return [step for step in steps if step is not None]


def _whole_sets(measured: Measured, kinds: Sequence[str], everywhere: bool = False) -> tuple[list[str], str]:
    """Whole sets of these kinds; of CIFAR-100 only those on which the paper's own numbers support its text."""
    names = [name for kind in kinds for name in measured.shifts(kind, ladder=False)]
    doubtful = ("cifar10", "tiny-imagenet") if measured.data == "cifar100" and not everywhere else ()
    left_out = [name for name in names if name in doubtful]
    scope = f"without {', '.join(left_out)}, where the paper's own numbers do not support it" if left_out else ""
    return [name for name in names if name not in left_out], scope


def _far_sets(measured: Measured) -> list[str]:
    """The far sets; SVHN alone where it is among them, because the paper's text is about SVHN."""
    names = measured.shifts("both", ladder=False)
    return ["svhn"] if "svhn" in names else names


def _name_contrast(better: Pair, worse: Pair) -> str:
    """Two pairs, the model named once where it is the same."""
    if better[0] == worse[0]:
        return f"{better[1]} − {worse[1]}"
    return f"{' '.join(better)} − {' '.join(worse)}"


def _present(effects: Iterable[tuple[str, Effect | None]]) -> Effects:
    return [(name, effect) for name, effect in effects if effect is not None]


def _missing_ladders(measured: Measured, kind: str) -> tuple[str, ...]:
    return () if measured.shifts(kind, ladder=True) else (f"{kind} shift at several severities",)


def _missing_pairs(measured: Measured, *pairs: Pair) -> tuple[str, ...]:
    there = {(key[0], key[3]) for key in measured.index if key[4] == "auroc"}
    return tuple(dict.fromkeys(" ".join(pair) for pair in pairs if pair not in there))
