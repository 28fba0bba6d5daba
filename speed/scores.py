"""What scoring costs beside the forward pass, and how much memory fits take: python speed/scores.py

    python speed/scores.py --data FOLDER       with the forward pass of CIFAR-10, which must be in FOLDER

Rounds take turns and the best of each counts, so that a busy machine slows all alike. The ResNet-20 is untrained: what
it costs does not depend on its weights. `speed/scores_peers.py` has the comparison with pytorch-ood.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset, load
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES

TWELVE = (
    "g",
    "h",
    "u",
    "msp",
    "max_logit",
    "energy",
    "entropy",
    "kl_uniform",
    "max_similarity",
    "mahalanobis",
    "gmm",
    "gen",
)
MEMORY = """
import resource, sys, torch
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES
name, classes, data = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
head = torch.nn.Linear(512, classes, bias=False)
features = torch.empty(data, 512).normal_()
with torch.no_grad():
    logits = head(features)
norms = features.norm(dim=1)
outputs = Outputs(features, norms, logits / norms[:, None], logits, logits)
labels = torch.arange(data) % classes
reference = outputs.rows(slice(0, 1000))
SCORES[name].fit(outputs.rows(slice(0, 5 * classes)), labels[: 5 * classes], head=head, reference=reference)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
SCORES[name].fit(outputs, labels, head=head, reference=reference)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def best(rounds: int, runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of the fastest of several rounds in which all take turns."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def one_pass(classifier: Classifier, train: Dataset, test: Dataset) -> None:
    """The scores take their turn right after `predict`: two long forward passes would differ more than they cost."""
    known, labels = predict(classifier, train.rows(torch.arange(5_000)))
    scores = {name: SCORES[name].fit(known, labels, head=classifier.head) for name in TWELVE}
    said: list[Outputs] = []
    forwards = []
    hook = classifier.backbone.register_forward_hook(lambda module, inputs, output: forwards.append(len(output)))

    def forward() -> None:
        said[:] = [predict(classifier, test)[0]]

    found = best(2, {"predict": forward, "12 scores": lambda: [score(said[0]) for score in scores.values()]})
    hook.remove()
    together = found["predict"] + found["12 scores"]
    print("One pass, ResNet-20, CIFAR-10 test")
    for name, seconds in (*found.items(), ("predict and 12 scores", together)):
        print(f"  {name:24}{seconds:8.3f} s  {seconds / found['predict']:7.4f} x")
    print(f"  {sum(forwards) / 2:g} forwards of {len(test.images)} images in each round", flush=True)


def memory(name: str, classes: int, samples: int = 200_000) -> None:
    """The peak of a process of its own, beyond what it had with the data in memory."""
    command = [sys.executable, "-c", MEMORY, name, str(classes), str(samples)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"  {name:24}K {classes:4}{float(told):8.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    if options.data:
        train, test = (load("cifar10", split, root=options.data) for split in ("train", "test"))
        one_pass(Classifier.build("resnet20", "vanilla", test.names), train, test)
    print("Peak memory of a fit beyond the data, 200,000 x 512 in float32")
    for name, entry in SCORES.items():
        if entry.fitted:
            memory(name, 10)
    for name in ("mahalanobis", "gmm"):
        memory(name, 100)


if __name__ == "__main__":
    main()
