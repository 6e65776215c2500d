"""Programs of XLA: a graph of ops becomes one function of JAX's arrays, which XLA compiles, with donated inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from polyhal.hal.layout import Spec
from polyhal.hal.protocol import GraphNode, GraphProgram, GraphValue, InputSpec
from polyhal_xla.functions import ELEMENTWISE, FUNCTIONS, OF_FLOATS, TESTS

_HALF = ("float16", "bfloat16")


def declined(op: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Mapping[str, Any]) -> str:
    """Return why there is no function for an op; empty if there is one."""
    tensors = [x.dtype for x in inputs if isinstance(x, Spec)]
    if op in FUNCTIONS:
        if op.startswith("attention"):
            q, k, mask = (inputs[i + op.endswith("grad")] for i in (0, 1, 3))
            if mask is not None or not isinstance(q, Spec) or not isinstance(k, Spec) or q.shape[:-2] != k.shape[:-2]:
                return "this plug-in has no function for attention with a mask or shared heads"
        half = [d.name for d in (*tensors, *(x.dtype for x in outputs)) if d.name in _HALF]
        if op == "max_pool2d" and not tensors[0].is_floating_point:
            return "this plug-in pools floats only"
        return f"this plug-in computes {op} in float32 and float64 only, not in {half[0]}" if half else ""
    if op not in ELEMENTWISE:
        return f"this plug-in has no function for {op}"
    if op in OF_FLOATS and not all(x.dtype.is_floating_point for x in outputs):
        return f"this plug-in computes {op} of floats only"
    operands = tensors[1:] if op == "where" else tensors
    if len(set(operands)) > 1:
        return f"this plug-in computes {op} of operands of one dtype only"
    numbers = [x.dtype for x in inputs if x is not None and not isinstance(x, Spec)]
    if op in TESTS and tensors and not tensors[0].is_floating_point and any(d.is_floating_point for d in numbers):
        return f"this plug-in does not compare integers with a float in {op}"
    return ""


def program(graph: GraphProgram) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the function of a graph's inputs, which returns its outputs, to be called with 64-bit dtypes enabled.

    Donated inputs must not be used afterwards.
    """

    # JAX gives an output the memory of the first donated input of its shape that is left: replaced inputs come first, in the
    # order of their outputs. XLA would copy a parameter in the memory of another.
    pairs = [(k, position) for k, position in enumerate(graph.donated) if position is not None]
    outputs = [k for k, _ in pairs] + [k for k, position in enumerate(graph.donated) if position is None]
    donated = [position for _, position in pairs]
    inputs = donated + [i for i in range(len(graph.inputs)) if i not in donated]
    places = sorted(range(len(outputs)), key=outputs.__getitem__)
    """Position of each output among the results of `compute`."""

    def compute(*arguments: Any) -> list[Any]:
        values: dict[GraphValue, Any] = {graph.inputs[i]: x for i, x in zip(inputs, arguments, strict=True)}
        for node in graph.nodes:
            operands = [values[x] if isinstance(x, GraphValue) else x for x in node.operands]
            values.update(zip(node.results, _results(node, operands), strict=True))
        return [values[graph.outputs[k]] for k in outputs]

    compiled = jax.jit(compute, donate_argnums=tuple(range(len(donated))))
    is_compiled = False

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        nonlocal is_compiled
        ordered = [arguments[i] for i in inputs]
        if is_compiled:
            results = compiled(*ordered)
        else:
            with warnings.catch_warnings():
                # XLA copies donated inputs of programs that would not gain from them.
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                results = compiled(*ordered)
            is_compiled = True
        return [results[place] for place in places]

    return run


def _results(node: GraphNode, operands: list[Any]) -> Sequence[Any]:
    """Return the results of a node, in the dtypes of its specs."""
    specs = [v.spec for v in node.results]
    if node.op in ELEMENTWISE:
        made = (ELEMENTWISE[node.op](*_cast_operands(node, operands), **node.params),)
    else:
        result = FUNCTIONS[node.op](node, *operands, **node.params)
        made = result if isinstance(result, tuple) else (result,)
    return [jax.numpy.asarray(x).astype(s.dtype.numpy).reshape(s.shape) for x, s in zip(made, specs, strict=True)]


def _cast_operands(node: GraphNode, operands: list[Any]) -> list[Any]:
    """Return the operands of an elementwise op in the dtype in which it is computed: float32 at least for floats."""
    tensors = [x.spec.dtype for x in node.operands if isinstance(x, GraphValue) and isinstance(x.spec, Spec)]
    kinds = tensors[-1:] if node.op in TESTS or node.op == "cast" else [node.results[0].spec.dtype]
    if not kinds:
        return operands
    kind = jax.numpy.float32 if kinds[0].name in _HALF else kinds[0].numpy
    first = 1 if node.op == "where" else 0
    return [*operands[:first], *(None if x is None else jax.numpy.asarray(x).astype(kind) for x in operands[first:])]
