"""How every score fares on real shifts of CIFAR-10, and whether another combination would improve `prism`.

    python tools/scores_trial.py --data FOLDER --model shared/data/resnet20_cifar10.npz --to runs/scores-trial

A public ResNet-20 that nobody here trained. Scores are fitted to its training set without augmentation; ranks come from
one half of the test set, the other half is the ID side of every AUROC. Combinations are *chosen* on four corruptions
and half of the CIFAR-100 classes; they are *judged* on everything else. Outputs are cached in the folder --to.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from shiftprism.backbones import CifarResNet, load_arrays
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import COMMON, CORRUPTIONS, EXTRA
from shiftprism.datasets import load
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, p_value

LOOKED_AT = ("motion_blur", "shot_noise", "gaussian_noise", "contrast")
SEVERITIES = (1, 3, 5)
RANKS = ("fisher", "prism", "g_two_sided")
IMAGES = 2000
"""Of each corrupted set; the other sets are whole."""


def resnet20(path: Path) -> Classifier:
    """The public model: ImageNet's normalisation, a bias in the last layer."""
    backbone, head = CifarResNet(20), Linear(64, 10, bias=True)
    load_arrays(path, backbone, head)
    return Classifier(backbone, head, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).eval()


def shifts(root: Path, clean: Tensor) -> Iterator[tuple[str, bool, Callable[[], Tensor]]]:
    """(name, whether it may be looked at while choosing, the images)."""
    hundred = load("cifar100", "test", root=root)
    yield "cifar100-a", True, lambda: hundred.images[hundred.labels < 50]
    yield "cifar100-b", False, lambda: hundred.images[hundred.labels >= 50]
    yield "svhn", False, lambda: load("svhn", "test", root=root).images
    yield "tiny-imagenet", False, lambda: load("tiny-imagenet", "test", root=root).images
    few, seeds = clean[:IMAGES], torch.arange(IMAGES)
    for name in (*COMMON, *EXTRA):
        for severity in SEVERITIES:
            yield f"{name}-{severity}", name in LOOKED_AT, partial(CORRUPTIONS[name], few, severity, seeds)


def predict_with_cache(classifier: Classifier, images: Callable[[], Tensor], path: Path) -> Outputs:
    if not path.exists():
        predict(classifier, images())[0].save(path)
    return Outputs.load(path)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("runs/scores-trial"))
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    classifier = resnet20(options.model)
    train, test = (load("cifar10", split, root=options.data) for split in ("train", "test"))
    known = predict_with_cache(classifier, lambda: train.images, options.to / "train.safetensors")
    clean = predict_with_cache(classifier, lambda: test.images, options.to / "test.safetensors")
    print(f"accuracy on the test set {float((clean.predictions == test.labels).double().mean()):.4f}")
    held, inside = clean.rows(slice(1, None, 2)), clean.rows(slice(0, None, 2))
    head = classifier.head
    scores = {name: entry.fit(known, train.labels, head=head, reference=held) for name, entry in SCORES.items()}
    scores["mahalanobis (logits)"] = SCORES["mahalanobis"].fit(known, train.labels, space="logits")
    sets = {
        name: (looked, predict_with_cache(classifier, images, options.to / f"{name}.safetensors"))
        for name, looked, images in shifts(options.data, test.images[::2])
    }
    own = {name: score(inside) for name, score in scores.items()}
    values = {name: {score: made(outputs) for score, made in scores.items()} for name, (_, outputs) in sets.items()}
    table = {name: {score: auroc(own[score], found) for score, found in row.items()} for name, row in values.items()}
    looked_at = {name: looked for name, (looked, _) in sets.items()}
    print_means("Mean AUROC, %", table, looked_at, sorted(scores, key=lambda one: -mean(table, looked_at, one, False)))

    # near copies of others (max_similarity of h, max_logit and kl_uniform of energy and u) would only multiply the work
    apart = [name for name in scores if name not in {*RANKS, "max_similarity", "max_logit", "kl_uniform"}]
    chosen_from = [(*few,) for count in (2, 3) for few in combinations(apart, count)]
    chosen_from += [("g", "h", "knn", one) for one in apart if one not in ("g", "h", "knn")]
    reference = {name: scores[name](held).sort().values for name in apart}
    logs = {
        name: {score: p_value(reference[score], row[score]).log() for score in apart}
        for name, row in {**values, "inside": own}.items()
    }

    def combine(names: Sequence[str], few: Sequence[str]) -> dict[str, dict[str, float]]:
        inside_sum = sum(logs["inside"][one] for one in few)
        return {name: {" + ".join(few): auroc(inside_sum, sum(logs[name][one] for one in few))} for name in names}

    looked_names = [name for name, looked in looked_at.items() if looked]
    ranked = sorted(
        chosen_from, key=lambda few: -fmean(next(iter(row.values())) for row in combine(looked_names, few).values())
    )
    best = [*ranked[:8], ("g", "h", "knn")]
    final = {name: {key: value for few in best for key, value in combine([name], few)[name].items()} for name in sets}
    title = f"Fisher's rule: the best 8 of {len(chosen_from)} on what was looked at, and prism's own three"
    print_means(title, final, looked_at, [" + ".join(few) for few in best])


def mean(table: Mapping[str, Mapping[str, float]], looked_at: Mapping[str, bool], score: str, looked: bool) -> float:
    return 100 * fmean(row[score] for name, row in table.items() if looked_at[name] == looked)


def print_means(
    title: str, table: Mapping[str, Mapping[str, float]], looked_at: Mapping[str, bool], scores: Sequence[str]
) -> None:
    concept = {name: name.startswith(("cifar100", "svhn", "tiny")) for name in table}
    print(f"\n{title}\n{'':48}   chosen on   judged on  of these: concept  covariate")
    for score in scores:
        unseen = [name for name in table if not looked_at[name]]
        parts = [100 * fmean(table[name][score] for name in unseen if concept[name] == kind) for kind in (True, False)]
        means = [mean(table, looked_at, score, looked) for looked in (True, False)]
        print(f"{score:48}{means[0]:12.2f}{means[1]:12.2f}{parts[0]:19.2f}{parts[1]:11.2f}")


if __name__ == "__main__":
    main()
