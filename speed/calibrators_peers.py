"""Ours beside scikit-learn, netcal, probmetrics and torch-uncertainty, in one run, on one thread.

The peers live in the environment that the docstring of `peers.py` builds, which also prints the table of times:

    OMP_NUM_THREADS=1 speed/.venv-peers/bin/python speed/calibrators_peers.py

Everyone gets the same float32 logits (or their softmax, where a peer asks for probabilities; in float64 for netcal,
whose search does not move in float32). Contenders take turns and
the best of three rounds counts; what takes over five seconds runs once. The ratio is a peer's time over ours. A word
on the command line (temperature, vector, matrix, dirichlet, order-preserving) runs that family alone.
"""

import logging
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from calibrators import SIZES, draw_sample, fixed_penalty
from import_peer import import_peer
from shiftprism.calibrators import AlphaBeta, Dirichlet, Matrix, Temperature, Vector
from shiftprism.metrics import ece, nll

Fit = Callable[[], Callable[[Any], Any]]
"""Fits, and gives the function from test logits to probabilities."""


def softmax(logits: Any) -> Any:
    values = np.asarray(logits, dtype=np.float64)
    values = np.exp(values - values.max(1, keepdims=True))
    return values / values.sum(1, keepdims=True)


def on_probabilities(make: Callable[[], Any], logits: Any, labels: Any, precision: Any = np.float32) -> Fit:
    """A peer with fit(probabilities, labels) and predict_proba or transform."""

    def fit() -> Callable[[Any], Any]:
        torch.manual_seed(0)
        peer = make()
        peer.fit(softmax(logits).astype(precision), labels)
        predict = getattr(peer, "predict_proba", None) or peer.transform
        return lambda test: predict(softmax(test).astype(precision))

    return fit


def on_loader(make: Callable[[], Any], logits: Any, labels: Any) -> Fit:
    """A peer of torch-uncertainty."""
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.from_numpy(logits), torch.from_numpy(labels))

    def fit() -> Callable[[Any], Any]:
        peer = make()
        peer.fit(DataLoader(data, batch_size=len(data)), progress=False)
        return lambda test: softmax(peer(torch.from_numpy(test)))

    return fit


def sklearn_temperature(logits: Any, labels: Any) -> Fit:
    from sklearn.calibration import _TemperatureScaling

    def fit() -> Callable[[Any], Any]:
        peer = _TemperatureScaling().fit(logits, labels)
        return lambda test: peer.predict(test)

    return fit


def families(samples: int, classes: int) -> tuple[dict[str, dict[str, Fit]], Any]:
    netcal: Any = import_module("netcal.scaling")
    probmetrics: Any = import_module("probmetrics.calibrators")
    ordered: Any = import_module("probmetrics.calibrators.orderpreserving")

    tu = import_peer("torch_uncertainty.post_processing")
    sample, test = draw_sample(samples, classes), draw_sample(samples, classes, seed=5)
    z, y, o = sample.outputs.logits.numpy(), sample.labels, sample.outputs
    shrunk, odir = fixed_penalty(samples, classes, True), fixed_penalty(samples, classes, False)

    def ours(fit: Callable[[], Any]) -> Fit:
        def run() -> Callable[[Any], Any]:
            fitted = fit()
            return lambda logits: fitted.probabilities(test.outputs)

        return run

    return {
        "temperature": {
            "shiftprism": ours(lambda: Temperature.fit(logits=z, labels=y)),
            "scikit-learn": sklearn_temperature(z, y),
            "netcal": on_probabilities(netcal.TemperatureScaling, z, y, np.float64),
            "probmetrics": on_probabilities(probmetrics.TemperatureScalingCalibrator, z, y),
            "torch-uncertainty": on_loader(tu.TemperatureScaler, z, y),
        },
        "vector": {
            "shiftprism": ours(lambda: Vector.fit(logits=z, labels=y)),
            # 9 s for 10 classes, three minutes for 100
            **(
                {"netcal logistic": on_probabilities(netcal.LogisticCalibration, z, y, np.float64)}
                if classes < 50
                else {}
            ),
            "probmetrics vector": on_probabilities(probmetrics.VectorScalingCalibrator, z, y),
            "probmetrics SVS": on_probabilities(probmetrics.SVSCalibrator, z, y),
            "torch-uncertainty": on_loader(lambda: tu.VectorScaler(classes), z, y),
        },
        "matrix": {
            "shiftprism, given": ours(lambda: Matrix.fit(logits=z, labels=y, penalty=shrunk)),
            "shiftprism, path": ours(lambda: Matrix.fit(logits=z, labels=y)),
            "probmetrics matrix": on_probabilities(probmetrics.MatrixScalingCalibrator, z, y),
            "probmetrics SMS": on_probabilities(probmetrics.SMSCalibrator, z, y),
            "torch-uncertainty": on_loader(lambda: tu.MatrixScaler(classes), z, y),
        },
        "dirichlet": {
            "shiftprism, given": ours(lambda: Dirichlet.fit(logits=z, labels=y, penalty=odir)),
            "shiftprism, path": ours(lambda: Dirichlet.fit(logits=z, labels=y)),
            "torch-uncertainty": on_loader(
                lambda: tu.DirichletScaler(classes, lambda_reg=odir.off_diagonal, mu_reg=odir.intercept), z, y
            ),
        },
        "order-preserving": {
            "shiftprism α-β": ours(lambda: AlphaBeta.fit(o, y)),
            "probmetrics IOP": on_probabilities(ordered.IntraOrderPreservingCalibrator, z, y),
        },
    }, test


def compare(title: str, contenders: dict[str, Fit], test: Any) -> None:
    best: dict[str, float] = {}
    found: dict[str, Any] = {}
    for _ in range(3):
        for name, fit in contenders.items():
            if best.get(name, 0.0) > 5:
                continue
            begin = time.perf_counter()
            found[name] = fit()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - begin)
    base = best[next(iter(contenders))]
    print(f"{title}\n  {'':<20}{'ms':>10}{'ratio':>9}{'test NLL':>11}{'ECE':>9}")
    for name, seconds in best.items():
        p = np.asarray(found[name](test.outputs.logits.numpy()), dtype=np.float64)
        p /= p.sum(1, keepdims=True)
        loss, error = nll(p, test.labels), ece(p, test.labels)
        print(f"  {name:<20}{1e3 * seconds:10.1f}{seconds / base:9.1f}{loss:11.6f}{error:9.4f}", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for samples, classes in SIZES:
        print(f"\n=== {samples} x {classes}")
        everything, test = families(samples, classes)
        for title, contenders in everything.items():
            if not wanted or title in wanted:
                compare(title, contenders, test)


if __name__ == "__main__":
    main()
