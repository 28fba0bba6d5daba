"""Check what a release would bring: python tools/release_check.py [--python PYTHON] [--extras onnx,serve] [--place DIR]

Builds the source archive and, from it, the wheel. Installs the wheel without extras into an environment of its own and
runs the demo there, outside the repository. Then, for each extra, an environment that has the first one's packages and
that extra alone, in which its feature has to work. A line each, with its seconds; the exit code is 1 if one fails.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = "from PIL import Image; Image.effect_noise((64, 64), 90).convert('RGB').save('photo.png')"
TRAIN = "{python} -m shiftprism train --data digits --preset smoke --epochs {epochs} --out run"
MODEL = f"{TRAIN} && {{python}} -m shiftprism fit run --out detector".replace("{epochs}", "8")
EXPORT = "{python} -m shiftprism export detector --to detector.onnx"
SERVE = (
    "({python} -m shiftprism serve {shared}/detector.onnx --port 8917 --store s.sqlite & echo $! > pid; wait) & "
    "for i in $(seq 90); do curl -sf http://127.0.0.1:8917/readyz && break; sleep 1; done; "
    "curl -sf http://127.0.0.1:8917/metrics | grep -q ^shiftprism_; code=$?; kill $(cat pid); wait; exit $code"
)
BENCHMARK = (
    "{python} -m shiftprism benchmark --suite digits --models vanilla --seeds 1 --scores u --calibrators temperature "
    "--corruptions fog --cluster local --out grid && test -s grid/rows.jsonl"
)
FEATURES = {
    "": "{python} -m shiftprism doctor && {python} -m shiftprism score cifar10 photo.png; test $? -le 3 && "
    "{python} -m shiftprism demo --seeds 1 --to demo && ls demo/*/*.html",
    "onnx": f"{MODEL} && {EXPORT} && cp detector.onnx {{shared}}",
    "serve": SERVE,
    "parquet": "{python} -m shiftprism score cifar10 photo.png --to v.parquet; test -s v.parquet",
    "tensorboard": f"{TRAIN.replace('{epochs}', '1')} --tensorboard && find run -name '*tfevents*' | grep -q .",
    "distributed": "{python} -m accelerate.commands.launch --cpu --num_processes 2 -m shiftprism train --data digits "
    "--preset smoke --epochs 1 --out run && test -s run/result.json",
    "cluster": BENCHMARK,
    "faiss": "{python} -c 'import torch; from shiftprism.outputs import Outputs; from shiftprism.scores import "
    "ApproximateKNN; o = Outputs(*(torch.rand(99, 3),) * 5); assert ApproximateKNN.fit(o, k=1)(o).shape == (99,)'",
    "hf": "{python} -c \"from shiftprism.datasets import load; load('hf:no/such', 'test')\" 2>&1 | tail -n 1 | "
    "grep -v 'pip install'",
    "postgres": "{python} -m shiftprism store export --store postgresql://127.0.0.1:1/none --to csv 2>&1 | "
    "grep -v 'pip install' | grep -q 'shiftprism:'",
    "docs": "{python} -c 'import zensical, mkdocstrings, griffe'",
}
"""What has to work with each extra, as a line of shell in an empty folder that holds photo.png."""


def run(command: str, folder: Path, log: Path) -> int:
    """Run a line of shell with its output in a file."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {command}\n")
        file.flush()
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=clean, stdout=file, stderr=file, check=False)
        return done.returncode


def build(python: str, place: Path) -> Path:
    """The wheel, made from the source archive as an index would have it."""
    log = place / "build.log"
    tool = place / "build-tool"
    command = f"{python} -m venv {tool} && {tool}/bin/pip install -q build"
    command += f" && {tool}/bin/python -m build {ROOT} -o {place}/dist"
    if run(command, place, log):
        sys.exit(f"the build failed: {log}")
    (wheel,) = (place / "dist").glob("*.whl")
    return wheel


def check(extra: str, python: str, wheel: Path, place: Path) -> bool:
    """Install and try one extra; "" is the package alone."""
    began, name = time.monotonic(), extra or "without extras"
    folder = place / (extra or "base")
    (folder / "work").mkdir(parents=True)
    log, own = folder / "log.txt", folder / "venv" / "bin" / "python"
    code = run(f"{python} -m venv venv", folder, log)
    if extra:
        libraries = next((place / "base" / "venv" / "lib").glob("python3*")) / "site-packages"
        here = next((folder / "venv" / "lib").glob("python3*")) / "site-packages"
        (here / "base.pth").write_text(f"{libraries}\n")
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    code = code or run(f"{own} -m pip install -q 'torch==2.13.0' '{asked}'", folder, log)
    code = code or run(f'{own} -c "{PICTURE}"', folder / "work", log)
    code = code or run(FEATURES[extra].format(python=own, shared=place), folder / "work", log)
    print(f"{'ok    ' if not code else 'FAILED'} {name:16} {time.monotonic() - began:6.0f} s  {log}", flush=True)
    return not code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("--extras", help="with commas; all unless given, none for the package alone")
    parser.add_argument("--place", type=Path, help="an empty folder for environments and logs; a new one unless given")
    given = parser.parse_args()
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    there = set(re.findall(r"^(\w+) = \[", text.partition("\n[project.scripts]")[0], re.MULTILINE)) - {"dev"}
    if there != set(FEATURES) - {""}:
        sys.exit(f"extras and FEATURES differ: {sorted(there ^ (set(FEATURES) - {''}))}")
    asked = (
        [one for one in FEATURES if one] if given.extras is None else [one for one in given.extras.split(",") if one]
    )
    place = (given.place or Path(tempfile.mkdtemp(prefix="release-"))).resolve()
    place.mkdir(parents=True, exist_ok=True)
    wheel = build(given.python, place)
    print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB, in {place}", flush=True)
    results = [check(extra, given.python, wheel, place) for extra in ("", *asked)]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
