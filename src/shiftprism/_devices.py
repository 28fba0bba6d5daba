"""Where a model computes: the one place that decides. torch is imported inside, so `--help` answers without it."""

import os
from typing import TYPE_CHECKING, TypeVar

from shiftprism._errors import wrong

if TYPE_CHECKING:
    import torch
    from torch import nn

    AnyModule = TypeVar("AnyModule", bound=nn.Module)

DEVICES = "auto, cpu, cuda, cuda:N or mps"


def choose_device(name: str = "auto") -> "torch.device":
    """The device of a name; "auto" is CUDA, else MPS, else the CPU. One that is not there is an error.

    "cuda" without a number is torch's current CUDA device: the first, or the one that a launcher has set.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in present.items() if there)
    kind, colon, number = name.partition(":")
    if kind not in present or (colon and not (kind == "cuda" and number.isdecimal())):
        raise wrong("device", DEVICES, repr(name), "choose one of these")
    if not present[kind]:
        others = ", ".join(other for other, there in present.items() if there)
        raise wrong("device", "one of this machine", f"{name}, which torch does not see", f"there is {others}")
    if number and int(number) >= torch.cuda.device_count():
        advice = "their numbers start at 0"
        raise wrong("device", f"one of {torch.cuda.device_count()} CUDA devices", name, advice)
    return torch.device(name)


def list_devices(name: str = "auto") -> list[str]:
    """The devices that work side by side is spread over: every CUDA device for "auto" or "cuda", else the named one."""
    import torch

    device = choose_device(name)
    if device.type == "cuda" and device.index is None:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(device)]


def count_jobs(name: str = "auto") -> int:
    """How many models work at a time unless a person says so: one a GPU, or one a core where there is none."""
    devices = list_devices(name)
    return count_cores() if devices == ["cpu"] else len(devices)


def count_cores() -> int:
    """The cores that this process may use: under Slurm or taskset they are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_alone() -> None:
    """Let torch use no further threads for what this thread computes: a pool has one for each core already."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.get_num_threads()  # what torch does in a new thread first would undo it
    threadpool_limits(1, user_api="openmp")  # of the calling thread alone


def move(module: "AnyModule", name: str) -> "AnyModule":
    """The module, moved to the device of this name.

    MPS has no float64. A module that needs it stays on the CPU under "auto", and is refused under "mps".
    """
    import torch

    device = choose_device(name)
    if device.type == "mps" and any(tensor.dtype == torch.float64 for tensor in module.state_dict().values()):
        if name != "auto":
            raise wrong("device", "one with float64 for this model", name, "choose cpu")
        device = torch.device("cpu")
    return module.to(device)
