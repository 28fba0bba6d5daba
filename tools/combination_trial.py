"""How a detector joins style and concept: the rules that were tried, on held-out images alone (docs/detector.md).

Run with: .venv/bin/python tools/combination_trial.py MODEL --cache DIR [--backbone resnet20] [--root DATA] [--few 60]

MODEL and the held-out images are those of tools/detector_trial.py; no test corruption and no other data set is looked
at. Each rule gets its ranks from one part of the images and its threshold at 5 % false alarms from another. Printed are
the shares that it flags

- of hidden classes: two classes at a time are taken out of the head, the logits and all fits, and their images count as
  unknown;
- of extra corruptions at severities 1, 3 and 5 that style was not fitted to: two families are left out at a time;
- of both at once: hidden classes under such corruptions.

`--few` takes so many images for the ranks. Means over several concept scores, so that the rule suits whichever is
chosen; `lost` is the most that a rule loses on hidden classes to the concept score alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detector_trial import keep, load_model, make_parser
from shiftprism.corruptions import EXTRA, FAMILIES, OWN_EXTRA
from shiftprism.detector import count_allowed
from shiftprism.detector._decision import LogRanks
from shiftprism.detector._fit import divide
from shiftprism.heads import Head
from shiftprism.outputs import Outputs
from shiftprism.recommend import fit_scores
from shiftprism.scores import Style, p_value
from shiftprism.shifts import make_shifted_copies

SCORES = ("fdbd", "knn", "prism", "u", "vim", "energy", "h")
FOLDS = (("noise", "dirt"), ("smoothing", "levels"), ("colour", "edges"), ("tone", "lines and blocks"))
SEVERITIES = (1, 3, 5)
COPIES = 128
GROUPS = 5

Rule = Callable[[Tensor, Tensor], Callable[[Tensor, Tensor], Tensor]]
"""Style and concept of the ranks part -> a function of style and concept."""


class Copies(NamedTuple):
    """Shifted copies of images under one extra corruption."""

    outputs: Outputs
    labels: Tensor
    severity: int


class Surrogate(NamedTuple):
    """One imitation of shift: style and concept of the ranks part, of the conformal part, and of the shifted images."""

    kind: str
    ranks: tuple[Tensor, Tensor]
    conformal: tuple[Tensor, Tensor]
    shifted: tuple[Tensor, Tensor]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--few", type=int)
    words = parser.parse_args()
    classifier, images, labels, _ = load_model(words)
    folder: Path = words.cache
    folder.mkdir(parents=True, exist_ok=True)
    held = keep(folder / "held.safetensors", classifier, lambda: images)
    fit, ranks, conformal = divide(len(images), labels, 0.05, None, 0)
    others = torch.cat([ranks, conformal])

    def copies(part: str, rows: Tensor, name: str, severity: int) -> Copies:
        seed = 0 if part == "fit" else 1
        chosen = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed + severity))[:COPIES]]

        def make() -> Tensor:
            return next(iter(make_shifted_copies(images[chosen], [name], [severity], seeds=chosen))).images

        outputs = keep(folder / f"{part}-{name}-{severity}.safetensors", classifier, make)
        return Copies(outputs, labels[chosen], severity)

    extras = {
        part: {name: [copies(part, rows, name, s) for s in SEVERITIES] for name in (*EXTRA, *OWN_EXTRA)}
        for part, rows in (("fit", fit), ("judged", others))
    }
    shifted = {extra: Outputs.concat([one.outputs for one in own]) for extra, own in extras["fit"].items()}
    styles = [(Style.fit(held.rows(fit), shifted), list[Copies]())]
    for families in FOLDS:
        left = [extra for family in families for extra in FAMILIES[family]]
        style = Style.fit(held.rows(fit), {extra: own for extra, own in shifted.items() if extra not in left})
        styles.append((style, [one for extra in left for one in extras["judged"][extra]]))
    parts = fit, ranks[: words.few], conformal
    sets = {name: list(surrogates(name, held, labels, parts, styles, classifier.head)) for name in SCORES}
    print("| rule | hidden classes | extras 1 | 3 | 5 | both | mean of the kinds | lost |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    print_rule("concept alone", concept_alone, sets)
    print_rule("Fisher's, ranks alone", make_rule(1, 1, steps=True), sets)
    for power in (1, 1.5, 2, 3):
        for weight in (1, 0.85, 0.7, 0.5):
            print_rule(f"power {power:g}, weight {weight:g}", make_rule(power, weight), sets)


def surrogates(
    name: str,
    held: Outputs,
    labels: Tensor,
    parts: tuple[Tensor, Tensor, Tensor],
    styles: list[tuple[Style, list[Copies]]],
    head: Head,
) -> Iterator[Surrogate]:
    """All surrogates, for the concept score of this name; a style comes with the copies that it was not fitted to."""
    fit, ranks, conformal = parts
    first, second = ((held.rows(p), labels[p]) for p in (fit, ranks))
    concept = fit_scores([name], first, second, head, strict=True)[0][name]
    for style, left in styles:
        inside, outside = ((style(held.rows(p)), concept(held.rows(p))) for p in (ranks, conformal))
        for copies in left:
            shifted = style(copies.outputs), concept(copies.outputs)
            yield Surrogate(f"severity {copies.severity}", inside, outside, shifted)
    order = torch.randperm(held.K, generator=torch.Generator().manual_seed(0))
    for number in range(GROUPS):
        gone = order[number::GROUPS]
        hidden = torch.isin(labels, gone)
        keeps = torch.tensor([k for k in range(held.K) if k not in gone])
        place = torch.full((held.K,), -1)
        place[keeps] = torch.arange(len(keeps))
        narrow = narrow_outputs(held, keeps)
        first, second = ((narrow.rows(p[~hidden[p]]), place[labels[p[~hidden[p]]]]) for p in (fit, ranks))
        own = fit_scores([name], first, second, narrow_head(head, keeps), strict=True)[0][name]
        shown = ranks[~hidden[ranks]], conformal[~hidden[conformal]]
        unseen = torch.cat([ranks, conformal])
        unseen = unseen[hidden[unseen]]
        for style, left in styles:
            inside, outside = ((style(held.rows(p)), own(narrow.rows(p))) for p in shown)
            if not left:
                yield Surrogate("hidden", inside, outside, (style(held.rows(unseen)), own(narrow.rows(unseen))))
                continue
            both = Outputs.concat([copies.outputs.rows(torch.isin(copies.labels, gone)) for copies in left])
            yield Surrogate("both", inside, outside, (style(both), own(narrow_outputs(both, keeps))))


def narrow_outputs(outputs: Outputs, keeps: Tensor) -> Outputs:
    """Without the columns of hidden classes."""
    return outputs._replace(**{name: getattr(outputs, name)[:, keeps] for name in ("similarities", "raw", "logits")})


def narrow_head(head: Head, keeps: Tensor) -> Head:
    """A copy of the head without the rows of hidden classes."""
    import copy

    narrow = copy.deepcopy(head)
    for name in ("weight", "bias"):
        rows = getattr(head, name, None)
        if isinstance(rows, torch.nn.Parameter) and len(rows) == head.out_features:
            setattr(narrow, name, torch.nn.Parameter(rows.detach()[keeps]))
    narrow.out_features = len(keeps)
    return narrow


def make_rule(power: float, weight: float, steps: bool = False) -> Rule:
    """− ((weight · |ln p_style|)^power + |ln p_concept|^power); with `steps` by ranks alone, without a tail."""

    def rule(style: Tensor, concept: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        def logs(reference: Tensor) -> Callable[[Tensor], Tensor]:
            if steps:
                return lambda values: p_value(reference.sort().values, values).log()
            return LogRanks(reference)

        first, second = logs(style), logs(concept)
        return lambda s, c: -((-weight * first(s)).pow(power) + (-second(c)).pow(power))

    return rule


def concept_alone(style: Tensor, concept: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The rule that does not look at style."""
    return lambda s, c: c


