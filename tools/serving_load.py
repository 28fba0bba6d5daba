"""How fast a service answers, what it costs beside decoding and onnxruntime alone, and whether its memory grows.

    python tools/serving_load.py saturate MODEL.onnx IMAGES [--seconds 60] [--clients 16] [--images 1]
    python tools/serving_load.py memory MODEL.onnx IMAGES [--requests 200000]
    python tools/serving_load.py compare MODEL.onnx IMAGES [--images 16] [--rounds 5]

IMAGES is a folder of image files that the model takes. Everything runs on one machine: the clients' own processor time
is subtracted, as if they were elsewhere. docs/serving.md has what came out.
"""

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parent))

from serving_process import Load, Process, generate, make_form
from shiftprism.runtime import load

Form = tuple[bytes, str]


def saturate(model: Path, forms: Sequence[Form], clients: int, seconds: float, store: str) -> None:
    """Ask as fast as answers come."""
    with Process(model, store) as process:
        generate(process.port, forms, clients=clients, seconds=3)  # until caches are warm
        before, memory = process.cpu_seconds(), process.memory()
        seen = generate(process.port, forms, clients=clients, seconds=seconds)
        print(f"{clients} clients, {seen.seconds:.0f} s: {seen.requests} requests, {seen.errors} errors")
        print(f"{rate(seen):.0f} requests/s, {elsewhere(seen):.0f} with the clients' processor time subtracted")
        print(f"p50 {1e3 * seen.p50:.1f} ms, p99 {1e3 * seen.p99:.1f} ms")
        used = process.cpu_seconds() - before
        print(f"processor time: service {used:.1f} s, clients {seen.cpu:.1f} s, of {os.cpu_count()} cores")
        print(f"memory {memory:.0f} MB before, {process.memory():.0f} MB after")


def watch_memory(model: Path, forms: Sequence[Form], clients: int, requests: int, store: str) -> None:
    """Memory of the service with its decoders, in steps."""
    with Process(model, store) as process:
        step, done, errors = max(requests // 20, 1), 0, 0
        while done < requests:
            seen = generate(process.port, forms, clients=clients, seconds=1e9, most=step)
            done, errors = done + seen.requests, errors + seen.errors
            print(f"{done:>8} requests, {errors} errors, {process.memory():.1f} MB, {rate(seen):.0f}/s", flush=True)


def compare(model: Path, pictures: Sequence[bytes], size: int, clients: int, rounds: int, store: str) -> None:
    """Images a second of the service and of a bare loop, one after the other, the best of several rounds."""
    with Process(model, store) as process:
        detector = load(model)
        grey = detector.size[0] == 1
        batches = [pictures[first : first + size] for first in range(0, len(pictures) - size + 1, size)]
        forms = [make_form(batch) for batch in batches]
        generate(process.port, forms, clients=clients, seconds=3)
        served, bare, errors = [], [], 0
        for number in range(rounds):
            seen = generate(process.port, forms, clients=clients, seconds=8)
            errors += seen.errors
            served.append(size * elsewhere(seen))
            time.sleep(0.5)
            bare.append(run_bare(detector.session, batches, grey, 8))
            print(f"round {number}: service {served[-1]:.1f} images/s, bare loop {bare[-1]:.1f}", flush=True)
    print(f"best of {rounds}: {max(served):.1f} and {max(bare):.1f} images/s, ratio {max(served) / max(bare):.3f}")
    ratios = sorted(one / other for one, other in zip(served, bare, strict=True))
    print(f"ratios of rounds: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; {errors} errors")


def run_bare(session: "object", batches: "Sequence[Sequence[bytes]]", grey: bool, seconds: float) -> float:
    """Decode a batch, forward it, and so on: images a second."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        batch = batches[count % len(batches)]
        images = np.stack([decode(picture, grey) for picture in batch])
        session.run(None, {"images": images})  # type: ignore[attr-defined]
        count += 1
    return count * len(batches[0]) / (time.perf_counter() - begin)


def decode(picture: bytes, grey: bool) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    array = np.asarray(Image.open(io.BytesIO(picture)).convert("L" if grey else "RGB"))
    return array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def rate(seen: Load) -> float:
    return seen.requests / seen.seconds


def elsewhere(seen: Load) -> float:
    """Requests a second, had the clients' share of the cores been free."""
    return seen.requests / (seen.seconds - seen.cpu / (os.cpu_count() or 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["saturate", "memory", "compare"])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=None, help="images a request")
    parser.add_argument("--clients", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    pictures = [path.read_bytes() for path in sorted(chosen.folder.rglob("*")) if path.is_file()]
    size = chosen.images or (16 if chosen.what == "compare" else 1)
    forms = [make_form(pictures[first : first + size]) for first in range(0, len(pictures) - size + 1, size)]
    with tempfile.TemporaryDirectory() as temporary:
        store = f"{temporary}/store.sqlite"
        if chosen.what == "saturate":
            saturate(chosen.model, forms, chosen.clients or 16, chosen.seconds, store)
        elif chosen.what == "memory":
            watch_memory(chosen.model, forms, chosen.clients or 8, chosen.requests, store)
        else:
            compare(chosen.model, pictures, size, chosen.clients or 4, chosen.rounds, store)


if __name__ == "__main__":
    main()
