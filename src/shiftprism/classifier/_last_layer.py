"""Where a trained model ends: the layer, or the averaged layers, whose linear output is what the model returns."""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.classifier._headless import REDUCTIONS, Cut
from shiftprism.heads import Head, Linear

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_WAY_OUT = (
    "name the layer as head=…, end the model in a linear layer without softmax, "
    "or build a Classifier(backbone, head) yourself"
)
_SMALLEST = 1e-30
"""Below this, float32 runs out of digits; some untrained networks get there."""
_MOST_BRANCHES = 12
"""Of so many of the last layers with K outputs, averages are looked for."""


class Ending(NamedTuple):
    """How a model ends."""

    cuts: tuple[Cut, ...]
    head: Head
    logits: Tensor
    """(N, K): what the model returns for the example."""


class _Call(NamedTuple):
    """A layer that ran, with a copy of what went in and came out: a later layer may have written into it."""

    name: str
    module: nn.Module
    inputs: Tensor
    output: Tensor


class _Match(NamedTuple):
    """A layer whose output, reduced to (N, K), may be part of the logits."""

    call: _Call
    reduction: str
    values: Tensor

    @property
    def cut(self) -> Cut:
        return Cut(self.call.name, self.reduction)


def find_ending(model: nn.Module, images: Tensor, head: "str | Sequence[str] | None") -> Ending:
    """The last layer of a model in evaluation mode, or those that it averages, as one head.

    `head` names it, or them, where there are several candidates.
    """
    wanted = (head,) if isinstance(head, str) else None if head is None else tuple(head)
    if wanted is not None:
        _check_names(model, wanted)
    with torch.no_grad():
        returned = list_logits(model(images), len(images))
        calls = _record_calls(model, images, {logits.shape[1] for logits in returned.values()})
        endings = [ending for logits in returned.values() if (ending := _find_for(logits, calls, wanted)) is not None]
        if len({ending.cuts for ending in endings}) > 1:
            names = ", ".join(repr(ending.cuts[0].layer) for ending in endings)
            advice = f"say which are the logits: head={endings[0].cuts[0].layer!r}, or another of these"
            raise wrong("model", "one that returns the output of one last layer", f"one that returns {names}", advice)
        if not endings:
            raise _explain(returned, calls, wanted)
    return endings[0]


def list_logits(output: Any, count: int) -> dict[str, Tensor]:
    """The tensors (N, K) that a model returns, by their place in it: of a tensor, a sequence, a table or an object.

    Where something is called "logits", it is that alone. What is no such tensor is an error.
    """
    named = output["logits"] if isinstance(output, Mapping) and "logits" in output else getattr(output, "logits", None)
    places = {"logits": named} if named is not None else dict(_list_parts(output))
    tensors = {place: value for place, value in places.items() if isinstance(value, Tensor)}
    if not tensors:
        got = f"a {type(output).__name__} without a tensor"
        raise wrong("model", "one that returns logits", got, "wrap it so that it returns one tensor (N, K)")
    logits = {
        place: value
        for place, value in tensors.items()
        if value.ndim == 2 and value.shape[0] == count and value.is_floating_point()
    }
    if not logits:
        got = " and ".join(f"shape {tuple(value.shape)}" for value in tensors.values())
        raise wrong("model", f"one that returns logits of shape ({count}, K)", got, "wrap it so that it does")
    several = {place: value for place, value in logits.items() if value.shape[1] > 1}
    if not several:
        advice = "give it two outputs: what is computed here compares the logits of classes"
        raise wrong("model", "a classifier of two classes or more", "one with a single logit", advice)
    return several


def _list_parts(output: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping):
        yield from ((str(key), value) for key, value in output.items())
    elif isinstance(output, tuple | list):
        yield from ((str(number), value) for number, value in enumerate(output))
    else:
        yield "", output


