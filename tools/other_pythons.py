"""What runs without torch, on other Pythons: python tools/other_pythons.py DETECTOR.onnx PYTHON… --place DIR

Each PYTHON is an interpreter. In an environment of its own it gets the packages of deploy/requirements.in at whatever
versions fit it, and shiftprism without its dependencies. There, every module of the package must compile, the exported
file must give the verdicts of the Python that runs this script, a monitor fed with them the same status, and the
service must answer with them. A line each; the exit code is 1 if one fails. Environments stay in DIR.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from serving_process import Client, Process, make_form

ROOT = Path(__file__).resolve().parents[1]
JUDGE = """
import json, sys
import numpy as np
from shiftprism.monitor import Monitor
from shiftprism.runtime import load

judge = load(sys.argv[1], threads=1)
verdicts = judge(np.load(sys.argv[2]))
monitor = Monitor(judge.reference)
monitor.update(verdicts)
status = monitor.status()
found = {"label": verdicts.label.tolist(), "kind": verdicts.kind.tolist(), "p": verdicts.p_combined.tolist(),
    "level": status.level, "observations": status.observations}
print(json.dumps({"found": found, "numpy": np.__version__, "torch": "torch" in sys.modules}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("detector", type=Path)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--place", type=Path, required=True)
    words = parser.parse_args()
    words.place.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32)).astype(np.uint8)
    images[20:] = images[20:] // 8 + 100  # some that are not noise at full contrast
    np.save(words.place / "images.npy", images)
    expected = judge(sys.executable, words.detector.resolve(), words.place)
    print(f"{sys.version.split()[0]}, NumPy {expected['numpy']}: this one, {len(images)} images")
    failed = 0
    for number, python in enumerate(words.pythons):
        try:
            found = try_python(python, words.place / f"python-{number}", words.detector.resolve(), images, expected)
            print(found, flush=True)
        except (AssertionError, subprocess.CalledProcessError, RuntimeError) as error:
            failed += 1
            print(f"{python}: FAILED: {getattr(error, 'stderr', None) or error}", flush=True)
    return int(failed > 0)


def try_python(python: str, folder: Path, detector: Path, images: np.ndarray, expected: dict[str, Any]) -> str:
    """A sentence about one interpreter; AssertionError where it differs."""
    own = folder / "bin" / "python"
    if not own.exists():
        run(python, "-m", "venv", str(folder))
    run(str(own), "-m", "pip", "install", "-q", "-r", str(ROOT / "deploy" / "requirements.in"))
    run(str(own), "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT))
    package = run(str(own), "-c", "import shiftprism; print(shiftprism.__path__[0])").strip()
    run(str(own), "-m", "compileall", "-q", "-f", package)
    found = judge(str(own), detector, folder.parent)
    assert found["found"] == expected["found"], "other verdicts, or another status"
    assert not found["torch"], "torch was imported"
    program = (str(own), "-m", "shiftprism")
    with (
        tempfile.TemporaryDirectory() as place,
        Process(detector, f"{place}/store.sqlite", program=program) as process,
    ):
        client = Client(process.port)
        status, answer = client.predict(*make_form([to_png(image, Path(place)) for image in images[:5]]))
        client.close()
        assert process.stop() == 0, "the service did not end well"
    labels = [row["label"] for row in answer["predictions"]]
    assert status == 200, f"the service answered {status}"
    assert labels == expected["found"]["label"][:5], "the service says another class"
    version = run(str(own), "-c", "import sys; print(sys.version.split()[0])").strip()
    return f"{version}, NumPy {found['numpy']}: compiles; verdicts, monitor and service equal"


def judge(python: str, detector: Path, place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(python, "-c", JUDGE, str(detector), str(place / "images.npy")))
    return found


def to_png(image: np.ndarray, place: Path) -> bytes:
    path = place / "image.png"
    Image.fromarray(image.transpose(1, 2, 0)).save(path)
    return path.read_bytes()


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
