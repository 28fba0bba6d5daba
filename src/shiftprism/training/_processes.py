"""One training run on several processes, with Hugging Face accelerate; on one process all of this does nothing."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shiftprism._devices import choose_device
from shiftprism._errors import wrong
from shiftprism._extras import need


class Processes:
    """Which process this is, out of how many, and the few things they do together."""

    def __init__(self, device: str = "auto") -> None:
        """Join the others if a launcher (accelerate, torchrun) started several: each on a GPU, or all on CPUs."""
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.engine: Any = None
        if self.count > 1:
            if device not in ("auto", "cpu", "cuda"):
                advice = "the launcher gives each process its own"
                raise wrong("device", f"auto, cpu or cuda for {self.count} processes", device, advice)
            # The functions of this module take the process group of the moment as a default argument. DDP imports it
            # after the group is made; the default then keeps the group alive past its end, with threads that abort the
            # process when they want the interpreter while it exits. Imported now, there is no group to keep.
            import torch.distributed.nn.functional  # noqa: F401

            accelerator = need("accelerate", "distributed").Accelerator
            # without `cpu=True` it would take several processes on CPUs for one
            self.engine = accelerator(cpu=choose_device(device).type != "cuda")
        self.rank = self.engine.process_index if self.engine else 0

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    def device(self, fallback: torch.device) -> torch.device:
        """Where this process computes: on the device that its launcher gave it, or on `fallback` if it is alone."""
        return torch.device(self.engine.device) if self.engine else fallback

    def share(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The network and optimiser that keep their gradients in step across processes."""
        if not self.engine:
            return network, optimizer
        shared: tuple[nn.Module, torch.optim.Optimizer] = self.engine.prepare(network, optimizer)
        return shared

    def shard(self, rows: Tensor) -> Tensor:
        """This process's part of a global batch."""
        return rows.tensor_split(self.count)[self.rank]

    def weight(self, local: int, total: int) -> float:
        """The weight of this process's mean loss, so that the average over processes is the mean over the batch."""
        return local * self.count / total

    def total(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        if not self.engine:
            return list(numbers)
        local = torch.tensor(numbers, device=self.engine.device, dtype=torch.float64)
        sums: list[float] = self.engine.reduce(local, "sum").tolist()
        return sums

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.engine:
            self.engine.wait_for_everyone()

    def close(self) -> None:
        """Leave in good order: a process that just exits makes those that still talk to it abort."""
        if self.engine:
            self.engine.wait_for_everyone()
            self.engine.end_training()


class _Sum(torch.autograd.Function):
    """The sum of a tensor over processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(context: Any, tensor: Tensor) -> Tensor:
        summed = tensor.clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _sum(gradient)  # itself a sum with a gradient: a penalty may differentiate it again


class SharedBatchNorm(nn.Module):
    """Batch normalisation whose statistics are those of the global batch, on any device.

    torch's own SyncBatchNorm runs on accelerators only. This one wraps the original layer, to be unwrapped again.
    """

    def __init__(self, inner: "nn.BatchNorm1d | nn.BatchNorm2d") -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner
        if not inner.training or not dist.is_initialized():
            normalised: Tensor = inner(x)
            return normalised
        dims = [0, *range(2, x.ndim)]
        shape = (1, -1, *(1,) * (x.ndim - 2))
        count = _sum(x.new_tensor(x.numel() / x.shape[1]))
        mean = _sum(x.sum(dims)) / count
        centred = x - mean.view(shape)  # a second pass: E[x²] − E[x]² would cancel where the mean is large
        variance = _sum(centred.square().sum(dims)) / count
        with torch.no_grad():
            if inner.running_mean is not None and inner.running_var is not None and inner.momentum is not None:
                inner.running_mean.lerp_(mean, inner.momentum)
                # as torch does: the batch is normalised by the biased variance, the unbiased one is remembered
                inner.running_var.lerp_(variance * count / (count - 1), inner.momentum)
            if inner.num_batches_tracked is not None:
                inner.num_batches_tracked.add_(1)
        scale = (variance + inner.eps).rsqrt() * inner.weight
        shifted: Tensor = centred * scale.view(shape) + inner.bias.view(shape)
        return shifted


def _sum(tensor: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(tensor)  # type: ignore[no-untyped-call]
    return total


def share_statistics(network: nn.Module) -> None:
    """Make every batch normalisation see the global batch, as it would on one process."""
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            _replace_module(network, name, SharedBatchNorm(module))


def unshare_statistics(network: nn.Module) -> None:
    """Undo `share_statistics`."""
    for name, module in list(network.named_modules()):
        if isinstance(module, SharedBatchNorm):
            _replace_module(network, name, module.inner)


def _replace_module(network: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(parent), attribute, module)