def _check_names(model: nn.Module, names: Sequence[str]) -> None:
    known = dict(model.named_modules())
    for name in names:
        if name not in known:
            some = [each for each, module in known.items() if isinstance(module, (nn.Linear, Head, *_CONVOLUTIONS))]
            raise wrong("head", "a layer of the model", repr(name), f"its last ones are {', '.join(some[-5:])}")


def _record_calls(model: nn.Module, images: Tensor, classes: set[int]) -> list[_Call]:
    """The layers with weights that ran and returned a number of channels that the logits have, in order of their end.

    A layer inside another one ends before it. Of a layer that ran twice, the last time is kept.
    """
    calls: dict[str, _Call] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            given = next((value for value in (*inputs, *named.values()) if isinstance(value, Tensor)), None)
            if given is None or not isinstance(output, Tensor) or not 1 < output.ndim < 6:
                return
            if classes & {output.shape[1], output.shape[-1]} and given.is_floating_point():
                calls.pop(name, None)
                calls[name] = _Call(name, module, given.clone(), output.clone())

        return hook

    hooks = [
        module.register_forward_hook(record(name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, Head) or next(module.parameters(), None) is not None
    ]
    try:
        model(images)
    finally:
        for handle in hooks:
            handle.remove()
    return list(calls.values())


def _find_for(logits: Tensor, calls: Sequence[_Call], wanted: tuple[str, ...] | None) -> Ending | None:
    """How these logits come about, or None."""
    matches = [match for call in calls for match in _list_matches(call, logits)]
    if wanted is not None:
        matches = [match for match in matches if match.call.name in wanted]
    if wanted is None or len(wanted) == 1:
        for match in matches:
            if _are_close(match.values, logits):
                match = match if wanted else _widen(match, calls)
                if (head := _as_head(match)) is not None:
                    return Ending((match.cut,), head, logits)
    return _find_average(logits, matches, wanted)


def _list_matches(call: _Call, logits: Tensor) -> Iterator[_Match]:
    """The ways to make (N, K) of a layer's output that are linear, with what they mean for its input."""
    inputs, output = call.inputs, call.output
    count, classes = logits.shape
    if len(inputs) != count or len(output) != count or inputs.ndim != output.ndim:
        return
    if output.ndim == 2 and output.shape[1] == classes:
        yield _Match(call, "flat", output)
    elif output.ndim > 2 and output.shape[1] == classes and output[0, 0].numel() == 1 and _covers_all(call):
        yield _Match(call, "flat", output.flatten(1))
    elif output.ndim > 2 and output.shape[1] == classes and output.shape[2:] == inputs.shape[2:]:
        yield _Match(call, "mean of maps", REDUCTIONS["mean of maps"](output))
    if output.ndim > 2 and output.shape[-1] == classes and output.shape[1:-1] == inputs.shape[1:-1]:
        yield _Match(call, "mean of tokens", REDUCTIONS["mean of tokens"](output))
        if output.ndim == 3:
            yield _Match(call, "first token", output[:, 0])


def _covers_all(call: _Call) -> bool:
    """Whether one place of the output sees every place of the input, once and without padding."""
    places = tuple(call.inputs.shape[2:])
    if isinstance(call.module, _CONVOLUTIONS):
        return call.module.kernel_size == places and not any(_padding(call.module))
    return all(side == 1 for side in places)


def _padding(layer: Any) -> Sequence[int]:
    return (0,) if layer.padding == "valid" else (1,) if isinstance(layer.padding, str) else layer.padding


def _widen(match: _Match, calls: Sequence[_Call]) -> _Match:
    """The same match of the outermost module around a layer that takes and returns the same: an adapter such as LoRA.

    Without this, the layer inside would be cut out, and what the adapter adds to it would be lost.
    """
    by_name, name = {call.name: call for call in calls}, match.call.name
    while name:
        name = name.rpartition(".")[0]
        outer = by_name.get(name)
        if outer is None or isinstance(outer.module, nn.Sequential | Head):
            continue
        if torch.equal(outer.inputs, match.call.inputs) and torch.equal(outer.output, match.call.output):
            match = match._replace(call=outer)
    return match


def _find_average(logits: Tensor, matches: Sequence[_Match], wanted: tuple[str, ...] | None) -> Ending | None:
    """Layers whose mean or sum the logits are, as one head on their features side by side."""
    leaves = [match for match in matches if wanted or isinstance(match.call.module, (nn.Linear, *_CONVOLUTIONS))]
    leaves = leaves[-_MOST_BRANCHES:]
    if wanted is not None:
        groups: Sequence[Sequence[_Match]] = list(itertools.combinations(leaves, len(wanted)))
        groups = [group for group in groups if {match.call.name for match in group} == set(wanted)]
    else:
        groups = [*itertools.combinations(leaves, 2), *([leaves] if len(leaves) > 2 else [])]
    for group in groups:
        if len({match.call.name for match in group}) < max(2, len(group)):
            continue
        for share in (1 / len(group), 1.0):
            if not _are_close(share * torch.stack([match.values for match in group]).sum(0), logits):
                continue
            heads = [_as_head(match) for match in group]
            linear = [head for head in heads if isinstance(head, Linear)]
            if len(linear) == len(group):
                return Ending(tuple(match.cut for match in group), _join(linear, share), logits)
    return None


def _join(heads: Sequence[Linear], share: float) -> Linear:
    weight = share * torch.cat([head.weight for head in heads], 1)
    bias = [share * head.bias for head in heads if head.bias is not None]
    return _make_head(weight, torch.stack(bias).sum(0) if bias else None)


def _as_head(match: _Match) -> Head | None:
    """The layer as a head; None for one that is not linear in its input, or that only scales each class."""
    layer = match.call.module
    if isinstance(layer, Head):
        return layer
    if isinstance(layer, _NORMS):
        return None
    parameters = _read_weights(match) or _probe_weights(match)
    if parameters is None or _only_scales(parameters[0]) or not _is_linear(match, *parameters):
        return None
    return _make_head(*parameters)


def _make_head(weight: Tensor, bias: Tensor | None) -> Linear:
    head = Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight.device, weight.dtype)
    with torch.no_grad():
        head.weight.copy_(weight)
        if head.bias is not None and bias is not None:
            head.bias.copy_(bias)
    return head


