"""One random generator for each image, so that the result for an image does not depend on its batch."""

from functools import cached_property
from math import prod

import numpy as np
import torch
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from torch import Tensor


class Draws:
    """The random numbers of N images. Row n comes from the generator of seed n alone.

    Philox takes its key as it is, without mixing a seed first: a generator costs microseconds to create, and two
    different keys (seed, stream) give independent numbers.
    """

    def __init__(self, seeds: NDArray[np.int64], stream: int) -> None:
        self._keys = np.stack([seeds.view(np.uint64), np.full(len(seeds), stream, np.uint64)], 1)

    @cached_property
    def generators(self) -> list[Generator]:
        """A generator for each image, created on first use: not every corruption needs one."""
        return [Generator(Philox(key=key)) for key in self._keys]

    def normals(self, *shape: int) -> Tensor:
        """(N, *shape) standard normal numbers, float32."""
        numbers = np.empty((len(self._keys), prod(shape)), np.float32)
        for generator, row in zip(self.generators, numbers, strict=True):
            generator.standard_normal(dtype=np.float32, out=row)
        return torch.from_numpy(numbers).reshape(-1, *shape)

    def uniforms(self, *shape: int) -> Tensor:
        """(N, *shape) numbers uniform in [0, 1), float32."""
        numbers = np.empty((len(self._keys), prod(shape)), np.float32)
        for generator, row in zip(self.generators, numbers, strict=True):
            generator.random(dtype=np.float32, out=row)
        return torch.from_numpy(numbers).reshape(-1, *shape)
