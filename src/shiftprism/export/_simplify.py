"""Fewer and cheaper nodes for the same numbers: what the exporter writes out at length, and what stops onnxruntime.

Every rewrite returns the same numbers, up to the order of sums and the rounding of normalised pixels. Sizes other than
the number of images are known, and nothing here touches that one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_END = 2**63 - 1
"""The exporter's word for "to the end" of an axis."""
_CHEAP = 16
"""Products for each value of a map, below which a convolution is repeated at some places rather than its map read."""
_PLACES = 36
"""Places of a map, up to which it is centred by a product with a matrix."""


class _Part(NamedTuple):
    """What a Slice keeps of one axis."""

    start: int
    end: int
    step: int

    @property
    def strided(self) -> bool:
        """Whether it is every so-manieth of the whole axis."""
        return self.start == 0 and self.end == _END


class _Graph:
    """A graph with its constants and shapes by name."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.graph = model.graph
        self.constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        known = (*model.graph.value_info, *model.graph.input, *model.graph.output)
        self.shapes = {each.name: [side.dim_value for side in each.type.tensor_type.shape.dim] for each in known}
        self.sources = {name: node for node in model.graph.node for name in node.output}

    def add_constant(self, values: "list[int] | NDArray[np.float32]") -> str:
        """The name of a new tensor: of whole numbers, or as it is."""
        import numpy as np
        from onnx import numpy_helper

        name = f"simplified_{len(self.constants)}"
        self.constants[name] = np.asarray(values, np.int64) if isinstance(values, list) else values
        self.graph.initializer.append(numpy_helper.from_array(self.constants[name], name))
        return name

    def nodes(self, kind: str) -> Iterator[Any]:
        """Those of one kind, in order; they may be changed in place."""
        return (node for node in self.graph.node if node.op_type == kind)

    def forget_shapes(self, node: Any) -> None:
        """Of outputs that have other sizes now; onnxruntime would warn of those that are written down."""
        stale = [each for each in self.graph.value_info if each.name in node.output]
        for each in stale:
            self.graph.value_info.remove(each)

    def insert_after(self, node: Any, *new: Any) -> None:
        """Put more nodes into the order."""
        place = next(number for number, each in enumerate(self.graph.node) if each is node)
        for number, each in enumerate(new, place + 1):
            self.graph.node.insert(number, each)


def simplify(model: Any) -> Any:
    """The same model, changed in place; nodes that lead nowhere are left to `clean`."""
    graph = _Graph(model)
    _fix_counts_of_sorts(graph)
    _sort_no_more_than_is_read(graph)
    _multiply_squares(graph)
    _multiply_by_reciprocals(graph)
    _merge_slices(graph)
    _pool_strided_slices(graph)
    _repeat_convolutions(graph)
    _pool_before_normalising(graph)
    _centre_by_product(graph)
    _multiply_by_columns(graph)
    _leave_out_single_axes(graph)
    _reduce_last_axes_first(graph)
    return model


def _fix_counts_of_sorts(graph: _Graph) -> None:
    """TopK of a whole axis whose size is known: its number is no longer read from the shape in three nodes."""
    for node in graph.nodes("TopK"):
        axis = next((each.i for each in node.attribute if each.name == "axis"), -1)
        if node.input[1] not in graph.constants and (size := graph.shapes[node.output[0]][axis]):
            node.input[1] = graph.add_constant([size])


def _sort_no_more_than_is_read(graph: _Graph) -> None:
    """TopK of which some first places are read: no others are put in order."""
    readers: dict[str, list[Any]] = {}
    for node in graph.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept = {each.name for each in graph.graph.output}
    for node in graph.nodes("TopK"):
        taken = [graph.constants.get(each.input[1]) for each in readers.get(node.output[0], ())]
        places = [each for each in taken if each is not None and each.min() >= 0]
        gathered = {each.op_type for each in readers.get(node.output[0], ())} == {"Gather"}
        if not gathered or len(places) < len(taken) or readers.get(node.output[1]) or kept & set(node.output):
            continue
        axis = next((each.i for each in node.attribute if each.name == "axis"), -1)
        dimensions = len(graph.shapes.get(node.output[0], ()))
        along = [next((one.i for one in each.attribute if one.name == "axis"), 0) for each in readers[node.output[0]]]
        if dimensions and {one % dimensions for one in along} == {axis % dimensions}:
            node.input[1] = graph.add_constant([1 + max(int(each.max()) for each in places)])
            graph.forget_shapes(node)


def _multiply_squares(graph: _Graph) -> None:
    """x² as x · x: onnxruntime takes three times as long for a power."""
    from onnx import helper

    for node in graph.nodes("Pow"):
        exponent = graph.constants.get(node.input[1])
        if exponent is not None and exponent.size == 1 and exponent.item() == 2:
            node.CopyFrom(helper.make_node("Mul", [node.input[0]] * 2, node.output))


def _multiply_by_reciprocals(graph: _Graph) -> None:
    """x / c as x · (1/c) where 1/c is exact, and where c is one number for each channel: normalised pixels.

    Other quotients stay as they are: a rank over their number must be the same to the last bit as the level.
    """
    import numpy as np

    for node in graph.nodes("Div"):
        divisor = graph.constants.get(node.input[1])
        if divisor is None or divisor.dtype != np.float32:
            continue
        by_channel = divisor.ndim >= 3 and divisor.shape[-2:] == (1, 1)
        if by_channel or (np.abs(np.frexp(divisor)[0]) == 0.5).all():
            node.op_type = "Mul"
            node.input[1] = graph.add_constant((1 / divisor.astype(np.float64)).astype(np.float32))


def _merge_slices(graph: _Graph) -> None:
    """A Slice of a Slice, an axis each, becomes one: the exporter writes one for every axis."""
    for node in graph.nodes("Slice"):
        source = graph.sources.get(node.input[0])
        if source is None or source.op_type != "Slice":
            continue
        first, second = _read_slice(graph, source), _read_slice(graph, node)
        if first is None or second is None:
            continue
        both = first.keys() & second.keys()
        if all(first[axis].strided and second[axis].strided for axis in both):
            steps = {axis: _Part(0, _END, first[axis].step * second[axis].step) for axis in both}
            _write_slice(graph, node, source.input[0], first | second | steps)


def _read_slice(graph: _Graph, node: Any) -> dict[int, _Part] | None:
    """By axis; None where it is not constant."""
    values = [graph.constants.get(name) for name in node.input[1:]]
    if len(values) < 3 or any(each is None for each in values):
        return None
    starts, ends, axes, *rest = (each.tolist() for each in values if each is not None)
    steps = rest[0] if rest else [1] * len(axes)
    if min(axes) < 0:
        return None
    return {axis: _Part(*each) for axis, *each in zip(axes, starts, ends, steps, strict=True)}


def _write_slice(graph: _Graph, node: Any, data: str, parts: dict[int, _Part]) -> None:
    axes = sorted(parts)
    columns = ([parts[axis][place] for axis in axes] for place in range(3))
    starts, ends, steps = map(graph.add_constant, columns)
    del node.input[:]
    node.input.extend([data, starts, ends, graph.add_constant(axes), steps])


def _pool_strided_slices(graph: _Graph) -> None:
    """Every s-th row and column of maps, (N, C, H, W), as a maximum over windows of one pixel.

    onnxruntime keeps the maps of convolutions in an order of its own. It takes pooling in that order, while a Slice
    makes it copy whole maps back and forth.
    """
    from onnx import helper

    for node in graph.nodes("Slice"):
        parts = _read_slice(graph, node)
        source = graph.sources.get(node.input[0])
        if source is None or source.op_type not in ("Conv", "BatchNormalization"):
            continue
        if parts is None or len(graph.shapes.get(node.input[0], [])) != 4 or not parts.keys() <= {2, 3}:
            continue
        if all(part.strided and part.step > 0 for part in parts.values()):
            strides = [parts[axis].step if axis in parts else 1 for axis in (2, 3)]
            pool = helper.make_node("MaxPool", node.input[:1], node.output, kernel_shape=[1, 1], strides=strides)
            node.CopyFrom(pool)


def _repeat_convolutions(graph: _Graph) -> None:
    """Some places of a convolution's map, computed by the same convolution with longer strides.

    Output i s of stride t is output i of stride s t. Where something else reads a map, onnxruntime cannot join the
    convolution with its activation, and brings the whole map back for a Clip. A few places cost less.
    """
    from onnx import helper

    for node in graph.nodes("MaxPool"):
        pool = {each.name: list(each.ints) for each in node.attribute}
        source = graph.sources.get(node.input[0])
        if pool["kernel_shape"] != [1, 1] or source is None or source.op_type != "Conv":
            continue
        weight = graph.constants.get(source.input[1])
        named = {each.name: helper.get_attribute_value(each) for each in source.attribute}
        if weight is None or named.get("auto_pad", b"NOTSET") != b"NOTSET":
            continue
        steps = pool["strides"]
        if weight[0].size <= _CHEAP * steps[0] * steps[1]:
            strides = [a * b for a, b in zip(named.pop("strides", [1, 1]), steps, strict=True)]
            named.pop("auto_pad", None)
            node.CopyFrom(helper.make_node("Conv", source.input, node.output, strides=strides, **named))


def _pool_before_normalising(graph: _Graph) -> None:
    """Some places of normalised maps: the places are taken first, and they alone are normalised once more.

    So the normalisation has one reader again, and onnxruntime joins it with its activation.
    """
    for node in list(graph.nodes("MaxPool")):
        source = graph.sources.get(node.input[0])
        windows = next(list(each.ints) for each in node.attribute if each.name == "kernel_shape")
        if windows == [1, 1] and source is not None and source.op_type == "BatchNormalization":
            again = type(source)()
            again.CopyFrom(source)
            again.name = ""
            again.output[0] = node.output[0]
            again.input[0] = f"{node.output[0]}_before"
            node.input[0], node.output[0] = source.input[0], again.input[0]
            graph.insert_after(node, again)


def _centre_by_product(graph: _Graph) -> None:
    """x − its mean over the last two of four axes, by a matrix: onnxruntime spreads a mean over few places slowly."""
    import numpy as np
    from onnx import helper

    for node in list(graph.nodes("Sub")):
        mean = graph.sources.get(node.input[1])
        shape = graph.shapes.get(node.input[0], [])
        if mean is None or mean.op_type != "ReduceMean" or mean.input[0] != node.input[0] or len(shape) != 4:
            continue
        axes = graph.constants.get(mean.input[1])
        places = shape[2] * shape[3]
        if axes is None or sorted(int(axis) % 4 for axis in axes) != [2, 3] or not 0 < places <= _PLACES:
            continue
        matrix = (np.eye(places) - 1 / places).astype(np.float32)
        (output,) = node.output
        flat, centred = f"{output}_flat", f"{output}_centred"
        back = helper.make_node("Reshape", [centred, graph.add_constant([0, *shape[1:]])], [output])
        product = helper.make_node("MatMul", [flat, graph.add_constant(matrix)], [centred])
        node.CopyFrom(helper.make_node("Reshape", [node.input[0], graph.add_constant([0, shape[1], places])], [flat]))
        graph.insert_after(node, product, back)


def _multiply_by_columns(graph: _Graph) -> None:
    """A product with a vector as one with a matrix of one column: onnxruntime is eight times as fast."""
    from onnx import helper

    for node in list(graph.nodes("MatMul")):
        vector = graph.constants.get(node.input[1])
        if vector is not None and vector.ndim == 1:
            (output,) = node.output
            node.input[1], node.output[0] = graph.add_constant(vector[:, None]), f"{output}_column"
            graph.insert_after(node, helper.make_node("Squeeze", [node.output[0], graph.add_constant([-1])], [output]))


def _leave_out_single_axes(graph: _Graph) -> None:
    """Means over axes of which one has size 1: onnxruntime is several times as fast over the others alone."""
    from onnx import helper

    for node in list(graph.nodes("ReduceMean")):
        axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
        shape = graph.shapes.get(node.input[0])
        if axes is None or not shape:
            continue
        places = [int(axis) % len(shape) for axis in axes]
        single = [axis for axis in places if shape[axis] == 1]
        others = [axis for axis in places if shape[axis] != 1]
        keep = next((each for each in node.attribute if each.name == "keepdims"), None)
        if not single or not others:
            continue
        node.input[1] = graph.add_constant(others)
        if keep is not None and not keep.i:
            (output,) = node.output
            left = [axis - sum(other < axis for other in others) for axis in single]
            node.output[0] = f"{output}_wide"
            graph.insert_after(node, helper.make_node("Squeeze", [node.output[0], graph.add_constant(left)], [output]))


def _reduce_last_axes_first(graph: _Graph) -> None:
    """A mean over the last axes and over others before a kept one, in two: onnxruntime is quick over neighbours."""
    from onnx import helper

    for node in list(graph.nodes("ReduceMean")):
        axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
        shape = graph.shapes.get(node.input[0])
        if axes is None or not shape:
            continue
        others = sorted(int(axis) % len(shape) for axis in axes)
        last: list[int] = []
        while others and others[-1] == len(shape) - 1 - len(last):
            last.append(others.pop())
        if not last or not others:
            continue
        first = helper.make_node(
            "ReduceMean", [node.input[0], graph.add_constant(last[::-1])], [f"{node.output[0]}_last"]
        )
        first.attribute.extend(node.attribute)
        place = next(number for number, each in enumerate(graph.graph.node) if each is node)
        node.input[0], node.input[1] = first.output[0], graph.add_constant(others)
        graph.graph.node.insert(place, first)