def _read_weights(match: _Match) -> tuple[Tensor, Tensor | None] | None:
    """W and b of a layer that computes as nn.Linear or a convolution does, normed or not; None for any other."""
    layer = match.call.module
    plain = any(type(layer).forward is kind.forward for kind in (nn.Linear, *_CONVOLUTIONS))
    if not plain or layer._forward_hooks:
        return None
    if isinstance(layer, _CONVOLUTIONS):
        strides = {*layer.stride, *layer.dilation} if match.reduction == "mean of maps" else {1}
        sides = {*layer.kernel_size} if match.reduction == "mean of maps" else {1}
        if layer.groups != 1 or strides != {1} or sides != {1}:
            return None
    # weight and spectral norm keep the weight that the last pass used, or compute it where it is read
    weight, bias = getattr(layer, "weight"), getattr(layer, "bias")  # noqa: B009 (nn.Module types them as modules)
    return weight.detach().flatten(1).clone(), None if bias is None else bias.detach().clone()


def _probe_weights(match: _Match) -> tuple[Tensor, Tensor] | None:
    """W and b of any layer that is linear: b is its answer to 0, a column of W that to a unit vector, in float64."""
    width = REDUCTIONS[match.reduction](match.call.inputs[:1]).shape[1]
    kind = torch.promote_types(match.call.inputs.dtype, torch.float32)
    try:
        layer = copy.deepcopy(match.call.module).double()
        answer = _answerer(match, layer, torch.float64)
        bias = answer(torch.zeros(1, width))
        units = torch.eye(width).split(512)
        weight = torch.cat([answer(part) - bias for part in units]).T
    except (RuntimeError, TypeError, ValueError):  # it computes in a precision of its own, or not with such inputs
        return None
    return weight.contiguous().to(kind), bias[0].to(kind)


