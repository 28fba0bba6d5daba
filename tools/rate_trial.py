r"""Under which rate and number of epochs a model of the benchmark trains as it should, chosen on held-out images.

    python tools/rate_trial.py ddu:0.2 ddu:0.4:24 duq:0.2 … --root DATA --out runs/rates

Each MODEL:RATE[:EPOCHS[:CLIP]] is trained once on CIFAR-10 with the preset `laptop` and these changes, without the
held-out tenth of the images. Printed is the accuracy on that tenth, as a table in Markdown. The test accuracy that a
run writes into its folder plays no part. A run that is there already is not trained again; a killed one is resumed.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shiftprism import predict
from shiftprism.benchmark import MODELS, Plan
from shiftprism.training import Setup, run, split_held_out


class Candidate(NamedTuple):
    """A model with the settings to try; 0 keeps those of the benchmark."""

    model: str
    rate: float = 0.0
    epochs: int = 0
    clip: float = 0.0

    @staticmethod
    def parse(text: str) -> "Candidate":
        """MODEL:RATE[:EPOCHS[:CLIP]].

        >>> Candidate.parse("duq:0.2:24")
        Candidate(model='duq', rate=0.2, epochs=24, clip=0.0)
        """
        model, *numbers = text.split(":")
        if model not in MODELS or MODELS[model].members or not 1 <= len(numbers) <= 3:
            raise argparse.ArgumentTypeError(f"expected MODEL:RATE[:EPOCHS[:CLIP]] but got {text}")
        try:
            rate, epochs, clip = (float(number) for number in (*numbers, "0", "0")[:3])
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected numbers after {model}: but got {text}") from None
        return Candidate(model, rate, int(epochs), clip)

    def setup(self, backbone: str, root: Path | None, precision: str) -> Setup:
        """What `shiftprism benchmark` would train, with the changes."""
        usual = Plan(suite="paper", data="cifar10", models=("vanilla",), backbone=backbone).resolve()
        training = usual.training(self.model, seed=0)
        changes: dict[str, Any] = {"rate": self.rate, "epochs": self.epochs, "clip": self.clip}
        changes["precision"] = precision
        training = replace(training, **{name: value for name, value in changes.items() if value})
        spec = MODELS[self.model]
        return Setup("cifar10", backbone + spec.variant, spec.head, training, root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="+", type=Candidate.parse, metavar="MODEL:RATE[:EPOCHS[:CLIP]]")
    parser.add_argument("--root", type=Path, help="the folder of CIFAR-10")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--backbone", default="fast")
    parser.add_argument("--precision", default="", help="float32 or bfloat16, in place of the faster of the two")
    asked = parser.parse_args()
    print("| model | rate | epochs | clip | held-out accuracy | minutes of training |\n|---|--:|--:|--:|--:|--:|")
    for one in asked.candidates:
        setup = one.setup(asked.backbone, asked.root, asked.precision)
        folder = asked.out / "-".join(f"{part:g}" if isinstance(part, float) else str(part) for part in one)
        done = run(folder, setup, resume=True)
        _, held = split_held_out("cifar10", setup.training.held_out, asked.root)
        outputs, _ = predict(done.classifier, held)
        right = float((outputs.predictions == held.labels).float().mean())
        cells = (one.model, setup.training.rate, setup.training.epochs, setup.training.clip, f"{100 * right:.1f} %")
        print(f"| {' | '.join(map(str, cells))} | {done.result['training_seconds'] / 60:.0f} |", flush=True)


if __name__ == "__main__":
    main()
