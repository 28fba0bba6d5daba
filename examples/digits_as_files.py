"""Write scikit-learn's handwritten digits as image files, for the guides: python examples/digits_as_files.py [FOLDER]

learn/CLASS/ and held-out/CLASS/ have the digits 0 to 7: to train a model, and to fit a detector to. new/clean has other
digits 0 to 7, new/noisy the same ones with noise, new/unseen the digits 8 and 9, which no model learns.
"""

import sys
from pathlib import Path

from PIL import Image

from shiftprism.corruptions import corrupt
from shiftprism.datasets import Dataset, load
from shiftprism.shifts import hold_out

UNSEEN = ("8", "9")


def write(data: Dataset, folder: Path, by_class: bool) -> None:
    for number, (image, label) in enumerate(zip(data.images, data.labels.tolist(), strict=True)):
        place = folder / data.names[label] if by_class else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{number:04}.png")


def main(root: Path) -> None:
    known, _ = hold_out(load("digits", "train"), UNSEEN)
    learn, held_out = known.hold_out(0.4)
    clean, unseen = hold_out(load("digits", "test"), UNSEEN)
    write(learn, root / "learn", by_class=True)
    write(held_out, root / "held-out", by_class=True)
    write(clean, root / "new" / "clean", by_class=False)
    write(clean._replace(images=corrupt(clean.images, "gaussian_noise", 3)), root / "new" / "noisy", by_class=False)
    write(unseen, root / "new" / "unseen", by_class=False)
    counts = [len(data.images) for data in (learn, held_out, clean)]
    print("{} digits to learn, {} held out, {} new ones, in {}/".format(*counts, root))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "my-images"))
