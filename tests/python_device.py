"""A device written in Python, "other:0", for tests without a GPU: its tensors hold a tensor of the CPU.

Like a GPU it refuses to mix its tensors with those of the CPU. It ends a copy that need not wait as late as a GPU may:
the values are NaN until an event after the copy is waited for.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
_late: list[tuple[Tensor, Tensor]] = []


class OtherTensor(Tensor):
    """A tensor of the device; `on_cpu` holds its values."""

    on_cpu: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "OtherTensor":
        layout: dict[str, Any] = {
            "strides": on_cpu.stride(),
            "storage_offset": on_cpu.storage_offset(),
            "dtype": on_cpu.dtype,
        }
        made = Tensor._make_wrapper_subclass(cls, on_cpu.shape, **layout, device=torch.device("other:0"))
        made.on_cpu = on_cpu
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OtherTensor({self.on_cpu})"

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        # single numbers of the CPU may take part, as on a GPU, and so may the numbers of rows
        mixed = any(tensor.ndim and not isinstance(tensor, cls) for tensor in tensors)
        if mixed and func not in COPIES and not (func is torch.ops.aten.index.Tensor and isinstance(args[0], cls)):
            raise RuntimeError(f"{func} on tensors of two devices")
        to_cpu = "device" in kwargs and torch.device(kwargs["device"]).type == "cpu"
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        result = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
        if to_cpu:
            return _copy_late(result) if kwargs.get("non_blocking") else result
        if func._schema.is_mutable and func.__name__.split(".")[0].endswith("_"):
            return args[0]  # in place: the tensor itself, not a new one
        return tree_map(lambda leaf: cls(leaf) if isinstance(leaf, Tensor) else leaf, result)


class Stream:
    """What `torch.cuda.current_stream` gives for a GPU: waiting for an event ends the copies begun before it."""

    def __init__(self, device: torch.device) -> None:
        assert device == torch.device("other:0")

    def record_event(self) -> "Stream":
        self.copies, _late[:] = list(_late), []
        return self

    def synchronize(self) -> None:
        for target, values in self.copies:
            target.copy_(values)


def _copy_late(values: Tensor) -> Tensor:
    target = torch.full_like(values, float("nan"))
    _late.append((target, values))
    return target


def _copy_from(source: Tensor, target: "OtherTensor", non_blocking: bool = False) -> Tensor:
    """What `torch.tensor(…, device="other")` calls, past `__torch_dispatch__`."""
    target.on_cpu.copy_(_unwrap(source))
    return target


def _unwrap(value: Any) -> Any:
    return value.on_cpu if isinstance(value, OtherTensor) else value


def _make_factory(operator: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        return OtherTensor(operator(*args, **(kwargs | {"device": torch.device("cpu"), "pin_memory": False})))

    return make


class _Module(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_library = torch.library.Library("aten", "IMPL")  # what it registers lasts as long as it does


def register() -> None:
    """Make the device known to torch, once in a process: pytest may import this file twice, to look for doctests."""
    if hasattr(torch, "other"):
        return
    _setup_privateuseone_for_python_backend("other", backend_module=_Module())
    _library.impl("empty.memory_format", _make_factory(torch.ops.aten.empty.memory_format), "PrivateUse1")
    _library.impl("_copy_from", _copy_from, "PrivateUse1")
    _library.impl("empty_strided", _make_factory(torch.ops.aten.empty_strided.default), "PrivateUse1")