def _answerer(match: _Match, layer: nn.Module, kind: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The layer as a function of feature vectors (n, D): each is given as the only place, or as the whole input."""
    inputs = match.call.inputs
    if match.reduction in ("mean of tokens", "first token"):
        shape: tuple[int, ...] = (*(1,) * (inputs.ndim - 2), inputs.shape[-1])
    elif match.reduction == "mean of maps":
        shape = (inputs.shape[1], *(1,) * (inputs.ndim - 2))
    else:
        shape = tuple(inputs.shape[1:])

    def answer(features: Tensor) -> Tensor:
        result: Tensor = layer(features.reshape(-1, *shape).to(inputs.device, kind))
        return result.reshape(len(features), -1)

    return answer


def _only_scales(weight: Tensor) -> bool:
    """Whether W is diagonal: a temperature or a norm after the last layer, and not that layer."""
    return weight.shape[0] == weight.shape[1] and not bool((weight - weight.diag().diag()).any())


def _is_linear(match: _Match, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the layer computes W f + b, of the example and of random features of both signs and several sizes."""
    inputs = match.call.inputs
    given = REDUCTIONS[match.reduction](inputs).double() @ weight.double().T
    if not _are_close((given if bias is None else given + bias.double()).to(match.values), match.values):
        return False
    noise = torch.randn(16, weight.shape[1], generator=torch.Generator().manual_seed(0))
    scale = float(inputs.float().std(correction=0))
    scale = scale if scale > _SMALLEST else 1.0
    features = (noise * scale * torch.logspace(-1, 1, 16)[:, None]).to(inputs)
    try:
        found = _answerer(match, match.call.module, inputs.dtype)(features)
    except (RuntimeError, TypeError, ValueError):
        return False
    expected = features.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    return found.shape == expected.shape and _are_close(found, expected)


def _are_close(values: Tensor, logits: Tensor) -> bool:
    if values.shape != logits.shape:
        return False
    rounding = 16 * torch.finfo(values.dtype).eps
    distance = max(1e-6, rounding) * float(logits.abs().max()) + _SMALLEST
    return torch.allclose(values.double(), logits.double(), rtol=max(1e-4, rounding), atol=distance)


def _explain(returned: Mapping[str, Tensor], calls: Sequence[_Call], wanted: tuple[str, ...] | None) -> ValueError:
    """The error for a model that ends otherwise: how it seems to end, and the layers that it might have ended in."""
    logits = next(iter(returned.values()))
    matches = [match for each in returned.values() for call in calls for match in _list_matches(call, each)]
    names = dict.fromkeys(f"{match.call.name!r} ({type(match.call.module).__name__})" for match in matches)
    shape = tuple(logits.shape)
    if wanted is not None:
        got = f"{' and '.join(map(repr, wanted))}, whose output the model's is not"
        advice = f"layers with {shape[1]} outputs: {', '.join(names) or 'none'}; or build a Classifier yourself"
        return wrong("head", "the layer that the model's logits come from, linear in its input,", got, advice)
    candidates = f"layers with {shape[1]} outputs: {', '.join(list(names)[-5:]) or 'none'}"
    got = f"a model whose output of shape {shape} is {_guess(logits, calls)} ({candidates})"
    return wrong("model", "one that ends in its last linear layer", got, _WAY_OUT)


def _guess(logits: Tensor, calls: Sequence[_Call]) -> str:
    """In words, how the output seems to come about."""
    if bool((logits >= 0).all()) and _are_close(logits.sum(1), torch.ones_like(logits[:, 0])):
        return "probabilities after a softmax"
    if bool((logits <= 0).all()) and _are_close(logits.exp().sum(1), torch.ones_like(logits[:, 0])):
        return "log-probabilities after a softmax"
    for call in calls:
        maps = call.output
        if maps.ndim == 4 and maps.shape[:2] == logits.shape and _are_close(maps.relu().mean((2, 3)), logits):
            return f"the mean of {call.name!r} after a ReLU, which is not linear in the mean of its input"
    return "not the linear output of any layer"
