"""From torch modules to ONNX graphs, and from graphs to one model."""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._extras import need
from shiftprism.export._simplify import simplify

OPSET = 20
"""What torch 2.13 writes and onnxruntime 1.20 reads."""
_IR_VERSION = 10
"""Of the ONNX file format; onnxruntime 1.20 reads up to this one."""


def convert(module: nn.Module, arguments: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The ONNX model (ModelProto) of a module whose tensors have the number of images as their first dimension."""
    need("onnx", "onnx")
    need("onnxscript", "onnx")
    images = torch.export.Dim("N", min=1, max=1 << 20)
    # one dictionary for a function of several arguments: torch takes their names, and ours are `*fields`
    dynamic: Any = ({0: images},) if len(arguments) == 1 else (tuple({0: images} for _ in arguments),)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(),
            arguments,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=dynamic,
            input_names=list(inputs),
            output_names=list(outputs),
            custom_translation_table={torch.ops.aten.bucketize.Tensor: _count_boundaries()},
            verbose=False,
            external_data=False,
        )
    assert program is not None
    return clean(simplify(clean(program.model_proto)))


def _count_boundaries() -> Any:
    """`bucketize` by comparison: torch's own decomposition is a search in a dozen steps of eight operators each."""
    op = need("onnxscript", "onnx").opset20

    def bucketize(values: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
        column = op.Unsqueeze(values, op.Constant(value_ints=[-1]))
        below = op.LessOrEqual(boundaries, column) if right else op.Less(boundaries, column)
        # sums of float32 are whole up to 2²⁴, and several times as fast as those of integers
        count = op.ReduceSum(op.Cast(below, to=1), op.Constant(value_ints=[-1]), keepdims=0)
        return op.Cast(count, to=6 if out_int32 else 7)

    return bucketize


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that are not installed and on its own deprecations."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def clean(model: Any) -> Any:
    """The model without nodes that lead nowhere, and without traces of the source files it was made from."""
    import onnx_ir as ir
    from onnx_ir.passes import common

    made = ir.from_proto(model)
    common.RemoveUnusedNodesPass()(made)
    common.ClearMetadataAndDocStringPass()(made)
    made.metadata_props.clear()
    made.ir_version = _IR_VERSION
    made.producer_name, made.producer_version = "shiftprism", ""
    made.doc_string = ""
    return ir.to_proto(made)


def join(first: Any, second: Any) -> Any:
    """One model of two: inputs of the second are outputs of the first, by name."""
    from onnx import compose, helper

    # The names inside of both are the exporter's own, and may be equal. The first may be joined already: then the next
    # prefix is longer than any in it.
    prefix = "after/"
    while any(name.startswith(prefix) for node in first.graph.node for name in node.output):
        prefix += "after/"
    second = compose.add_prefix(copy.deepcopy(second), prefix, rename_inputs=False, rename_outputs=False)
    taken = {output.name for output in first.graph.output}
    others = [each for each in second.graph.input if each.name not in taken]
    assert not others, f"inputs that nothing provides: {[each.name for each in others]}"
    graph = helper.make_graph(
        [*first.graph.node, *second.graph.node],
        "shiftprism",
        first.graph.input,
        second.graph.output,
        [*first.graph.initializer, *second.graph.initializer],
        value_info=[*first.graph.value_info, *first.graph.output, *second.graph.value_info],
    )
    assert not first.functions, "the exporter's optimiser puts functions in place"
    assert not second.functions, "the exporter's optimiser puts functions in place"
    return clean(helper.make_model(graph, opset_imports=first.opset_import, ir_version=_IR_VERSION))
