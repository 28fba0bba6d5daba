"""How near `recommend`, which sees ID data alone, comes to the true order of scores on real shifts.

    python tools/recommend_trial.py --data FOLDER --model shared/data/resnet20_cifar10.npz --to runs/scores-trial

The public ResNet-20 and the cached Outputs of `scores_trial.py`. `recommend` gets one half of the CIFAR-10 test set and
the training set; the truth is the AUROC of the other half against CIFAR-100, SVHN, Tiny ImageNet and the 15 corruptions
of CIFAR-C, none of which `recommend` uses. Spearman's rank correlation, and what its first choice loses to the best.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from scipy import stats

from scores_trial import predict_with_cache, resnet20, shifts
from shiftprism.benchmark import Recommendation, recommend
from shiftprism.corruptions import COMMON
from shiftprism.datasets import load
from shiftprism.metrics import auroc
from shiftprism.scores import SCORES

SETS = {"CIFAR-100": ("cifar100-a", "cifar100-b"), "SVHN": ("svhn",), "TIN": ("tiny-imagenet",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("runs/scores-trial"))
    options = parser.parse_args()
    classifier = resnet20(options.model)
    train, test = (load("cifar10", split, root=options.data) for split in ("train", "test"))
    own, start = slice(1, None, 2), time.perf_counter()
    found = recommend(classifier, test.images[own], test.labels[own], train)
    print(f"{found.basis}; {time.perf_counter() - start:.0f} s; the two kinds agree at {found.agreement:.2f}\n")
    known = predict_with_cache(classifier, lambda: train.images, options.to / "train.safetensors")
    clean = predict_with_cache(classifier, lambda: test.images, options.to / "test.safetensors")
    head, held = classifier.head, clean.rows(own)
    scores = {one.score: SCORES[one.score].fit(known, train.labels, head=head, reference=held) for one in found.ranking}
    inside = {name: score(clean.rows(slice(0, None, 2))) for name, score in scores.items()}
    table: dict[str, dict[str, float]] = {}
    for name, _, images in shifts(options.data, test.images[::2]):
        outside = predict_with_cache(classifier, images, options.to / f"{name}.safetensors")
        table[name] = {score: auroc(inside[score], made(outside)) for score, made in scores.items()}
    report(found, table)


def report(found: Recommendation, table: dict[str, dict[str, float]]) -> None:
    names = [one.score for one in found.ranking]
    groups = {**SETS, "CIFAR-C": tuple(name for name in table if name.rsplit("-", 1)[0] in COMMON)}
    truth = {
        title: np.array([fmean(table[one][name] for one in sets) for name in names]) for title, sets in groups.items()
    }
    truth["other sets"] = np.mean([truth[title] for title in SETS], 0)
    truth["all"] = (truth["other sets"] + truth["CIFAR-C"]) / 2
    print(f"{'':4}{'score':22}{'corrupted':>10}{'hidden':>8}" + "".join(f"{title:>11}" for title in truth))
    for place, one in enumerate(found.ranking):
        cells = "".join(f"{100 * values[place]:11.1f}" for values in truth.values())
        print(f"{one.rank:<4}{one.score:22}{100 * one.covariate:10.1f}{100 * one.concept:8.1f}{cells}")
    orders = {
        "both": np.array([-float(one.rank) for one in found.ranking]),
        "corrupted copies": np.array([one.covariate for one in found.ranking]),
        "hidden classes": np.array([one.concept for one in found.ranking]),
        "chance": torch.randperm(len(names), generator=torch.Generator().manual_seed(0)).double().numpy(),
    }
    print("\nSpearman's correlation with the truth, and what the first choice loses in AUROC points over all")
    for title, values in orders.items():
        cells = "".join(f"{stats.spearmanr(values, true).statistic:11.2f}" for true in truth.values())
        first = int(values.argmax())
        lost = 100 * float(truth["all"].max() - truth["all"][first])
        print(f"{'':4}{title:40}{cells}   {names[first]}, {lost:.1f}")


if __name__ == "__main__":
    main()
