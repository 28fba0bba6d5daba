"""How many times as long as the fastest each library takes: one run that prints the table of results/peers.md.

All libraries live in one environment, made once, from the root of the repository:

    python3 -m venv speed/.venv-peers
    speed/.venv-peers/bin/pip install torch==2.13.0 numpy pillow scipy scikit-learn pandas tqdm gdown safetensors rich typer matplotlib
    speed/.venv-peers/bin/pip install faiss-cpu netcal probmetrics==1.3.0 numba lightning einops seaborn
    speed/.venv-peers/bin/pip install --no-deps torchvision==0.28.0 pytorch-ood==0.4.0 torch-uncertainty==0.13.0 -e .
    OMP_NUM_THREADS=1 speed/.venv-peers/bin/python speed/peers.py

On one thread. In each row the libraries take turns and the best round of each counts; what takes over twenty seconds
runs once. `--rows knn` runs the rows whose title has that word; `--cpu` counts the seconds of the processor instead of
those of the clock, for a machine with other work on it. The answers are compared in `scores_peers.py`,
`edits_peers.py` and `calibrators_peers.py`.
"""  # noqa: E501

import argparse
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from calibrators_peers import families
from import_peer import import_peer
from scores_peers import data, make_outputs
from shiftprism.classifier import Classifier, predict
from shiftprism.heads import Linear
from shiftprism.scores import SCORES

peer = import_peer("pytorch_ood.detector")

Run = Callable[[], Any]
Row = tuple[str, dict[str, Run]]
"""A title, and what each library runs for it."""
LIBRARIES = ("ShiftPrism", "pytorch-ood", "torch-uncertainty", "probmetrics", "faiss-cpu", "scikit-learn")
OURS, OOD, UNCERTAINTY, PROBMETRICS, FAISS, SKLEARN = LIBRARIES
EIGHT = ("msp", "max_logit", "energy", "entropy", "kl_matching", "mahalanobis", "knn", "vim")


def gaussians() -> Iterator[Row]:
    x, y = data(10_000, 512, 100, 1)
    known = make_outputs(Linear(512, 100), x)
    ours, theirs = SCORES["mahalanobis"].fit(known, y), peer.Mahalanobis(None).fit_features(x, y)
    fits = {OURS: lambda: SCORES["mahalanobis"].fit(known, y), OOD: lambda: peer.Mahalanobis(None).fit_features(x, y)}
    yield "Mahalanobis fit, 10,000 × 512, 100 classes", fits
    yield "Mahalanobis score, the same", {OURS: lambda: ours(known), OOD: lambda: theirs.predict_features(x)}
    fits = {OURS: lambda: SCORES["gmm"].fit(known, y), OOD: lambda: peer.GMM(None).fit_features(x, y)}
    yield "GMM fit, the same", fits


def neighbours() -> Iterator[Row]:
    """Exact search in float32. faiss and scikit-learn get directions that are already of length 1."""
    import faiss  # type: ignore[import-not-found,unused-ignore]
    from sklearn.neighbors import NearestNeighbors

    bank, labels = data(50_000, 512, 10, 1)
    known = make_outputs(Linear(512, 10), bank)
    ours, theirs = SCORES["knn"].fit(known, k=50), peer.KNN(None, k=50).fit_features(bank, labels)
    units = torch.nn.functional.normalize(bank).numpy()
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(512)
    index.add(units)
    brute = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(units)
    few = known.rows(slice(0, 2000))
    yield (
        "KNN score, 2,000 against 50,000, k 50",
        {
            OURS: lambda: ours(few),
            OOD: lambda: theirs.predict_features(bank[:2000]),
            FAISS: lambda: index.search(units[:2000], 50),
            SKLEARN: lambda: brute.kneighbors(units[:2000]),
        },
    )


def end_to_end(images: int = 600, batch: int = 100) -> Iterator[Row]:
    """Eight detectors on a ResNet-18, fitted to some images and asked about as many others, in equal batches."""
    pixels = torch.rand(2 * images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(images) % 10
    classifier = Classifier.build("resnet18", "vanilla", tuple("abcdefghij")).eval()
    head, weight = classifier.head, classifier.head.get_parameter("weight").detach()
    learned, new = pixels[:images], pixels[images:]
    loader = DataLoader(TensorDataset(learned, labels), batch_size=batch)

    def ours() -> list[Tensor]:
        known, asked = (predict(classifier, part, batch=batch)[0] for part in (learned, new))
        return [SCORES[name].fit(known, labels, head=head)(asked) for name in EIGHT]

    @torch.no_grad()
    def theirs() -> list[Tensor]:
        detectors = [
            peer.MaxSoftmax(classifier),
            peer.MaxLogit(classifier),
            peer.EnergyBased(classifier),
            peer.Entropy(classifier),
            peer.KLMatching(classifier).fit(loader),
            peer.Mahalanobis(classifier.features).fit(loader),
            peer.KNN(classifier.features, k=50).fit(loader),
            peer.ViM(classifier.features, 256, weight, torch.zeros(10)).fit(loader),
        ]
        return [torch.cat([detector.predict(part) for part in new.split(batch)]) for detector in detectors]

    yield f"8 detectors end to end, ResNet-18, {images} + {images} images", {OURS: ours, OOD: theirs}


def calibrators() -> Iterator[Row]:
    """Ours also fits five folds, to accept what it found, where the gain is not clear without. No peer does."""
    matrix = {UNCERTAINTY: "torch-uncertainty", PROBMETRICS: "probmetrics SMS"}
    names = {
        "temperature": ("shiftprism", {UNCERTAINTY: "torch-uncertainty", PROBMETRICS: "probmetrics"}),
        "vector (probmetrics: SVS)": ("shiftprism", {UNCERTAINTY: "torch-uncertainty", PROBMETRICS: "probmetrics SVS"}),
        "matrix of a given strength (SMS)": ("shiftprism, given", matrix),
        "matrix, ours with its strength searched (SMS)": ("shiftprism, path", matrix),
    }
    for classes in (10, 100):
        fits, _ = families(10_000, classes)
        for title, (ours, others) in names.items():
            kind = re.split(r"\W", title)[0]
            runs: dict[str, Run] = {OURS: fits[kind][ours]}
            runs |= {library: fits[kind][name] for library, name in others.items()}
            if kind == "temperature":
                runs[SKLEARN] = fits[kind]["scikit-learn"]
            yield f"{title}, 10,000 × {classes}", runs


def race(runs: dict[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """The best seconds of each; they take turns, so that a busy moment hits all alike."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            if best.get(name, 0) > 20:
                continue
            start = clock()
            run()
            best[name] = min(best.get(name, float("inf")), clock() - start)
    return best


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    print(f"| | {' | '.join(LIBRARIES)} |\n|---|{'--:|' * len(LIBRARIES)}")
    for part in (gaussians, neighbours, end_to_end, calibrators):
        for title, runs in part():
            if options.rows.lower() not in title.lower():
                continue
            best = race(runs, options.rounds, time.process_time if options.cpu else time.perf_counter)
            fastest = min(best.values())
            relative = {name: seconds / fastest for name, seconds in best.items()}
            cells = ["" if name not in best else f"{relative[name]:.2g}" for name in LIBRARIES]
            cells = ["**1**" if relative.get(name) == 1 else cell for name, cell in zip(LIBRARIES, cells, strict=True)]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
