"""What every head is and answers, and the few computations that heads share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs

SMALLEST_NORM = 1e-6
"""A norm below this counts as this in a division, so that f = 0 has finite values and gradients."""
SMALLEST_ALPHA = 1e-6
"""α never falls below this: a sigmoid underflows to 0, and logits are divided by it."""


def norm(features: Tensor) -> Tensor:
    """|f| for each row, (N, D) -> (N,), without overflow or underflow of the squares; its gradient at f = 0 is 0.

    >>> norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([5.0000e+30, 0.0000e+00])
    """
    # Divided by the largest entry, squares lie between 0 and 1. The scale is a constant to autograd: the norm is
    # proportional to it, so its gradient would only cancel.
    scale = features.detach().abs().amax(1, keepdim=True).clamp_min(torch.finfo(features.dtype).tiny)
    lengths: Tensor = torch.linalg.vector_norm(features / scale, dim=1)
    return scale.squeeze(1) * lengths


def multiplier(norms: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """m = 1/α + β/(α|f|), (N,): it turns W f into (|f| + β)/α · s. It is positive, so no class changes its rank.

    With α = 1 and β = 0 it is exactly 1, which is why a neutral head equals a linear one bit for bit.

    >>> multiplier(torch.tensor([2.0]), torch.tensor(0.5), torch.tensor(1.0))
    tensor([3.])
    """
    return (1 + beta / norms.clamp_min(SMALLEST_NORM)) / alpha.clamp_min(SMALLEST_ALPHA)


_Head = TypeVar("_Head", bound="Head")
_Others = ParamSpec("_Others")
_Result = TypeVar("_Result")


def in_float32(
    method: Callable[Concatenate[_Head, Tensor, _Others], _Result],
) -> Callable[Concatenate[_Head, Tensor, _Others], _Result]:
    """A method of a head on features, computed in at least float32 with autocast off.

    Half types have too small a range for a norm and for a division by α: values and gradients would be infinite.
    """

    @wraps(method)
    def compute(head: _Head, features: Tensor, /, *others: _Others.args, **named: _Others.kwargs) -> _Result:
        features = _widen(features)
        device = features.device.type
        # only where autocast is on: an exported head has no such block
        if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
            return method(head, features, *others, **named)
        with torch.autocast(device, enabled=False):
            return method(head, features, *others, **named)

    return compute


def _widen(features: Tensor) -> Tensor:
    """In at least float32. What flows back to a feature of 0 in a half type is kept within that type's range."""
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    if wide.requires_grad and wide.dtype != features.dtype:
        # The slope of a similarity at f = 0 is 1/SMALLEST_NORM. Elsewhere infinity stays: loss scaling watches for it.
        is_zero, most = ~features.detach().any(-1, keepdim=True), torch.finfo(features.dtype).max
        wide.register_hook(lambda slopes: torch.where(is_zero, slopes.clamp(-most, most), slopes))
    return wide


class Head(nn.Module, ABC):
    """What every head answers. Only `outputs` has to be written; the training loop's questions have plain defaults.

    A head computes in float32, or in float64 where it is double: its tensors stay so when a model is cast to half.
    """

    in_features: int
    out_features: int
    needs_image_gradient = False
    """Whether `penalty` differentiates by the images; those it gets, normalised, then carry a gradient."""
    undecayed: tuple[str, ...] = ()
    """The names of the parameters that get no weight decay."""
    finite_up_to = 1e25
    """Features of this size still have finite Outputs in float32; a head that squares them states a smaller one."""

    @abstractmethod
    def outputs(self, features: Tensor) -> Outputs:
        """All five fields for features (N, D)."""

    def forward(self, features: Tensor) -> Tensor:
        return self.outputs(features).logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What training minimises: the mean cross entropy."""
        return F.cross_entropy(logits, labels)

    def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
        """Added to the loss; a head that uses it may differentiate the logits by the normalised images."""
        return logits.new_zeros(())

    def after_step(self, features: Tensor, labels: Tensor) -> None:
        """Called after each optimiser step, without gradients, with this process's part of the batch."""

    def start_epoch(self) -> None:
        """Called before each epoch."""

    def end_epoch(self) -> None:
        """Called after each epoch: the head may now predict with what it accumulated."""

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """What the optimiser gets: the undecayed parameters, if any, then the others with the weight decay."""
        free = [self.get_parameter(name) for name in self.undecayed]
        identities = {id(parameter) for parameter in free}
        others = [parameter for parameter in self.parameters() if id(parameter) not in identities]
        groups = [{"params": free, "weight_decay": 0.0}, {"params": others, "weight_decay": weight_decay}]
        return [group for group in groups if group["params"]]

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        """The scales the head applies to each input, by name, (N,) each: they show whether the head works."""
        return {}

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Head":
        def keep_wide(tensor: Tensor) -> Tensor:
            changed = fn(tensor)
            narrow = tensor.is_floating_point() and changed.dtype.itemsize < 4
            return tensor.to(changed.device, torch.promote_types(tensor.dtype, torch.float32)) if narrow else changed

        applied: Head = super()._apply(keep_wide, recurse)  # type: ignore[no-untyped-call]
        return applied

    def _set_sizes(self, in_features: int, out_features: int) -> None:
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 1:
                raise wrong(name, "a positive number", value, "a head maps D features to K classes")
        self.in_features, self.out_features = in_features, out_features

    def _check_features(self, features: Tensor) -> None:
        if features.ndim != 2 or features.shape[1] != self.in_features:
            got = f"shape {tuple(features.shape)}"
            advice = "pass the flattened input of the last layer"
            raise wrong("features", f"of shape (N, {self.in_features})", got, advice)


class Weighted(Head, ABC):
    """A head with class weights W (K, D) and perhaps a bias.

    They are drawn as `nn.Linear` draws them and before anything else: equal seeds give equal W in every such head.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self._set_sizes(in_features, out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(in_features)
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound)) if bias else None

    def _project(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(|f|, W f / |f|, W f + b): the similarities never see the bias."""
        self._check_features(features)
        plain = F.linear(features, weight)
        norms = norm(features)
        similarities = plain / norms.clamp_min(SMALLEST_NORM)[:, None]
        return norms, similarities, plain if bias is None else plain + bias


def settings_of(head: Head) -> dict[str, bool | int | float | str]:
    """The plain numbers and words that a head computes with, by name, beside its tensors and sizes: DUQ's σ, γ, …

    >>> from shiftprism.heads import SNGP
    >>> settings_of(SNGP(2, 3))
    {'ridge': 1.0}
    """
    sizes_and_mode = ("in_features", "out_features", "training")
    plain = {name: value for name, value in vars(head).items() if isinstance(value, bool | int | float | str)}
    return {name: plain[name] for name in sorted(plain) if name not in sizes_and_mode and not name.startswith("_")}


def check_settings(positive: dict[str, float], non_negative: dict[str, float]) -> None:
    """Refuse settings of a head that are out of range or infinite, by name."""
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise wrong(name, "positive and finite", value, "leave it out for the published value")
    for name, value in non_negative.items():
        if not 0 <= value < math.inf:
            raise wrong(name, "0 or more and finite", value, "leave it out for the published value")


def sum_over_processes(statistic: Tensor) -> Tensor:
    """The sum over all processes of one training run, in place: so every process accumulates the same."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(statistic)
    return statistic
