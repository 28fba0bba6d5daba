"""Importing a library that needs torchvision, whose wheel is built for CUDA.

It asks for operators that a CPU install of torch lacks; two schemas satisfy its import.
"""

from importlib import import_module
from typing import Any

import torch

_LIBRARY = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def import_peer(name: str) -> Any:
    """The module of that name."""
    return import_module(name)
