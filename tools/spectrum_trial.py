"""What `style`, `spectrum`, attribution and `shift-aware` do on a public network; Outputs are kept and read again.

Run with: .venv/bin/python tools/spectrum_trial.py RESNET20.npz --cache DIR [--backbone resnet20] [--root DATA]
     and: .venv/bin/python tools/spectrum_trial.py MODEL --cache DIR [--few]

MODEL is the folder of a saved classifier. `--few` takes minutes: 40 copies a condition in place of 125, severities 1, 3
and 5, and a fifth of the other images.

Fitted to: training images and CIFAR-10 test images 0–1,999, with copies of some under all extras at severities 1, 3, 5.
Tested on: test images from 2,000 on, clean and under the 15 corruptions at five severities, CIFAR-100, SVHN and Tiny
ImageNet. Choices were made by leaving out one family of extras at a time (`--families`), never by these test sets.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism.backbones import BACKBONES, load_arrays
from shiftprism.calibrators import ShiftAware, Temperature
from shiftprism.corruptions import COMMON, EXTRA, FAMILIES, OWN_EXTRA, corrupt
from shiftprism.datasets import load
from shiftprism.heads import Linear
from shiftprism.metrics import auroc, ece, nll
from shiftprism.outputs import Outputs
from shiftprism.scores import KNN, Prism, Score, Spectrum, Style, attribute, g, gen, h, p_value, u, which_way

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEVELS = (1, 3, 5)
EXTRAS = (*EXTRA, *OWN_EXTRA)
OTHERS = {"cifar100": "cifar100", "svhn": "svhn", "tin": "tiny-imagenet"}


class Set(NamedTuple):
    outputs: Outputs
    labels: Tensor

    def rows(self, index: "slice | Tensor") -> "Set":
        return Set(self.outputs.rows(index), self.labels[index])


def join(sets: "list[Set]") -> Set:
    return Set(Outputs.concat([one.outputs for one in sets]), torch.cat([one.labels for one in sets]))


class Data(NamedTuple):
    train: Set
    fit: Set
    clean: Set
    extras: dict[tuple[str, int], Set]
    """Rows: copies of test images 0–999, then of 1,000–1,999, then of training images."""
    others: dict[str, Set]
    corrupted: dict[tuple[str, int], Set]


def network(words: argparse.Namespace) -> Classifier:
    if words.weights.is_dir():
        return Classifier.load(words.weights).eval()
    backbone, head = BACKBONES[words.backbone](), Linear(64, 10, bias=True)
    load_arrays(words.weights, backbone, head)
    return Classifier(backbone, head, MEAN, STD).eval()


def extract(words: argparse.Namespace) -> Data:
    """The Outputs of all sets, computed where the cache has none."""
    classifier = network(words)
    few = 5 if words.few else 1
    train, test = load("cifar10", "train", words.root), load("cifar10", "test", words.root)

    def keep(name: str, make: Callable[[], Tensor], labels: Tensor) -> Set:
        path = words.cache / f"{words.backbone}{'-few' * words.few}" / f"{name}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            predict(classifier, make())[0].save(path, labels)
        outputs, kept = Outputs.load(path)
        assert kept is not None
        return Set(outputs, kept)

    def part(name: str, data: str, images: slice) -> Set:
        source = {"train": train, "test": test}.get(data) or load(data, "test", words.root)
        return keep(name, lambda: source.images[images], source.labels[images])

    extras = {}
    for number, (level, name) in enumerate((level, name) for level in (3, 5, 1) for name in EXTRAS):
        rows = (number * words.copies + torch.arange(words.copies)) % 1000
        images = torch.cat([test.images[rows], test.images[1000 + rows], train.images[10_000 + rows]])
        labels = torch.cat([test.labels[rows], test.labels[1000 + rows], train.labels[10_000 + rows]])
        extras[name, level] = keep(f"extra-{name}-{level}", lambda: corrupt(images, name, level), labels)  # noqa: B023
    corrupted = {}
    tested, truth = test.images[2000 : 2000 + words.test], test.labels[2000 : 2000 + words.test]
    for name in COMMON:
        for level in words.levels:
            file = f"corrupted-{words.test}-{name}-{level}"
            corrupted[name, level] = keep(file, lambda: corrupt(tested, name, level), truth)  # noqa: B023
    return Data(
        part("train", "train", slice(8000 // few)),
        part("fit", "test", slice(2000)),
        part("clean", "test", slice(2000, 2000 + 4000 // few)),
        extras,
        # every fifth image: Tiny ImageNet comes class by class
        {name: part(name, source, slice(0, 10_000, 5 * few)) for name, source in OTHERS.items()},
        corrupted,
    )


def copies(data: Data, parts: str, names: tuple[str, ...] = EXTRAS) -> dict[str, Set]:
    """The copies of the first (a) and second (b) thousand held-out images and of training images (t), by extra."""
    count = len(next(iter(data.extras.values())).labels) // 3
    blocks = torch.cat([torch.arange(count) + count * "abt".index(part) for part in parts])
    return {name: join([data.extras[name, level].rows(blocks) for level in LEVELS]) for name in names}


def shifted_outputs(sets: Mapping[str, Set]) -> dict[str, Outputs]:
    return {name: one.outputs for name, one in sets.items()}


def percent(values: "list[float]") -> float:
    return 100 * float(np.mean(values))


def share(kinds: Tensor, kind: int) -> float:
    return 100 * float((kinds == kind).double().mean())


def leave_out_families(data: Data) -> None:
    """AUROC of `style`, and NLL and ECE of `shift-aware`, on a family of extras that both were fitted without."""
    print("| left out | style | ECE: temperature | shift-aware | clean |\n|---|---|---|---|---|")
    first, second = data.fit.rows(slice(1000)), data.fit.rows(slice(1000, 2000))
    clean = join([data.train, first]).outputs
    temperature = Temperature.fit(*first)
    for family, names in FAMILIES.items():
        kept = tuple(name for name in EXTRAS if name not in names)
        style = Style.fit(clean, shifted_outputs(copies(data, "at", kept)))
        aware = ShiftAware.fit(*first, shifted=dict(copies(data, "a", kept)))
        ones = [data.extras[name, level] for name in names for level in LEVELS]
        held = [one.rows(slice(len(one.labels) // 3, 2 * len(one.labels) // 3)) for one in ones]
        found = [auroc(style(second.outputs), style(one.outputs)) for one in held]
        eces = [[ece(fit.probabilities(one.outputs), one.labels) for one in held] for fit in (temperature, aware)]
        inside = ece(aware.probabilities(second.outputs), second.labels)
        means = " | ".join(f"{np.mean(values):.4f}" for values in eces)
        print(f"| {family} | {percent(found):.1f} | {means} | {inside:.4f} |", flush=True)


def detect(data: Data) -> None:
    """AUROCs by set, which way, and the kinds of single images at 5 % false alarms."""
    known, shifted = join([data.train, data.fit.rows(slice(1000))]).outputs, shifted_outputs(copies(data, "at"))
    reference, ranked = data.fit.rows(slice(1000, 1500)).outputs, data.fit.rows(slice(1500, 2000)).outputs
    spectrum = Spectrum.fit(known, reference=reference, shifted=shifted)
    style, knn = Style.fit(known, shifted), KNN.fit(known)
    prism = Prism.fit(known, reference=reference)
    scores: dict[str, Score] = {
        "g": g,
        "h": h,
        "u": u,
        "gen": gen,
        "knn": knn,
        "prism": prism,
        "style": style,
        "spectrum": spectrum,
    }
    inside = {name: score(data.clean.outputs) for name, score in scores.items()}
    print("| AUROC | CIFAR-100 | corrupted | SVHN | TIN | mean of four |\n|---|---|---|---|---|---|")
    for name, score in scores.items():
        values = {other: percent([auroc(inside[name], score(one.outputs))]) for other, one in data.others.items()}
        values["corrupted"] = percent([auroc(inside[name], score(one.outputs)) for one in data.corrupted.values()])
        four = [values[which] for which in ("cifar100", "corrupted", "svhn", "tin")]
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in [*four, np.mean(four)])} |", flush=True)
    levels = sorted({level for _, level in data.corrupted})
    print(f"\n| style by corruption | {' | '.join(map(str, levels))} | mean |\n|---{'|---' * len(levels)}|---|")
    for name in COMMON:
        ladder = [percent([auroc(inside["style"], style(data.corrupted[name, s].outputs))]) for s in levels]
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in [*ladder, np.mean(ladder)])} |")

    def p(name: str, outputs: Outputs) -> Tensor:
        return p_value(scores[name](ranked).sort().values, scores[name](outputs))

    print("\n| which way: CIFAR-100 against corrupted, AUROC | |\n|---|---|")
    unseen = data.others["cifar100"].outputs
    for pair in (("g", "h"), ("style", "h"), ("style", "gen"), ("style", "knn")):
        concept = which_way(p(pair[0], unseen), p(pair[1], unseen))
        ways = [which_way(p(pair[0], one.outputs), p(pair[1], one.outputs)) for one in data.corrupted.values()]
        print(f"| ({', '.join(pair)}) | {percent([auroc(concept, way) for way in ways]):.1f} |", flush=True)
    sets = {"clean": [data.clean], **{name: [one] for name, one in data.others.items()}}
    sets |= {f"corrupted, {s}": [one for (_, at), one in data.corrupted.items() if at == s] for s in (1, 3, 5)}
    print("\n| % called covariate / concept at 5 % false alarms | style decides | smaller p of (style, gen) | (g, h) |")
    print("|---|---|---|---|")
    for name, ones in sets.items():
        outputs = Outputs.concat([one.outputs for one in ones])
        alarm = p("spectrum", outputs)
        smaller = torch.where(p("style", outputs) < p("gen", outputs), 0.0, 1.0)
        geometric = torch.where(p("g", outputs) < p("h", outputs), 0.0, 1.0)
        fisher = 2 * torch.minimum(p("g", outputs), p("h", outputs))
        rules = (attribute(alarm, p("style", outputs)), attribute(alarm, smaller), attribute(fisher, geometric))
        cells = [f"{share(kinds, 1):.1f} / {share(kinds, 2):.1f}" for kinds in rules]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def calibrate(data: Data) -> None:
    """ECE and NLL, clean and as a mean over corrupted conditions, with the oracle and the sampling floor."""
    fitted = {"temperature": Temperature.fit(*data.fit)}
    sets = copies(data, "ab")
    everything = join([data.fit, *sets.values()])
    fitted["temperature on clean and extras"] = Temperature.fit(*everything)
    aware = ShiftAware.fit(*data.fit, shifted=dict(sets))
    print("\n| | clean ECE | corrupted ECE | clean NLL | corrupted NLL |\n|---|---|---|---|---|")
    rows: dict[str, Callable[[Set], Tensor]] = {"none": lambda one: one.outputs.logits}
    rows |= {name: lambda one, fit=fit: fit(one.outputs) for name, fit in fitted.items()}  # type: ignore[misc]
    rows["shift-aware"] = lambda one: aware(one.outputs)
    rows["oracle: a temperature for each condition"] = lambda one: Temperature.fit(*one)(one.outputs)
    for name, logits in rows.items():
        tested = [data.clean, *data.corrupted.values()]
        pairs = [(torch.softmax(logits(one).double(), 1), one.labels) for one in tested]
        eces, nlls = [ece(*pair) for pair in pairs], [nll(*pair) for pair in pairs]
        values = [eces[0], np.mean(eces[1:]), nlls[0], np.mean(nlls[1:])]
        print(f"| {name} | {' | '.join(f'{value:.4f}' for value in values)} |", flush=True)
    generator, floor = torch.Generator().manual_seed(0), []
    for one in data.corrupted.values():
        probabilities = torch.softmax(Temperature.fit(*one)(one.outputs).double(), 1)
        floor.append(ece(probabilities, torch.multinomial(probabilities, 1, generator=generator).squeeze(1)))
    changed = sum(
        int((aware(one.outputs).argmax(1) != one.outputs.predictions).sum()) for one in data.corrupted.values()
    )
    print(f"| sampling floor | | {np.mean(floor):.4f} | | |\n\n{changed} predictions changed by shift-aware.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--cache", type=Path, required=True, help="Where Outputs are kept.")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--test", type=int, default=1000, help="Images of each corrupted test condition.")
    parser.add_argument("--families", action="store_true", help="Only what the choices rest on, without the test sets.")
    parser.add_argument("--few", action="store_true", help="Fewer images of everything but the corrupted sets.")
    words = parser.parse_args()
    words.copies, words.levels = (40, LEVELS) if words.few else (125, range(1, 6))
    data = extract(words)
    leave_out_families(data)
    if not words.families:
        print()
        detect(data)
        calibrate(data)


if __name__ == "__main__":
    main()
