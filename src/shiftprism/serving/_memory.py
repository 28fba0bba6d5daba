"""How much memory requests may take together."""

from collections.abc import Iterator
from contextlib import contextmanager

from shiftprism.serving._problems import overloaded


class Memory:
    """Counts the bytes that requests hold: bodies as they arrive, pixels before they are decoded.

    >>> memory = Memory(100)
    >>> with memory.lease() as lease:
    ...     lease.take(60)
    ...     memory.used
    60
    >>> memory.used
    0
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    @contextmanager
    def lease(self) -> Iterator["Lease"]:
        """What one request takes; given back when it ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            lease.give_all()


class Lease:
    """The part of one request."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._held = memory, 0

    def take(self, count: int) -> None:
        """Take bytes; 503 where there are none left."""
        if self._memory.used + count > self._memory.limit:
            raise overloaded("Other requests hold the memory that this one needs")
        self._memory.used += count
        self._held += count

    def give_all(self) -> None:
        """Give everything back."""
        self._memory.used -= self._held
        self._held = 0
