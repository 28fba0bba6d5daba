"""The detector that comes with the package: made from trained runs, and what it says of photographs.

Run with: .venv/bin/python tools/bundle_detector.py RUN [RUN …] [--to DIR] [--root DATA]
     and: .venv/bin/python tools/bundle_detector.py --photographs FOLDER

RUN are folders of finished CIFAR-10 runs, or of models that such runs trained: `src/shiftprism/detector/cifar10/model`
fits a new detector to the network that is there, after a change of formulas. The weights of each are rounded to half
precision; then a detector is fitted to the images that the run held out, and the run whose concept score is the best on
its surrogates of shift (held-out images alone) is kept. Photographs are resized to 32 × 32 by the model.
`--photographs` prints what the detector that is there says of ImageNet photographs by file name
(`404_n02690373_airliner.jpg`): of those that show a class of CIFAR-10, and of the others.
"""

import argparse
from collections import Counter
from pathlib import Path

import torch

from shiftprism import Classifier, Detector
from shiftprism.classifier import Preprocessing, predict
from shiftprism.datasets import list_images
from shiftprism.detector import BUNDLED, find_bundled, score_files
from shiftprism.training import PRESETS, read_run_settings, split_held_out

SIDE = 32
HELD_OUT = PRESETS["laptop"].held_out
MOST_BYTES = 4_000_000
# knn keeps thousands of feature vectors, which do not fit into the package
CANDIDATES = ("h", "u", "msp", "energy", "gen", "fdbd", "vim", "she", "mahalanobis", "relative_mahalanobis", "prism")
CLASSES = {
    "airplane": (404, 895),
    "automobile": (436, 468, 511, 609, 627, 656, 661, 751, 817),
    "bird": (*range(7, 25), *range(80, 101), *range(127, 147)),
    "cat": tuple(range(281, 286)),
    "dog": tuple(range(151, 269)),
    "frog": (30, 31, 32),
    "horse": (339,),
    "ship": (403, 472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 914),
    "truck": (555, 569, 675, 717, 864, 867),
}
"""ImageNet's numbers of what CIFAR-10 would call so; no class of ImageNet is a deer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, default=find_bundled(BUNDLED[0]))
    parser.add_argument("--root", type=Path)
    parser.add_argument("--photographs", type=Path)
    words = parser.parse_args()
    if words.runs:
        make(words.runs, words.to, words.root)
    if words.photographs:
        judge_photographs(Detector.load(words.to) if words.runs else Detector.load(BUNDLED[0]), words.photographs)


def make(runs: list[Path], to: Path, root: Path | None) -> None:
    """Fit one to each run, and save the best."""
    made = [fit(run, root) for run in runs]
    best = max(made, key=lambda one: one[1])[0]
    assert best.classifier is not None
    best.classifier.half()
    best.save(to)
    size = sum(file.stat().st_size for file in to.rglob("*") if file.is_file())
    print(f"{to}: {size:,} bytes, {best}")
    if size > MOST_BYTES:
        raise SystemExit(f"{size:,} bytes are more than {MOST_BYTES:,}")


def fit(run: Path, root: Path | None) -> tuple[Detector, float]:
    """A detector of the rounded network, and the mean AUROC of its concept score on surrogates."""
    classifier = round_to_half(Classifier.load(run))
    classifier.preprocessing = Preprocessing(size=(SIDE, SIDE), resize=SIDE, channels=3)
    data, share = "cifar10", HELD_OUT
    if (run / "config.toml").exists():
        settings = read_run_settings(run)
        data, share = settings["data"], settings["held_out"]
    held = split_held_out(data, share, root)[1]
    outputs = predict(classifier, held)[0]
    accuracy = float((outputs.predictions == held.labels).float().mean())
    detector = Detector.fit(classifier, held.images, held.labels, candidates=CANDIDATES)
    assert detector.recommendation is not None
    first = detector.recommendation.ranking[0]
    print(
        f"{run.name}: held-out accuracy {accuracy:.2%}, concept score {first.score}, AUROC on hidden classes "
        f"{first.concept:.3f}, on corrupted copies {first.covariate:.3f}"
    )
    return detector, first.mean


def round_to_half(classifier: Classifier) -> Classifier:
    """The same network with weights that half precision holds exactly; it computes in single precision."""
    return classifier.half().float()


def judge_photographs(detector: Detector, folder: Path) -> None:
    """A line for each class of CIFAR-10 that is among the photographs, and one for all others."""
    names = {number: name for name, numbers in CLASSES.items() for number in numbers}
    rows: dict[str, Counter[str]] = {}
    for file in score_files(detector, list_images(folder)):
        assert file.verdict is not None, file.problem
        shows = names.get(int(file.path.name.split("_")[0]), "others")
        count = rows.setdefault(shows, Counter())
        count["photographs"] += 1
        count[file.verdict.kind] += 1
        count["right"] += file.verdict.name == shows
    known = sum((count for name, count in rows.items() if name != "others"), Counter())
    print("| photographs of | images | class right | flagged | covariate | concept |\n|---|--:|--:|--:|--:|--:|")
    for name, count in [*sorted(rows.items()), ("all of CIFAR-10's classes", known)]:
        right = "" if name == "others" else str(count["right"])
        flagged = count["covariate"] + count["concept"]
        print(f"| {name} | {count['photographs']} | {right} | {flagged} | {count['covariate']} | {count['concept']} |")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
