"""The address of a Ray cluster, as a person types it."""

import socket

from shiftprism._errors import wrong
from shiftprism._extras import need


def check_cluster(address: str) -> None:
    """Refuse an address that nobody answers at: Ray itself would try for a minute, and say so in many lines."""
    ray = need("ray", "cluster")
    if address == "auto":
        try:
            ray.init(address=address, log_to_driver=False)
        except ConnectionError as error:
            advice = "start one with `ray start --head`, give its address, or say local"
            raise wrong("cluster", "auto where a Ray cluster runs", "auto without one", advice) from error
        ray.shutdown()
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) >= 1 << 16:
        raise wrong("cluster", "auto, local, or an address such as 10.0.0.1:6379", repr(address), "correct it")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        reason = error.strerror or error
        raise wrong("cluster", "the address of a Ray cluster", f"{address} ({reason})", "start it first") from error
