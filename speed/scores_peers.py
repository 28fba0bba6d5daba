"""Answers and speed beside pytorch-ood 0.4.0, in an environment of its own:

    python -m venv speed/.venv-pytorch-ood
    speed/.venv-pytorch-ood/bin/pip install torch==2.13.0 numpy pillow scipy scikit-learn pandas tqdm gdown
    speed/.venv-pytorch-ood/bin/pip install safetensors
    speed/.venv-pytorch-ood/bin/pip install --no-deps torchvision==0.28.0 pytorch-ood==0.4.0 -e .
    speed/.venv-pytorch-ood/bin/python speed/scores_peers.py

Both sides take turns in one process and the best round counts. pytorch-ood's scores are higher for OOD: negated here.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

# torchvision's wheel is built for CUDA and asks for operators that a CPU install lacks; two schemas satisfy its import.
STUB = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    STUB.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from pytorch_ood import detector as peer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from shiftprism.classifier import Classifier, predict  # noqa: E402
from shiftprism.heads import Linear  # noqa: E402
from shiftprism.metrics import auroc  # noqa: E402
from shiftprism.outputs import Outputs  # noqa: E402
from shiftprism.scores import SCORES  # noqa: E402

Run = Callable[[], Any]
Peers = dict[str, tuple[Callable[[Outputs], Tensor], dict[str, Any]]]


def compare(title: str, ours: Run, theirs: Run, goal: float, rounds: int = 3) -> None:
    best = [float("inf")] * 2
    for _ in range(rounds):
        for side, run in enumerate((ours, theirs)):
            start = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - start)
    ratio = best[1] / best[0]
    verdict = f"   goal {goal:g} x" + ("" if ratio >= goal else ": missed") if goal else ""
    print(f"{title:52}{best[0]:9.3f} s{best[1]:9.3f} s{ratio:8.1f} x{verdict}")


def data(samples: int, width: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Clusters of unequal spread in every direction, as after a ReLU none negative."""
    places = 2 * torch.rand(classes, width, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    spread = torch.linspace(0.2, 2, width)
    return (places[labels] + spread * torch.randn(samples, width, generator=generator)).relu(), labels


def make_outputs(head: Linear, features: Tensor) -> Outputs:
    with torch.no_grad():
        return head.outputs(features)


def agreement() -> None:
    """Spearman's rank correlation with the peer, and the difference of the AUROC of ID against shifted data."""
    torch.manual_seed(0)
    head = Linear(64, 10, bias=True)
    x, y = data(5000, 64, 10, 1)
    with torch.no_grad():  # a head that is mostly right
        means = torch.stack([x[y == k].mean(0) for k in range(10)])
        head.weight.copy_(means / 4)
        head.get_parameter("bias").copy_(-means.square().sum(1) / 8)
    known = make_outputs(head, x)
    sets = [make_outputs(head, data(2000, 64, 10, 2)[0]), make_outputs(head, data(2000, 64, 10, 3)[0].roll(1, 1) * 0.9)]
    weight, bias = head.weight.detach(), head.get_parameter("bias").detach()
    linear = nn.Linear(64, 10)
    linear.load_state_dict(head.state_dict())
    single: Peers = {
        "msp": (lambda o: -peer.MaxSoftmax.score(o.logits), {}),
        "max_logit": (lambda o: -peer.MaxLogit.score(o.logits), {}),
        "energy": (lambda o: -peer.EnergyBased.score(o.logits), {}),
        "entropy": (lambda o: -peer.Entropy.score(o.logits), {}),
        "gen": (lambda o: -peer.GEN.score(o.logits), {}),
        "kl_matching": (_logits(peer.KLMatching(None).fit_logits(known.logits, y)), {}),
        "knn": (_features(peer.KNN(None, k=50).fit_features(x, y)), {"k": 50}),
        "vim": (_features(peer.ViM(None, 32, weight, bias).fit_features(x, y)), {"dimensions": 32}),
        "nnguide": (_features(peer.NNGuide(None, linear, k=10).fit_features(x, y)), {"k": 10}),
        "she": (_features(peer.SHE(None, linear).fit_features(x, y)), {}),
        "fdbd": (_features(peer.fDBD(None, linear).fit_features(x)), {}),
    }
    print(f"{'answers':24}{'rank correlation':>18}{'AUROC':>10}{'difference':>12}")
    _agree(single, known, y, sets, head)
    # these take float64, in which both sides round alike; their zeros have the default dtype
    torch.set_default_dtype(torch.float64)
    x, known, sets = x.double(), known.to(torch.float64), [outputs.to(torch.float64) for outputs in sets]
    double: Peers = {
        "mahalanobis": (_features(peer.Mahalanobis(None).fit_features(x, y)), {"ridge": 0}),
        "relative_mahalanobis": (_features(peer.RMD(None).fit_features(x, y)), {"ridge": 0}),
        "gmm": (_features(peer.GMM(None, reg=0).fit_features(x, y)), {"ridge": 0}),
    }
    _agree(double, known, y, sets, head)
    torch.set_default_dtype(torch.float32)


def _agree(theirs: Peers, known: Outputs, labels: Tensor, sets: list[Outputs], head: Linear) -> None:
    for name, (other, settings) in theirs.items():
        score = SCORES[name].fit(known, labels, head=head, **settings)
        mine, peers = [score(outputs) for outputs in sets], [other(outputs).detach() for outputs in sets]
        correlation = stats.spearmanr(torch.cat(mine), torch.cat(peers)).statistic
        own, foreign = auroc(mine[0], mine[1]), auroc(peers[0], peers[1])
        print(f"{name:24}{correlation:18.9f}{own:10.6f}{own - foreign:12.1e}")


def _features(fitted: Any) -> Callable[[Outputs], Tensor]:
    return lambda outputs: -fitted.predict_features(outputs.features)


def _logits(fitted: Any) -> Callable[[Outputs], Tensor]:
    return lambda outputs: -fitted.predict_logits(outputs.logits)


def speed() -> None:
    print(f"\n{'time':52}{'shiftprism':>11}{'pytorch-ood':>12}")
    head = Linear(512, 100)
    x, y = data(10_000, 512, 100, 1)
    known = make_outputs(head, x)
    fitted = {name: SCORES[name].fit(known, y) for name in ("mahalanobis", "gmm")}
    maha, gmm = peer.Mahalanobis(None).fit_features(x, y), peer.GMM(None).fit_features(x, y)
    compare("Mahalanobis fit, 10k x 512, K 100", lambda: SCORES["mahalanobis"].fit(known, y),
            lambda: peer.Mahalanobis(None).fit_features(x, y), 0)  # fmt: skip
    compare("Mahalanobis score, 10k x 512, K 100", lambda: fitted["mahalanobis"](known),
            lambda: maha.predict_features(x), 30, 2)  # fmt: skip
    compare("GMM fit, 10k x 512, K 100", lambda: SCORES["gmm"].fit(known, y),
            lambda: peer.GMM(None).fit_features(x, y), 10)  # fmt: skip
    few = known.rows(slice(0, 1000))
    compare("GMM score, 1k x 512, K 100", lambda: fitted["gmm"](few),
            lambda: gmm.predict_features(x[:1000]), 1.5)  # fmt: skip
    x, y = data(10_000, 512, 10, 1)
    known = make_outputs(Linear(512, 10), x)
    mixture, gmm = SCORES["gmm"].fit(known, y), peer.GMM(None).fit_features(x, y)
    compare("GMM fit, 10k x 512, K 10", lambda: SCORES["gmm"].fit(known, y),
            lambda: peer.GMM(None).fit_features(x, y), 0)  # fmt: skip
    compare("GMM score, 2k x 512, K 10", lambda: mixture(known.rows(slice(0, 2000))),
            lambda: gmm.predict_features(x[:2000]), 1.5)  # fmt: skip
    bank, labels = data(50_000, 512, 10, 1)
    known = make_outputs(Linear(512, 10), bank)
    near, knn = SCORES["knn"].fit(known, k=50), peer.KNN(None, k=50).fit_features(bank, labels)
    compare("KNN score, bank 50k, 2k queries, k 50, D 512", lambda: near(known.rows(slice(0, 2000))),
            lambda: knn.predict_features(bank[:2000]), 2, 2)  # fmt: skip


EIGHT = ("msp", "max_logit", "energy", "entropy", "kl_matching", "mahalanobis", "knn", "vim")


def end_to_end() -> None:
    """Eight detectors on a ResNet-18: fitted to 200 images and asked about 200 others."""
    images = torch.rand(400, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 10
    classifier = Classifier.build("resnet18", "vanilla", tuple("abcdefghij")).eval()
    head = classifier.head
    weight = head.get_parameter("weight").detach()
    known_loader = DataLoader(TensorDataset(images[:200], labels), batch_size=100)
    new = images[200:].split(100)

    def ours() -> list[Tensor]:
        known, asked = (predict(classifier, part, batch=100)[0] for part in (images[:200], images[200:]))
        return [SCORES[name].fit(known, labels, head=head)(asked) for name in EIGHT]

    @torch.no_grad()
    def theirs() -> list[Tensor]:
        logits, features = classifier, classifier.features
        detectors = [
            peer.MaxSoftmax(logits),
            peer.MaxLogit(logits),
            peer.EnergyBased(logits),
            peer.Entropy(logits),
            peer.KLMatching(logits).fit(known_loader),
            peer.Mahalanobis(features).fit(known_loader),
            peer.KNN(features, k=50).fit(known_loader),
            peer.ViM(features, 256, weight, torch.zeros(10)).fit(known_loader),
        ]
        return [torch.cat([detector.predict(batch) for batch in new]) for detector in detectors]

    compare("8 detectors end to end, ResNet-18, 200 + 200 images", ours, theirs, 4, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["answers", "speed", "end-to-end"])
    only = parser.parse_args().only
    for name, part in (("answers", agreement), ("speed", speed), ("end-to-end", end_to_end)):
        if only in (None, name):
            part()


if __name__ == "__main__":
    main()
