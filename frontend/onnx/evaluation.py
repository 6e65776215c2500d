"""Running a graph: nodes whose inputs are all on the host run there, and everything else on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError, ShapeError, message
from polyhal.onnx.element_types import device_dtype
from polyhal.onnx.evaluation_values import as_tensor, is_host, to_host
from polyhal.onnx.graph import OnnxGraph, OnnxNode
from polyhal.onnx.narrow_types import is_narrow
from polyhal.onnx.registration import NodeFacts, Operator, Value
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_LARGE = 1 << 16
"""Size in bytes of constants that are computed on the host and then kept on the device."""


_MOVEMENTS = frozenset(("Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that the standard defines for elements of 8 bits and fewer, whatever the elements mean."""


class Evaluator:
    """Runs graphs on one device."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def run(self, graph: OnnxGraph, values: dict[str, Value]) -> list[Value]:
        """Return the results of a graph. `values` has its inputs, initializers and captured values, and is changed."""
        for node, released in zip(graph.nodes, graph.released, strict=True):
            for name, value in zip(node.outputs, self._results(node, values), strict=False):
                if name:
                    values[name] = value
            for name in released:
                values.pop(name, None)
        return [values[name] for name in graph.outputs]

    def _results(self, node: OnnxNode, values: Mapping[str, Value]) -> Sequence[Value]:
        operator = node.operator
        assert operator is not None, "the reader refuses models with such nodes"
        arguments = [values[name] if name else None for name in node.inputs]
        try:
            if operator.foldable and not operator.raw and arguments and all(map(is_host, arguments)):
                results = self._folded(node, operator, arguments, values)
            else:
                results = self._called(node, operator, arguments, self._device, values)
            return [self._typed(r, i, node, arguments) for i, r in enumerate(results)]
        except PolyhalError as error:
            error.add_note(f"in the node {node.name!r} ({node.op})")
            raise
        except (TypeError, ValueError, IndexError, ArithmeticError, AssertionError) as error:
            shapes = ", ".join(map(_described, arguments))
            problem = f"the node {node.name!r} ({node.op}) does not accept {shapes or 'no inputs'}: {error}"
            raise ShapeError(message("onnx", problem, expected="inputs as ONNX declares them")) from error

    def _called(
        self, node: OnnxNode, operator: Operator, arguments: list[Value], device: Device, values: Mapping[str, Value]
    ) -> Sequence[Value]:
        facts = NodeFacts(node.name, node.op, node.version, node.outputs, device, self._runner(node, values))
        given = arguments if operator.raw else _prepared(operator, arguments, facts)
        extra = {"node": facts} if operator.takes_node else {}
        results = operator.function(*given, **node.attributes, **extra)
        made = results if isinstance(results, tuple) else (results,)
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in made]

    def _runner(self, node: OnnxNode, values: Mapping[str, Value]) -> Callable[..., list[Value]]:
        """Return a function that runs a graph of a node with inputs."""

        def run(graph: OnnxGraph, *inputs: Value) -> list[Value]:
            inner = {name: values[name] for name in graph.captured}
            inner |= {name: stored.read() for name, stored in graph.stored.items()}
            inner |= {i.name: value for i, value in zip(graph.inputs, inputs, strict=True)}
            return self.run(graph, inner)

        return run

    def _folded(
        self, node: OnnxNode, operator: Operator, arguments: list[Value], values: Mapping[str, Value]
    ) -> Sequence[Value]:
        """Run a node on the host, outside of a captured step. Large results are moved to the device."""
        host = Device("numpy")
        if node.op in _MOVEMENTS and (narrow := arguments[0]) is not None and is_narrow(narrow.dtype):
            moved = self._folded(node, operator, [narrow.view(np.uint8), *arguments[1:]], values)
            return [to_host(r).view(narrow.dtype) if r.dtype.name == "uint8" else r for r in moved]
        with dispatch.executing(dispatch.EAGER), dispatch.default_device(host), no_grad():
            made = [to_host(r) for r in self._called(node, operator, arguments, host, values)]
        large = (isinstance(r, np.ndarray) and r.nbytes > _LARGE and device_dtype(r.dtype) is not None for r in made)
        return [Tensor(r, device=self._device) if big else r for r, big in zip(made, large, strict=True)]

    def _typed(self, result: Value, index: int, node: OnnxNode, arguments: list[Value]) -> Value:
        """Return a result with the element type that ONNX declares: that of an input."""
        same = node.same_type[index] if index < len(node.same_type) else None
        if same is None or same >= len(arguments) or not isinstance(result, Tensor | np.ndarray):
            return result
        like = arguments[same]
        if isinstance(like, Tensor):
            dtype = like.dtype
        elif isinstance(like, np.ndarray) and (found := device_dtype(like.dtype)) is not None:
            dtype = found
        else:
            return result
        if isinstance(result, np.ndarray):
            return result.astype(dtype.numpy, copy=False)
        dtype = self._device.stand_ins.get(dtype, dtype)
        return result if result.dtype is dtype else result.to(dtype)


def _prepared(operator: Operator, arguments: list[Value], node: NodeFacts) -> list[Value]:
    """Return inputs where a function takes them: on the host, on the device, or as Python numbers."""
    ndim = max((a.ndim for a in arguments if isinstance(a, Tensor)), default=-1)
    prepared = []
    for index, argument in enumerate(arguments):
        name = operator.positional[index] if index < len(operator.positional) else ""
        if name in operator.host:
            prepared.append(to_host(argument))
        elif not isinstance(argument, np.ndarray):
            prepared.append(argument)
        elif operator.numbers and argument.size == 1 and argument.ndim <= ndim and argument.dtype.kind != "b":
            prepared.append(argument.item())
        else:
            prepared.append(as_tensor(argument, node))
    return prepared


def _described(value: Value) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    return "a sequence" if isinstance(value, list) else "nothing"
