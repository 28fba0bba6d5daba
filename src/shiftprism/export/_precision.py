"""The backbone of a converted network in half precision or in int8; everything around it stays float32.

What is changed is the backbone from its first convolution or product on, up to the features. Normalisation before it,
statistics of pixels, the head, scores and ranks are computed in float32.
"""

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftprism._extras import need

PRECISIONS = ("float32", "float16", "int8")
INSIDE = {
    "float32": "",
    "float16": "; the backbone in half precision, all else in single",
    "int8": "; convolutions and products of the backbone in int8 (weights by channel), all else in single precision",
}
"""What a file says about its precision."""
_FEATURES = "outputs.features"
_PRODUCTS = ("Conv", "MatMul", "Gemm")


def find_backbone(model: Any) -> list[Any]:
    """The nodes that the features depend on, in order, from the first convolution or product on."""
    sources = {name: node for node in model.graph.node for name in node.output}
    needed: set[int] = set()
    waiting = [sources[_FEATURES]]
    while waiting:
        node = waiting.pop()
        if id(node) not in needed:
            needed.add(id(node))
            waiting += [sources[name] for name in node.input if name in sources]
    behind: set[str] = set()
    backbone = []
    for node in model.graph.node:
        if id(node) in needed and (node.op_type in _PRODUCTS or behind.intersection(node.input)):
            behind.update(node.output)
            backbone.append(node)
    return backbone


def halve(model: Any) -> Any:
    """The same model with its backbone in float16, changed in place."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    floats = {each.name for each in graph.initializer if each.data_type == TensorProto.FLOAT}
    known = (*graph.value_info, *graph.input, *graph.output)
    floats |= {each.name for each in known if each.type.tensor_type.elem_type == TensorProto.FLOAT}
    backbone = find_backbone(model)
    inside = {id(node) for node in backbone}
    made = {name for node in backbone for name in node.output}
    # what the rest reads, at least of maps that are tapped, comes back to float32
    read_outside = {name for node in graph.node if id(node) not in inside for name in node.input}
    leaving = made & floats & (read_outside | {each.name for each in graph.output})
    constants = {each.name: each for each in graph.initializer}
    casts: dict[str, Any] = {}
    nodes: list[Any] = []
    for node in graph.node:
        if id(node) not in inside:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name not in floats:
                continue
            half = f"{name}_half"
            if name not in made and half not in casts:
                casts[half] = None
                if name in constants:
                    values = numpy_helper.to_array(constants[name])
                    limit = float(np.finfo(np.float16).max)
                    rounded = np.clip(values, -limit, limit).astype(np.float16)
                    graph.initializer.append(numpy_helper.from_array(rounded, half))
                else:
                    nodes.append(helper.make_node("Cast", [name], [half], to=TensorProto.FLOAT16))
            node.input[place] = half
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
        before = list(node.output)
        for place, name in enumerate(before):
            if name in floats:
                node.output[place] = f"{name}_half"
        nodes.append(node)
        nodes += [
            helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT)
            for name in before
            if name in leaving
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]  # they say float32
    _drop_unused(model)
    return model


def quantise(model: Any, batches: Iterable[NDArray[Any]]) -> Any:
    """The model with convolutions and products of its backbone in int8: ranges are those seen on `batches`.

    By onnxruntime's own tool: weights symmetric and by channel, activations uint8, a pair of QuantizeLinear and
    DequantizeLinear around each operator, which onnxruntime turns into integer kernels. Seven bits of weights: on
    CPUs without VNNI sums of eight would overflow.
    """
    import onnx

    from shiftprism.export._convert import clean

    tool = need("onnxruntime.quantization", "onnx")
    constants = {each.name for each in model.graph.initializer}
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"
    products = [
        node.name
        for node in find_backbone(model)
        if node.op_type in _PRODUCTS and any(name in constants for name in node.input)
    ]
    (name,) = [each.name for each in model.graph.input]
    waiting = iter(batches)

    class Reader(tool.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> Any:
            batch = next(waiting, None)
            return None if batch is None else {name: batch}

    logging.disable(logging.WARNING)  # it advises a step that the exporter has done
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "int8.onnx"
            tool.quantize_static(
                model,
                path,
                Reader(),
                quant_format=tool.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,
                activation_type=tool.QuantType.QUInt8,
                weight_type=tool.QuantType.QInt8,
                nodes_to_quantize=products,
                op_types_to_quantize=list(_PRODUCTS),
            )
            return clean(onnx.load(path))
    finally:
        logging.disable(logging.NOTSET)


def _drop_unused(model: Any) -> None:
    """Without constants that no node reads."""
    read = {name for node in model.graph.node for name in node.input}
    kept = [each for each in model.graph.initializer if each.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
