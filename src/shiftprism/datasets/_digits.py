"""The 1,797 digits of 8 × 8 pixels that scikit-learn brings: a data set that needs no download."""

import numpy as np
import torch

from shiftprism.datasets._dataset import Dataset


def load_digits(split: str) -> Dataset:
    """The "train" (1,201) or "test" (596) part of the digits, their levels 0…16 scaled to 0…255.

    >>> load_digits("test").images.shape
    torch.Size([596, 1, 8, 8])
    """
    from sklearn.datasets import load_digits as bundled  # here, because it is slow to import

    pixels, labels = bundled(return_X_y=True)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    digits = Dataset(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), tuple("0123456789"))
    return digits.divide(split, every=3)
