"""Formulas of elementwise ops that run as one kernel, which computes half precision in float32 and rounds once.

A formula is traced once for the dtypes and numbers of its arguments. Recorders and compilers have its ops one by one, so that
they can group them with their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce, wraps
from typing import Any, NamedTuple, TypeVar

from polyhal.hal.compile.ir.graph import Value, operand_key
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.passes.fuse.elementwise import numbered_steps
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType, accumulator, promote
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.torch.table.operands import OPS, cast, is_tensor

Formula = TypeVar("Formula", bound=Callable[..., Any])
_FUSED = OPS["fused_elementwise"]


class _Program(NamedTuple):
    """A traced formula: steps as `fused_elementwise` takes them."""

    numbers: tuple[Any, ...]
    """Constants, which are operands after the tensors."""
    steps: tuple[GroupStep, ...]
    results: tuple[int, ...]


def formula(function: Formula) -> Formula:
    """Let a function of elementwise ops run as one kernel, with results in the promoted dtype of its tensors.

    Its arguments are positional: tensors, numbers and flags. It returns a tensor or a tuple of tensors.
    """

    @wraps(function)
    def compute(*args: Any) -> Any:
        if dispatch.thread.executor is not dispatch.EAGER:
            return _widened(function, args)
        tensors = [x for x in args if is_tensor(x)]
        if len({x.shape for x in tensors if x.shape}) > 1 or any(x.dtype.kind == "complex" for x in tensors):
            return _widened(function, args)
        key = tuple([(x.dtype, bool(x.shape)) if is_tensor(x) else (type(x), x) for x in args])
        program = _traced(function, key)
        operands, params = (*tensors, *program.numbers), (program.steps, program.results, None)
        found = dispatch.apply(_FUSED, operands, params)
        return found if len(found) > 1 else found[0]

    return compute  # type: ignore[return-value]


@lru_cache(maxsize=1024)
def _traced(function: Callable[..., Any], key: tuple[tuple[Any, Any], ...]) -> _Program:
    """Trace a formula for tensors, (dtype, whether they have axes), and numbers, (type, value)."""
    specs = [contiguous(kind, (2,) * has_axes) for kind, has_axes in key if isinstance(kind, DType)]

    def run(*symbols: Any) -> Any:
        left = iter(symbols)
        return _widened(function, [next(left) if isinstance(kind, DType) else value for kind, value in key])

    graph = trace(run, specs, {})
    operands = [x for node in graph.nodes for x in node.inputs if x is not None]
    constants = {operand_key(x): x for x in operands if not isinstance(x, Value)}
    places: dict[Any, int] = {Value(i): i for i in range(len(specs))}
    places |= {x: len(specs) + i for i, x in enumerate(constants)}
    steps = numbered_steps(graph.nodes, places)
    return _Program(tuple(constants.values()), steps, tuple(places[Value(i)] for i in graph.outputs))


def _widened(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call a function on tensors of half precision in float32, and cast its results to the promoted dtype."""
    kinds = [x.dtype for x in args if _is_float(x)]
    if all(accumulator(kind) is kind for kind in kinds):
        return function(*args)
    found = function(*[cast(x, accumulator(x.dtype)) if _is_float(x) else x for x in args])
    dtype = reduce(promote, kinds)
    return tuple(cast(x, dtype) for x in found) if isinstance(found, tuple) else cast(found, dtype)


def _is_float(x: Any) -> bool:
    kind = getattr(x, "dtype", None)
    return kind is not None and kind.kind == "float"
