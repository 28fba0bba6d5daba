"""Answers beside pytorch-ood 0.4.0, in the environment that the docstring of `peers.py` builds:

    speed/.venv-peers/bin/python speed/scores_peers.py

Times are in `peers.py`. pytorch-ood's scores are higher for OOD: negated here.
"""

from collections.abc import Callable
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

from import_peer import import_peer
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES

peer = import_peer("pytorch_ood.detector")

Peers = dict[str, tuple[Callable[[Outputs], Tensor], dict[str, Any]]]


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


if __name__ == "__main__":
    agreement()
