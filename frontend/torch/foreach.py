"""Elementwise ops over lists of tensors, as in optimizers: a few launches for all tensors instead of one per tensor.

Lists of different dtypes, or of shapes that are not broadcast as `list_access` describes, use PyTorch's loop. So do recordings,
whose graphs are fused by passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from polyhal.hal.core import dispatch
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.pointwise.foreach_elementwise import list_access
from polyhal.tensor import Tensor
from polyhal.torch import private, tensors
from polyhal.torch.device import NAME
from polyhal.torch.failures import as_pytorch

if TYPE_CHECKING:
    from polyhal.torch.call_types import Operator

_UNARY = {
    "abs": "abs",
    "exp": "exp",
    "neg": "negative",
    "reciprocal": "reciprocal",
    "rsqrt": "rsqrt",
    "sign": "sign",
    "sqrt": "sqrt",
}
_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "maximum": "maximum",
    "minimum": "minimum",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
}
_SCALED = ("add", "sub")
"""Ops whose second operand is multiplied by `alpha`."""
_FEWEST = 2
_OP = OPS["foreach_elementwise"]


class _Call(NamedTuple):
    """A call as steps on the tensors, or numbers, at each index of `lists` and on `shared` operands."""

    lists: tuple[Sequence[Any], ...]
    shared: tuple[Any, ...]
    steps: tuple[Any, ...]


def _one_number(values: Sequence[float] | list[int]) -> Any:
    """Return the number that a list repeats; None for different numbers."""
    return values[0] if values and all(v == values[0] for v in values) else None


def _unary(op: str) -> Callable[..., _Call]:
    return lambda xs: _Call((xs,), (), ((op, (0,), ()),))


def _with_list(op: str) -> Callable[..., _Call]:
    def call(xs: Sequence[torch.Tensor], ys: Sequence[torch.Tensor], *, alpha: float = 1) -> _Call:
        if alpha == 1:
            return _Call((xs, ys), (), ((op, (0, 1), ()),))
        return _Call((xs, ys), (alpha,), (("multiply", (1, 2), ()), (op, (0, 3), ())))

    return call


def _with_one(op: str) -> Callable[..., _Call]:
    def call(xs: Sequence[torch.Tensor], y: torch.Tensor | float, *, alpha: float = 1) -> _Call:
        if alpha == 1:
            return _Call((xs,), (y,), ((op, (0, 1), ()),))
        return _Call((xs,), (y, alpha), (("multiply", (1, 2), ()), (op, (0, 3), ())))

    return call


def _with_numbers(call: Callable[..., _Call]) -> Callable[..., _Call | None]:
    """Return the call of an overload whose last argument is a list of numbers, shared by all tensors if they are equal."""

    def compute(*args: Any) -> _Call | None:
        number = _one_number(args[-1])
        if number is not None:
            return call(*args[:-1], number)
        found = call(*args)
        if any(x is args[-1] for x in found.shared):
            return found._replace(lists=(*found.lists, args[-1]), shared=())
        return found if any(xs is args[-1] for xs in found.lists) else None  # not if it became a parameter of a step

    return compute


def _addcmul(
    xs: Sequence[torch.Tensor], a: Sequence[torch.Tensor], b: Sequence[torch.Tensor], value: float = 1
) -> _Call:
    return _Call((xs, a, b), (), (("addcmul", (0, 1, 2), (value,)),))


def _addcdiv(
    xs: Sequence[torch.Tensor], a: Sequence[torch.Tensor], b: Sequence[torch.Tensor], value: float = 1
) -> _Call:
    """Pass `value` as an operand, as for single tensors, so that a changing number does not need a new kernel."""
    if value == 1:
        return _Call((xs, a, b), (), (("addcdiv", (0, 1, 2), (1,)),))
    return _Call((xs, a, b), (value,), (("divide", (1, 2), ()), ("addcmul", (0, 4, 3), (1,))))


def _lerp(xs: Sequence[torch.Tensor], ends: Sequence[torch.Tensor], weights: Sequence[torch.Tensor] | float) -> _Call:
    if isinstance(weights, (list, tuple)):
        return _Call((xs, ends, weights), (), (("lerp", (0, 1, 2), ()),))
    return _Call((xs, ends), (weights,), (("lerp", (0, 1, 2), ()),))


def _power(base: float, exponents: Sequence[torch.Tensor]) -> _Call:
    return _Call((exponents,), (base,), (("pow", (1, 0), ()),))


def _calls() -> Iterator[tuple[str, Callable[..., _Call | None]]]:
    for name, op in _UNARY.items():
        yield f"{name}.default", _unary(op)
    for name, op in _BINARY.items():
        yield f"{name}.List", _with_list(op)
        yield f"{name}.Scalar", _with_one(op)
        yield f"{name}.ScalarList", _with_numbers(_with_one(op))
        yield f"{name}.Tensor", _with_one(op)
    for name, call in (("addcmul", _addcmul), ("addcdiv", _addcdiv), ("lerp", _lerp)):
        yield f"{name}.Scalar", call
        yield f"{name}.ScalarList", _with_numbers(call)
    yield "lerp.List", _lerp
    yield "pow.ScalarAndTensor", _power


def _are_numbers(xs: Sequence[Any]) -> bool:
    return all(type(x) in (int, float) for x in xs)


def _fit(xs: Sequence[torch.Tensor], ys: Sequence[torch.Tensor]) -> bool:
    """Return whether lists have equal shapes, or the second one element for each row, column, matrix or tensor of the first."""
    if all(x.shape == y.shape for x, y in zip(xs, ys, strict=True)):
        return True
    specs = (*map(_spec, xs), *map(_spec, ys))
    return list_access(specs, 2, len(xs))[1] != "elements"


def _spec(x: torch.Tensor) -> Spec:
    spec: Spec = tensors.unwrap(x).ref.spec
    return spec


def _inputs(call: _Call) -> tuple[list[list[Any]], list[Any]] | None:
    """Return the tensors of the lists and shared operands; None unless they are floats of one dtype, of one shape per index."""
    first, *others = call.lists
    if dispatch.thread.executor.fuses_later or len(first) < _FEWEST:
        return None
    flat = [x for xs in call.lists if not _are_numbers(xs) for x in xs]
    dtype = first[0].dtype
    if not dtype.is_floating_point or any(x.dtype is not dtype or x.device.type != NAME for x in flat):
        return None
    if (len(call.steps) > 1 and dtype.itemsize < 4) or not all(x.is_contiguous() for x in flat):
        return None  # PyTorch rounds half precision after each step
    if not all(_are_numbers(ys) or _fit(first, ys) for ys in others):
        return None
    shared = []
    for value in call.shared:
        if isinstance(value, torch.Tensor):
            if value.dtype is not dtype or value.numel() != 1:
                return None
            value = FUNCTIONS["reshape"](tensors.unwrap(value), ())
        elif type(value) not in (int, float):
            return None
        shared.append(value)
    return [[*map(float, xs)] if _are_numbers(xs) else [tensors.unwrap(x) for x in xs] for xs in call.lists], shared


def _are_disjoint(lists: list[list[Any]], shared: list[Any]) -> bool:
    """Return whether written tensors do not share buffers with operands at other indices."""
    owners = {id(x.buffer): i for i, x in enumerate(lists[0])}
    if len(owners) < len(lists[0]) or any(isinstance(x, Tensor) and id(x.buffer) in owners for x in shared):
        return False
    others = (xs for xs in lists[1:] if not _are_numbers(xs))
    return all(owners.get(id(x.buffer), i) == i for xs in others for i, x in enumerate(xs))


def _kernel(op: Operator, make: Callable[..., _Call | None], in_place: bool) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> Any:
        call = make(*args, **kwargs)
        found = None if call is None else _inputs(call)
        if call is None or found is None or (in_place and not _are_disjoint(*found)):
            return private.on_any_device(op, *args, **kwargs)
        lists, shared = found
        inputs = (*(x for xs in lists for x in xs), *shared)
        result = len(lists) + len(shared) + len(call.steps) - 1
        params = (len(lists), len(lists[0]), call.steps, (result,), ())
        if not in_place:
            return [tensors.wrap(x) for x in _OP.call(list(inputs), *params)]
        dispatch.apply_into(_OP, inputs, params, tuple(lists[0]))
        return None

    return as_pytorch(compute)


def kernels(overload: Callable[[str], Any]) -> dict[str, Callable[..., Any]]:
    """Return kernels by name of overload, for overloads that `overload` finds in this version of PyTorch."""
    found = {}
    for name, make in _calls():
        packet, _, which = name.partition(".")
        for in_place in (False, True):
            full = f"_foreach_{packet}{'_' if in_place else ''}.{which}"
            op = overload(full)
            if op is not None:
                found[full] = _kernel(op, make, in_place)
    return found
