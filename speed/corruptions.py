"""How long the 75 conditions of CIFAR-C take, in what memory, and how many times faster than one image at a time.

    python speed/corruptions.py                      10,000 images, all 75 conditions: minutes
    python speed/corruptions.py --images 1000        a tenth of it
    python speed/corruptions.py --to figures.json    the figures as a file too

The plain reading that it is compared with is the one of the tests (tests/test_corruptions_reference.py): NumPy, SciPy
and Pillow, one image after another. Both run in turns on the same images, so that a busy machine slows both alike, and
in one thread. The last column is what as many threads as there are cores bring, on the wall, of severity 3.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftprism._tasks import use_threads
from shiftprism.corruptions import COMMON, CORRUPTIONS

ROOT = Path(__file__).resolve().parents[1]
SEVERITIES = (1, 2, 3, 4, 5)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000, help="how many images of 32 × 32")
    parser.add_argument("--plain", type=int, default=60, help="how many of them go through the plain reading too")
    parser.add_argument("--side", type=int, default=32, help="of the images that threads are tried on")
    parser.add_argument("--to", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = load_plain()
    images = cifar_like(options.images, plain)
    data, worked = memory(), time.process_time()
    seconds = {name: conditions(images, name) for name in COMMON}
    worked, peak = time.process_time() - worked, memory()
    ratios = in_turns(images, plain, options.plain)
    larger = nn.functional.interpolate(images[: 2000 * 32**2 // options.side**2], options.side)
    gains = {name: gain_of_threads(larger, name) for name in COMMON}
    figures = summary(images, seconds, ratios) | {"processor_seconds": round(worked, 1)}
    figures["memory_beyond_the_images_mb"] = round(peak - data)
    print(table(seconds, ratios, gains))
    print(json.dumps(figures, indent=1))
    if options.to:
        options.to.write_text(
            json.dumps({**figures, "seconds": seconds, "gains": gains}, indent=1) + "\n", encoding="utf-8"
        )


def load_plain() -> ModuleType:
    """The module with the plain readings, which is a test file and not a package."""
    path = ROOT / "tests" / "test_corruptions_reference.py"
    spec = importlib.util.spec_from_file_location("plain", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot read {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cifar_like(count: int, plain: Any) -> Tensor:
    """`count` images of CIFAR's size: the test's pictures, each rolled differently."""
    pictures = torch.from_numpy(plain.pictures(100)).permute(0, 3, 1, 2)
    index = torch.arange(count)
    rolled = [pictures[int(i) % 100].roll((int(i) // 100 % 32, int(i) // 3200 % 32), (1, 2)) for i in index]
    return torch.stack(rolled)


def memory() -> float:
    """The most memory this process has held so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def conditions(images: Tensor, name: str) -> list[float]:
    """Seconds for each severity."""
    seeds = torch.arange(len(images))
    return [seconds_of(partial(CORRUPTIONS[name], images, severity, seeds)) for severity in SEVERITIES]


def in_turns(images: Tensor, plain: Any, count: int, turns: int = 5) -> dict[str, list[float]]:
    """Processor seconds an image, summed over the severities: the plain reading's and ours.

    Both work in one thread: `count` images one by one, and ten times as many batched. Each turn goes through all
    conditions with some of them.
    """
    batch = images[: 10 * count]
    pixels = batch[:count].permute(0, 2, 3, 1).numpy()
    random = np.random.default_rng(0)
    seconds = {name: [0.0, 0.0] for name in COMMON}
    for turn in range(turns):
        few, many = (slice(turn * len(rows) // turns, (turn + 1) * len(rows) // turns) for rows in (pixels, batch))
        seeds = torch.arange(len(batch[many]))
        for name, severity in product(COMMON, SEVERITIES):
            single = partial(one_by_one, plain.PLAIN[name], pixels[few], severity, random)
            batched = partial(CORRUPTIONS[name], batch[many], severity, seeds)
            seconds[name][0] += seconds_of(single, time.process_time) / len(pixels)
            seconds[name][1] += seconds_of(batched, time.process_time) / len(batch)
    return seconds


def gain_of_threads(images: Tensor, name: str, turns: int = 3) -> float:
    """How many times as fast all cores are as one thread, best of several turns."""
    best = {1: float("inf"), os.cpu_count() or 1: float("inf")}
    for _ in range(turns):
        for threads in best:
            with use_threads(threads):
                work = partial(CORRUPTIONS[name], images, 3, torch.arange(len(images)))
                best[threads] = min(best[threads], seconds_of(work))
    return best[1] / best[os.cpu_count() or 1]


def one_by_one(reading: Any, pixels: Any, severity: int, random: np.random.Generator) -> None:
    """The plain reading of each image."""
    for image in pixels:
        reading(image, severity, random)


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds on the wall, or by another clock."""
    start = clock()
    work()
    return clock() - start


def summary(images: Tensor, seconds: dict[str, list[float]], ratios: dict[str, list[float]]) -> dict[str, object]:
    """What is asked of the room, and where it was measured."""
    before, after = (sum(ratio[side] for ratio in ratios.values()) for side in (0, 1))
    return {
        "images": len(images),
        "conditions": 75,
        "seconds": round(sum(map(sum, seconds.values())), 1),
        "plain_ms_an_image": round(1e3 * before, 2),
        "ours_ms_an_image": round(1e3 * after, 2),
        "times_faster": round(before / after, 1),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def table(seconds: dict[str, list[float]], ratios: dict[str, list[float]], gains: dict[str, float]) -> str:
    """One line a corruption: seconds for the five severities, the ratio, and what threads bring."""
    titles = f"{'plain, ms':>12}{'ours, ms':>10}{'ratio':>8}{'threads':>9}"
    lines = [f"{'corruption':20}{'seconds at severity 1 … 5':>34}{titles}"]
    for name, values in seconds.items():
        plain, ours = (1e3 * value for value in ratios[name])
        each = " ".join(f"{value:6.2f}" for value in values)
        lines.append(f"{name:20}{each:>34}{plain:12.2f}{ours:10.2f}{plain / ours:8.1f}{gains[name]:9.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
