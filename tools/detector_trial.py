"""What a detector promises and what it catches, on digits and on real CIFAR-10: the tables of docs/detector.md.

Run with: .venv/bin/python tools/detector_trial.py MODEL --cache DIR [--root DATA] [--splits 200] [--images 1000]

MODEL is the folder of a trained run, RESNET20.npz with `--backbone resnet20`, or `cifar10` for the network that comes
with the package. Held-out images are CIFAR-10 test images 0–4,999 for a public network, and the held-out tenth for one
of ours; 5,000 other test images are the clean ones. For `digits` a small network is trained on a half of the training
digits first, the other half is held out, and only the promise is measured.

- The promise: the detector's own scores of held-out and clean images are divided anew at random, `--splits` times, into
  `--reference` images for the p-values and the rest; the share of false alarms among the rest is averaged.
- What it catches: the share flagged, called covariate and called concept at 5 %, beside p_covariate, p_concept, U and
  MSP, each alone at the same level.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism.backbones import BACKBONES, load_arrays
from shiftprism.corruptions import corrupt
from shiftprism.datasets import load
from shiftprism.detector import BUNDLED, Detector, count_allowed
from shiftprism.heads import Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import msp, p_value, u
from shiftprism.training import PRESETS, channel_statistics, split_held_out, train

DIGITS = "digits"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CORRUPTED = (("motion_blur", 3), ("motion_blur", 5), ("gaussian_noise", 5), ("contrast", 5), ("fog", 3))
OTHERS = ("cifar100", "svhn", "tiny-imagenet")


def main() -> None:
    words = read_words()
    classifier, held_images, held_labels, test_images = load_model(words)
    folder = words.cache / words.model.stem
    torch.manual_seed(0)
    if (folder / "detector.json").exists():
        detector = Detector.load(folder, **({"backbone": words.backbone} if words.backbone else {}))
    else:
        detector = Detector.fit(classifier, held_images, held_labels)
        detector.save(folder)
    print(detector, "" if detector.recommendation is None else detector.recommendation.ranking[:3])
    clean = keep(folder / "clean.safetensors", classifier, lambda: test_images)
    print_promise(detector, clean, words)
    if str(words.model) == DIGITS:
        return
    held = keep(folder / "held.safetensors", classifier, lambda: held_images)
    print_shares(detector, classifier, held, clean, test_images[: words.images], folder, words)


def make_parser(text: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backbone", default="")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--root", type=Path)
    return parser


def read_words() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--reference", type=int, default=1000)
    parser.add_argument("--images", type=int, default=1000)
    return parser.parse_args()


def load_model(words: argparse.Namespace) -> tuple[Classifier, Tensor, Tensor, Tensor]:
    """The classifier, held-out images with labels, and other clean images."""
    if str(words.model) == DIGITS:
        learned, held = load(DIGITS, "train").hold_out(0.5)
        fresh = load(DIGITS, "test")
        classifier = Classifier.build(DIGITS, "alpha-beta", held.names, 1, *channel_statistics(learned.images))
        train(classifier, learned, PRESETS["smoke"])
        return classifier.eval(), held.images, held.labels, fresh.images
    test = load("cifar10", "test", words.root)
    if words.backbone:
        backbone, head = BACKBONES[words.backbone](), Linear(64, 10, bias=True)
        load_arrays(words.model, backbone, head)
        classifier = Classifier(backbone, head, MEAN, STD, test.names).eval()
        return classifier, test.images[:5000], test.labels[:5000], test.images[5000:]
    held = split_held_out("cifar10", 0.1, words.root)[1]
    if str(words.model) in BUNDLED:
        bundled = Detector.load(words.model).classifier
        assert bundled is not None
        return bundled, held.images, held.labels, test.images[5000:]
    return Classifier.load(words.model), held.images, held.labels, test.images[5000:]


def keep(path: Path, classifier: Classifier, make: "object") -> Outputs:
    if not path.exists():
        predict(classifier, make())[0].save(path)  # type: ignore[operator]
    return Outputs.load(path)[0]


def print_promise(detector: Detector, clean: Outputs, words: argparse.Namespace) -> None:
    """False alarms over random divisions of exchangeable images into a reference and the rest."""
    of_held = detector.decision.combine(detector.held.style, detector.held.concept)
    scores = torch.cat([of_held, detector.decide(clean).combined])
    if len(scores) <= words.reference:
        raise SystemExit(f"expected --reference below the {len(scores)} images there are but got {words.reference}")
    print(
        f"\n| level | {words.reference} images | mean false alarms | standard error | expected | within two |"
        f" above the level at confidence .95 |\n|---|---|---|---|---|---|---|"
    )
    for level in (0.01, 0.05, 0.1):
        n = words.reference
        rates: list[float] = []
        sure: list[float] = []
        allowed = count_allowed(n, level), count_allowed(n, level, 0.95)
        for seed in range(words.splits):
            order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
            p = p_value(scores[order[:n]].sort().values, scores[order[n:]])
            for rates_of, k in zip((rates, sure), allowed, strict=True):
                rates_of.append(float((p <= (k + 0.5) / (n + 1)).float().mean()))
        mean, error = np.mean(rates), np.std(rates, ddof=1) / words.splits**0.5
        expected = allowed[0] / (n + 1)
        above = np.mean(np.array(sure) > level)
        print(
            f"| {level:.0%} | {n} | {mean:.4f} | {error:.4f} | {expected:.4f} |"
            f" {'yes' if abs(mean - expected) <= 2 * error else 'NO'} | {above:.1%} of {words.splits} |"
        )


def print_shares(
    detector: Detector,
    classifier: Classifier,
    held: Outputs,
    clean: Outputs,
    images: Tensor,
    folder: Path,
    words: argparse.Namespace,
) -> None:
    """What is flagged at 5 %, and as what."""
    references = {"u": u(held).sort().values, "msp": msp(held).sort().values}
    print("\n| set | flagged | covariate | concept | style alone | concept alone | U alone | MSP alone |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")

    def sets() -> Iterator[tuple[str, Outputs]]:
        yield "clean", clean
        for name, severity in CORRUPTED:
            path = folder / f"{name}-{severity}.safetensors"
            yield f"{name} {severity}", keep(path, classifier, lambda: corrupt(images, name, severity))  # noqa: B023
        for name in OTHERS:
            path = folder / f"{name}.safetensors"
            yield name, keep(path, classifier, lambda: load(name, "test", words.root).images[: words.images])  # noqa: B023

    rows = {}
    for name, outputs in sets():
        verdicts = detector(outputs)
        kind = verdicts.kind
        alone = {
            one: float((p_value(references[one], score(outputs)) <= 0.05).float().mean())
            for one, score in (("u", u), ("msp", msp))
        }
        shares = [
            float((kind != "in-distribution").mean()),
            float((kind == "covariate").mean()),
            float((kind == "concept").mean()),
        ]
        shares += [float((p <= 0.05).mean()) for p in (verdicts.p_covariate, verdicts.p_concept)]
        rows[name] = [*shares, alone["u"], alone["msp"]]
        print(f"| {name} | " + " | ".join(f"{share:.1%}" for share in rows[name]) + " |", flush=True)
    (folder / "shares.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