def share_flagged(rule: Rule, one: Surrogate) -> float:
    """Of the shifted images, at 5 % false alarms."""
    combine = rule(*one.ranks)
    held = combine(*one.conformal).sort().values
    allowed = count_allowed(len(held), 0.05)
    return float((combine(*one.shifted) < held[allowed - 1]).double().mean())


def print_rule(title: str, rule: Rule, sets: dict[str, list[Surrogate]]) -> None:
    kinds = ("hidden", *(f"severity {severity}" for severity in SEVERITIES), "both")

    def mean_share(rule: Rule, own: list[Surrogate], kind: str) -> float:
        return float(np.mean([share_flagged(rule, one) for one in own if one.kind == kind]))

    shares = {kind: {name: mean_share(rule, own, kind) for name, own in sets.items()} for kind in kinds}
    alone = {name: mean_share(concept_alone, own, "hidden") for name, own in sets.items()}
    means = [float(np.mean(list(shares[kind].values()))) for kind in kinds]
    mean = float(np.mean([means[0], np.mean(means[1:-1]), means[-1]]))
    lost = max(alone[name] - shares["hidden"][name] for name in sets)
    print(f"| {title} | " + " | ".join(f"{100 * value:.1f}" for value in (*means, mean, lost)) + " |", flush=True)


if __name__ == "__main__":
    main()
