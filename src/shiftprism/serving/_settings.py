"""What a service may be told, and its limits."""

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from shiftprism._errors import wrong

MEGABYTE = 1 << 20


def _option(default: Any, text: str, **more: Any) -> Any:
    """A field that is also a flag of the command line: `text` is its help, `more` its limits."""
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class Settings:
    """The settings of a service. Its fields are the flags of `shiftprism serve`."""

    host: str = _option("127.0.0.1", "The address to listen on. Any but a loopback address needs tokens.")
    port: int = _option(8000, "The port; 0 takes a free one.", min=0, max=65535)
    store: str = _option("shiftprism.sqlite", "Where observations go: a file, or a postgresql:// URL.")
    tokens: str = _option("", "A file with one `name token` a line; read again when it changes.")
    host_names: tuple[str, ...] = _option((), "Further names under which clients may address the service, by commas.")
    false_alarm: float = _option(0.01, "The chance that the monitor ever alarms on a stream without shift.")
    keep_images: bool = _option(False, "Store the images, too.")
    keep_days: float | None = _option(None, "Delete observations of this age. (never)", min=0)
    batch: int = _option(32, "Images that are forwarded at once: more gain little on CPUs.", min=1)
    wait: float = _option(0.004, "Seconds that an image may wait for others when nothing is running.", min=0)
    max_body: float = _option(32, "Megabytes of one request: a few dozen photographs.", min=0)
    max_pixels: int = _option(1 << 26, "Pixels of one image: 8192 × 8192, as for images in folders.", min=1)
    max_images: int = _option(64, "Images of one request.", min=1)
    max_queue: int = _option(512, "Images that may wait; with more the answer is 503 and Retry-After.", min=1)
    max_memory: float = _option(512, "Megabytes of all requests at a time, with their decoded images.", min=0)
    time_limit: float = _option(30, "Seconds for a request to arrive, and again to be answered.", min=0)
    header_time: float = _option(10, "Seconds for the headers of a request.", min=0)
    decoders: int = _option(0, "Processes that decode images; 0 is one a core, at most 4.", min=0)

    def __post_init__(self) -> None:
        for name in ("max_body", "max_memory", "time_limit", "header_time"):
            if getattr(self, name) <= 0:
                raise wrong(name, "more than 0", getattr(self, name), "give a larger one")
        for name in ("max_pixels", "max_images", "max_queue", "batch"):
            if getattr(self, name) < 1:
                raise wrong(name, "1 or more", getattr(self, name), "give a larger one")
        for name in ("wait", "decoders"):
            if getattr(self, name) < 0:
                raise wrong(name, "0 or more", getattr(self, name), "correct it")
        if not 0 <= self.port < 65536:
            raise wrong("port", "between 0 and 65535", self.port, "8000 is usual; 0 takes a free one")
        if not 0 < self.false_alarm < 1:
            raise wrong("false_alarm", "between 0 and 1", self.false_alarm, "0.01 is usual")

    @property
    def body_bytes(self) -> int:
        """The limit of one request."""
        return int(self.max_body * MEGABYTE)

    @property
    def memory_bytes(self) -> int:
        """The limit of all requests together."""
        return int(self.max_memory * MEGABYTE)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False
