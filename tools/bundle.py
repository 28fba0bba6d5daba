"""The results that the package carries for its demo: python tools/bundle.py GRID

GRID is a folder that `shiftprism benchmark --suite paper --data cifar10 --models vanilla:1,alpha-beta:1` wrote. The
bundle has brief rows of the scores and calibrators that the demo shows. For figures it has the outputs of at most 1,000
images of each set (200 of a corruption) in half precision: no images, and of the features only their length.
"""

import argparse
import shutil
from pathlib import Path

import torch

from shiftprism._files import write_json
from shiftprism.outputs import Outputs
from shiftprism.rows import CellFolder, Results, ResultsFolder
from shiftprism.scores import SCORES

PACKAGE = Path(__file__).resolve().parents[1] / "src/shiftprism/benchmark/cifar10"
CALIBRATORS = ("none", "temperature", "alpha-beta")


def copy_outputs(source: Path, target: Path, most: int) -> None:
    """Thin the stored outputs of one set, and keep norms, similarities and logits in half precision."""
    outputs, labels = Outputs.load(source)
    assert labels is not None
    few = torch.linspace(0, outputs.N - 1, min(most, outputs.N)).round().long()
    kept = outputs.rows(few)
    # one feature of length |f| stands for all: no figure of the demo reads directions
    raw = kept.norms[:, None] * kept.similarities
    if not torch.allclose(kept.raw, raw, rtol=1e-3, atol=1e-3):
        raise SystemExit(f"{source} is of a head with a bias, which a bundle does not keep")
    kept = kept._replace(features=kept.norms[:, None], raw=raw, style=kept[5][:, :0])
    kept.to(torch.float16).save(target, labels[few].to(torch.uint8))


def copy_cell(source: CellFolder, target: CellFolder) -> None:
    """The rows, calibrators and outputs of one model that the demo needs."""
    results = Results.read(source.path)
    names = {name for name, entry in SCORES.items() if entry.ready} | set(CALIBRATORS) | {"alpha", "beta", "norm"}
    # a prediction that "changed" in half precision is rounding, not calibration
    metrics = {row.metric for row in results.rows if not row.metric.endswith("_changed")}
    results.where(subject=names, metric=metrics).write_brief(target.path)
    for condition in dict.fromkeys(row.condition for row in results.rows):
        stored = source.outputs(condition.shift, condition.severity)
        if stored.exists():
            most = 200 if condition.kind == "covariate" else 1000
            copy_outputs(stored, target.outputs(condition.shift, condition.severity), most)
    for name in CALIBRATORS[1:]:
        shutil.copytree(source.calibrator(name), target.calibrator(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path, metavar="GRID")
    parser.add_argument("--out", type=Path, default=PACKAGE)
    words = parser.parse_args()
    grid, package = ResultsFolder(words.grid), ResultsFolder(words.out)
    shutil.rmtree(package.path, ignore_errors=True)
    for key in ("cifar10-vanilla-0", "cifar10-alpha-beta-0"):
        copy_cell(grid.cell(key), package.cell(key))
    write_json(package.suite, {"plan": {}, "command": grid.commands()[-1]})
    size = sum(path.stat().st_size for path in package.path.rglob("*") if path.is_file())
    print(f"{package.path}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
