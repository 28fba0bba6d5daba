"""Answers of the edits beside pytorch-ood 0.4.0, in the environment that the docstring of `peers.py` builds:

    speed/.venv-peers/bin/python speed/edits_peers.py

A ResNet-20 with random weights on random images; ReAct, ASH, SCALE and DICE are
given to the score energy, as both sides do by default. pytorch-ood's scores are higher for OOD: negated here. Images
keep 0.05 away from black and white, for ours stay in [0, 1] after a step and the peer's may leave it.
"""

from collections.abc import Callable

import torch
from scipy import stats
from torch import Tensor, nn

from import_peer import import_peer
from shiftprism.classifier import Classifier, predict
from shiftprism.edits import Dice, ReAct, ash, odin, scale
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import energy

peer = import_peer("pytorch_ood.detector")

STD = (0.229, 0.224, 0.225)
Pair = tuple[Callable[[int], Tensor], Callable[[int], Tensor]]


def images(samples: int, seed: int, contrast: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(samples, 3, 8, 8, dtype=torch.float64, generator=generator)
    return 0.5 + contrast * (nn.functional.interpolate(coarse, 32, mode="bilinear") - 0.5)


def main() -> None:
    torch.set_default_dtype(torch.float64)  # in which both sides round alike
    torch.manual_seed(0)
    built = Classifier.build("resnet20", "vanilla", tuple("abcdefghij"))
    classifier = (
        Classifier(built.backbone, Linear(64, 10, bias=True), (0.485, 0.456, 0.406), STD).float().double().eval()
    )
    sets = [images(600, 1, 0.9), images(600, 2, 0.85)]
    known, _ = predict(classifier, images(600, 3, 0.9))
    said = [predict(classifier, part)[0] for part in sets]
    head = classifier.head
    weight, bias = head.get_parameter("weight").detach(), head.get_parameter("bias").detach()
    normalised = [classifier.normalise(part) for part in sets]
    react, dice = ReAct.fit(known, head=head), Dice.fit(known, head=head)

    def maps(outputs: Outputs) -> Tensor:
        return outputs.features[:, :, None, None]

    def last(features: Tensor) -> Tensor:
        return features.flatten(1) @ weight.T + bias

    other_react = peer.ReAct(None, last, percentile=0.9)
    other_react.fit_feature_maps(maps(known), torch.zeros(known.N, dtype=torch.int64))
    torch.set_default_dtype(torch.float32)  # its fit takes no other; the weights are such that no digit is lost
    other_dice = peer.DICE(None, weight, bias, 0.9).fit_features(known.features, torch.zeros(known.N))
    torch.set_default_dtype(torch.float64)
    shaped = {kind: peer.ASH(None, last, variant=f"ash-{kind}", percentile=0.65) for kind in "spb"}
    other_scale = peer.SCALE(None, last, percentile=0.85)

    def logits(x: Tensor) -> Tensor:
        found: Tensor = head(classifier.backbone(x))
        return found

    other_odin = peer.ODIN(logits, eps=0.0014, temperature=1000, norm_std=list(STD))
    pairs: dict[str, Pair] = {
        "ReAct": (lambda i: energy(react(said[i])), lambda i: other_react.predict_feature_maps(maps(said[i]))),
        "DICE": (lambda i: energy(dice(said[i])), lambda i: other_dice.predict_features(said[i].features)),
        "SCALE": (
            lambda i: energy(scale(said[i], head=head)),
            lambda i: other_scale.predict_feature_maps(maps(said[i])),
        ),
        "ODIN": (lambda i: odin(classifier, sets[i]), lambda i: other_odin.predict(normalised[i])),
    }
    for kind in "spb":
        pairs[f"ASH-{kind.upper()}"] = (
            lambda i, kind=kind: energy(ash(said[i], head=head, kind=kind)),  # type: ignore[misc]
            lambda i, kind=kind: shaped[kind].predict_feature_maps(maps(said[i])),  # type: ignore[misc]
        )
    print(f"{'edit':10}{'rank correlation':>18}{'AUROC':>10}{'difference':>12}")
    for title, (ours, theirs) in pairs.items():
        mine, peers = [ours(i).detach() for i in (0, 1)], [-theirs(i).detach() for i in (0, 1)]
        correlation = stats.spearmanr(torch.cat(mine), torch.cat(peers)).statistic
        own, foreign = auroc(*mine), auroc(*peers)
        print(f"{title:10}{correlation:18.9f}{own:10.6f}{own - foreign:12.1e}")


if __name__ == "__main__":
    main()
