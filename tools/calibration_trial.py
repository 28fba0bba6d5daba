"""Does calibration harm? Every calibrator on small digits networks, fitted to the held-out fifth, judged on test data.

    python tools/calibration_trial.py --folder runs/calibration-trial --seeds 0-19

Networks of the heads vanilla and alpha-beta are trained (preset smoke, backbone digits; kept in --folder). A line of
the table is the mean over the seeds: test NLL before, how much the calibrator changes it, the standard error of that
change, the change of the single worst seed, and the NLL under corruption (all of them, severities 1, 3 and 5).
`shift-aware` is fitted to copies of the held-out fifth too, made by the extra corruptions, which are not among those.
"""

import argparse
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import torch

from shiftprism.calibrators import CALIBRATORS
from shiftprism.classifier import predict
from shiftprism.datasets import load
from shiftprism.metrics import nll
from shiftprism.outputs import Outputs
from shiftprism.shifts import covariate, make_shifted_copies
from shiftprism.training import Setup, resolve, run, split_held_out

HEADS = ("vanilla", "alpha-beta")
HELD_OUT = 0.2
SEVERITIES = (1, 3, 5)


@cache
def corrupt_test_set() -> torch.Tensor:
    """All corruptions of the test images, one after the other."""
    return torch.cat([shift.make().images for shift in covariate(load("digits", "test"), severities=SEVERITIES)])


@cache
def copy_held_out() -> dict[str, torch.Tensor]:
    """The held-out fifth under each extra corruption, the severities one after the other."""
    copies: dict[str, list[torch.Tensor]] = {}
    for copy in make_shifted_copies(split_held_out("digits", HELD_OUT)[1].images, severities=SEVERITIES):
        copies.setdefault(copy.name, []).append(copy.images)
    return {name: torch.cat(parts) for name, parts in copies.items()}


def predict_sets(folder: Path, head: str, seed: int) -> dict[str, Outputs]:
    """Outputs of the held-out fifth, its copies, the test set and all corrupted test sets in one, computed once."""
    names = ("held-out", "test", *copy_held_out(), "corrupted")
    paths = {name: folder / f"{head}-{seed}" / f"{name}.safetensors" for name in names}
    if not paths["corrupted"].exists():
        training = resolve("smoke", {"held_out": HELD_OUT, "seed": seed})
        classifier = run(folder / f"{head}-{seed}", Setup("digits", "digits", head, training), resume=True).classifier
        test = load("digits", "test")
        predict(classifier, split_held_out("digits", HELD_OUT)[1], cache=paths["held-out"])
        predict(classifier, test, cache=paths["test"])
        for name, images in copy_held_out().items():
            predict(classifier, images, cache=paths[name])
        predict(classifier, corrupt_test_set(), cache=paths["corrupted"])
    return {name: Outputs.load(path)[0] for name, path in paths.items()}


def losses(outputs: dict[str, Outputs], labels: dict[str, torch.Tensor]) -> dict[str, tuple[float, float, str]]:
    """Test NLL, corrupted NLL and what was kept, for the model ("none") and each calibrator."""
    test, corrupted = outputs["test"], outputs["corrupted"]
    repeated = labels["test"].repeat(corrupted.N // test.N)

    def measure(logits: torch.Tensor, truth: torch.Tensor) -> float:
        return nll(torch.softmax(logits.double(), 1), truth)

    shifted = {
        name: (outputs[name], labels["held-out"].repeat(outputs[name].N // outputs["held-out"].N))
        for name in copy_held_out()
    }
    result = {"none": (measure(test.logits, labels["test"]), measure(corrupted.logits, repeated), "logits")}
    for name, kind in CALIBRATORS.items():
        fitted = kind.fit(outputs["held-out"], labels["held-out"], shifted=shifted if kind.needs_shifted else None)
        pair = measure(fitted(test), labels["test"]), measure(fitted(corrupted), repeated)
        result[name] = (*pair, fitted.report.kept)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=Path("runs/calibration-trial"))
    parser.add_argument("--seeds", default="0-19", help="first-last")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    labels = {"held-out": split_held_out("digits", HELD_OUT)[1].labels, "test": load("digits", "test").labels}
    print(
        "| head | calibrator | clean NLL before | change | standard error | worst seed "
        "| corrupted before | after | kept |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for head in HEADS:
        seeds = [losses(predict_sets(options.folder, head, seed), labels) for seed in range(first, last + 1)]
        before, corrupted = fmean(seed["none"][0] for seed in seeds), fmean(seed["none"][1] for seed in seeds)
        for name in CALIBRATORS:
            changes = [seed[name][0] - seed["none"][0] for seed in seeds]
            error = stdev(changes) / len(changes) ** 0.5
            after = fmean(seed[name][1] for seed in seeds)
            kept = ", ".join(
                f"{count} {what}" for what, count in Counter(seed[name][2] for seed in seeds).most_common()
            )
            print(
                f"| {head} | {name} | {before:.4f} | {fmean(changes):+.4f} | {error:.4f} | {max(changes):+.4f} "
                f"| {corrupted:.3f} | {after:.3f} | {kept} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
