"""What `spectrum` is made of: the rules that were tried, on held-out images and extras alone (docs/style.md).

Run with: .venv/bin/python tools/spectrum_parts.py GRID/cells/CELL [CELL …]

A CELL is the folder of a finished network that `shiftprism benchmark` wrote; its held-out images, its training images
and their copies under the extras are read, no test set. Printed is the AUROC of each rule, the mean over the cells:

- on extras that `style` was not fitted to: a third of the families is left out at a time;
- on hidden classes: two classes at a time are taken out of the logits, the bank and all ranks, and count as unknown.
  They are easier than unseen classes, for the backbone has learned them;
- on wrong predictions, against right ones. They are images that the network takes for what they are not, in the usual
  style, as unseen classes are.

The rule to choose is the best one on extras of those that lose at most a point to U on hidden classes and on wrong
predictions. It is printed last.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from combination_trial import narrow_outputs
from shiftprism.corruptions import FAMILIES
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.recommend import split_by_class
from shiftprism.rows import CellFolder, set_file
from shiftprism.scores import KNN, Score, Style, gen, p_value, u

SEVERITIES = (1, 3, 5)
KNOWN = 10_000
GROUPS = 5
FOLDS = 3

Logs = Mapping[str, Tensor]
"""ln p by the name of a part: gen, knn, style; and u itself."""
Rule = Callable[[Logs], Tensor]


class Imitation(NamedTuple):
    """One imitation of shift: what a rule reads of clean images and of those that count as shifted."""

    kind: str
    clean: Logs
    shifted: Logs


def part(logs: Tensor, below: float) -> Tensor:
    """min(0, ln p − ln `below`): 0 where p is at least `below`."""
    return (logs - torch.tensor(below).log().to(logs)).clamp_max(0)


def make_rule(knn: float, style: float, below: float = 1.0) -> Rule:
    return lambda logs: logs["gen"] + knn * logs["knn"] + style * part(logs["style"], below)


RULES: dict[str, Rule] = {"u": lambda logs: logs["u"], "gen": lambda logs: logs["gen"]}
RULES |= {
    f"gen + {knn:g} knn + {style:g} style" + (f" below {below:g}" if below < 1 else ""): make_rule(knn, style, below)
    for knn in (1, 0.5, 0)
    for style in (1, 0.7, 0.5)
    for below in (1, 0.5, 0.25, 0.15, 0.1)
}
KINDS = ("extras", "hidden classes", "wrong predictions")
MOST_LOST = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", type=Path, nargs="+", metavar="CELL")
    words = parser.parse_args()
    found = [one for cell in words.cells for one in imitations(CellFolder(cell))]
    print("| rule | " + " | ".join(KINDS) + " |\n|---" + "|--:" * len(KINDS) + "|")
    values = {title: [mean_auroc(rule, found, kind) for kind in KINDS] for title, rule in RULES.items()}
    for title, row in values.items():
        print(f"| {title} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
    allowed = [
        title
        for title, row in values.items()
        if all(own >= u - MOST_LOST for own, u in zip(row[1:], values["u"][1:], strict=True))
    ]
    print(f"\nThe best on extras of those that lose no more: {max(allowed, key=lambda title: values[title][0])}")


def mean_auroc(rule: Rule, found: Sequence[Imitation], kind: str) -> float:
    return 100 * fmean(auroc(rule(one.clean), rule(one.shifted)) for one in found if one.kind == kind)


def imitations(cell: CellFolder) -> Iterator[Imitation]:
    held, labels = read(cell.outputs("held-out"))
    learned, known = read(cell.outputs("train"))
    rows = torch.linspace(0, learned.N - 1, KNOWN).round().long()
    learned, known = learned.rows(rows), known[rows]
    first, second, reference, judged = split_by_class(labels, 4, seed=0)
    fit = torch.cat([first, second]).sort().values
    copies = {
        (extra, severity): read(cell.path / "outputs" / "copies" / set_file(extra, severity))[0]
        for family in FAMILIES.values()
        for extra in family
        for severity in SEVERITIES
    }
    clean = Outputs.concat([learned, held.rows(fit)])
    ranks, inside = held.rows(reference), held.rows(judged)
    near = KNN.fit(clean)
    families = list(FAMILIES)
    for fold in range(FOLDS):
        left = [extra for family in families[fold::FOLDS] for extra in FAMILIES[family]]
        style = fit_style(clean, copies, left)
        read_logs = log_ranks(ranks, near, style)
        logs = read_logs(inside)
        for (extra, _), outputs in copies.items():
            if extra in left:
                yield Imitation("extras", logs, read_logs(outputs))
    style = fit_style(clean, copies, [])
    logs = log_ranks(ranks, near, style)(inside)
    right = inside.predictions == labels[judged]
    yield Imitation("wrong predictions", take(logs, right), take(logs, ~right))
    truth = torch.cat([known, labels[fit]])
    order = torch.randperm(held.K, generator=torch.Generator().manual_seed(0))
    for group in range(GROUPS):
        gone = order[group::GROUPS]
        keeps = torch.tensor([k for k in range(held.K) if k not in gone])
        bank = KNN.fit(clean.rows(~torch.isin(truth, gone)))
        hidden = torch.isin(labels, gone)
        narrow = narrow_outputs(held, keeps)
        read_logs = log_ranks(narrow.rows(reference[~hidden[reference]]), bank, style)
        inner, outer = narrow.rows(judged[~hidden[judged]]), narrow.rows(judged[hidden[judged]])
        yield Imitation("hidden classes", read_logs(inner), read_logs(outer))


def read(path: Path) -> tuple[Outputs, Tensor]:
    outputs, labels = Outputs.load(path)
    assert labels is not None
    return outputs, labels


def fit_style(clean: Outputs, copies: Mapping[tuple[str, int], Outputs], left: list[str]) -> Style:
    """The contrast with all extras but those left out."""
    names = dict.fromkeys(extra for extra, _ in copies if extra not in left)
    return Style.fit(clean, {name: Outputs.concat([copies[name, s] for s in SEVERITIES]) for name in names})


def log_ranks(reference: Outputs, near: KNN, style: Style) -> Callable[[Outputs], Logs]:
    """A function from Outputs to what a rule reads, with ranks among `reference`."""
    scores: dict[str, Score] = {"gen": gen, "knn": near, "style": style}
    among = {name: score(reference).sort().values for name, score in scores.items()}

    def logs(outputs: Outputs) -> Logs:
        found = {name: p_value(among[name], score(outputs)).log() for name, score in scores.items()}
        return {**found, "u": u(outputs)}

    return logs


def take(logs: Logs, rows: Tensor) -> Logs:
    return {name: values[rows] for name, values in logs.items()}


if __name__ == "__main__":
    main()
