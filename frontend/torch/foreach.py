"""Elementwise ops over lists of tensors, as in optimizers: a few launches for all tensors instead of one per tensor.

Lists of different dtypes, or of shapes that are not broadcast as `list_access` describes, use PyTorch's loop. So do recordings,
whose graphs are fused by passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from polyhal.hal.core import dispatch
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.pointwise.foreach_elementwise import list_access
from polyhal.tensor import Tensor
from polyhal.torch import private, tensors
from polyhal.torch.counters import StepCounters
from polyhal.torch.device import NAME
from polyhal.torch.failures import as_pytorch
from polyhal.torch.list_programs import KnownLists

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
_PLAIN = (torch.nn.Parameter, torch.Tensor)


class _Call(NamedTuple):
    """A call as steps on the tensors, or numbers, at each index of `lists` and on `shared` operands."""

    lists: tuple[Sequence[Any], ...]
    shared: tuple[Any, ...]
    steps: tuple[Any, ...]


class _Value(NamedTuple):
    """A value of several calls: a list, a shared number, or the result of a step, with its place among them."""

    kind: Literal["list", "shared", "step"]
    place: int


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


class ListCalls:
    """Calls of ops over the same lists of tensors as one op, with results that are equal to the last bit."""

    def __init__(
        self, lists: Sequence[Sequence[torch.Tensor]], found: list[list[Any]], known: KnownLists | None = None
    ) -> None:
        """`found` are the lists as Polyhal tensors."""
        self._tensors, self._lists, self._known = lists, found, known
        self._shared: list[float] = []
        self._steps: list[tuple[str, tuple[_Value, ...], tuple[Any, ...]]] = []

    @classmethod
    def over(cls, *lists: Sequence[torch.Tensor]) -> ListCalls | None:
        """Return calls over lists of plain tensors of the device in one dtype that is not rounded between ops; else None."""
        flat = [x for xs in lists for x in xs]
        if not flat or dispatch.thread.executor.fuses_later:
            return None
        for known in KnownLists.of(flat):
            same = known.tensors(flat)
            if same is not None:
                n = len(lists[0])
                return cls(lists, [same[i : i + n] for i in range(0, len(same), n)], known)
        if any(type(x) not in _PLAIN for x in flat) or flat[0].dtype.itemsize < 4:
            return None
        found = _inputs(_Call(lists, (), ()))
        if found is None:
            return None
        known = KnownLists(flat, [x for xs in found[0] for x in xs])
        known.keep(flat[0])
        return cls(lists, found[0], known)

    def __call__(self, name: str, *args: Any, **options: Any) -> _Value:
        """Call an overload of a list op, such as `add.List`. Its arguments are numbers, lists of them, lists and results."""
        call = _CALLS[name](*args, **options)
        assert call is not None, name
        values = [self._value(x) for x in (*call.lists, *call.shared)]
        for op, places, params in call.steps:
            self._steps.append((op, tuple(values[i] for i in places), params))
            values.append(_Value("step", len(self._steps) - 1))
        return values[-1]

    def list(self, index: int) -> _Value:
        """Return one of the lists as an argument of calls."""
        return _Value("list", index)

    def counters(self, tensors: Sequence[torch.Tensor]) -> StepCounters:
        """Return step counters of the lists."""
        known = None if self._known is None else self._known.counters
        if known is None or not known.are(tensors):
            known = StepCounters(tensors)
            if self._known is not None:
                self._known.counters = known
        return known

    def _value(self, x: Any) -> _Value:
        if isinstance(x, _Value):
            return x
        if isinstance(x, (list, tuple)):
            self._lists.append([*map(float, x)])
            return _Value("list", len(self._lists) - 1)
        self._shared.append(x)
        return _Value("shared", len(self._shared) - 1)

    def write(self, results: dict[int, _Value]) -> bool:
        """Run all calls and write results over lists, by index. Returns False, and does nothing, if lists share memory."""
        outs = [x for i in results for x in self._lists[i]]
        read = [x for i, xs in enumerate(self._lists) if i not in results and not _are_numbers(xs) for x in xs]
        buffers = {id(x.buffer) for x in outs}
        if len(buffers) < len(outs) or any(id(x.buffer) in buffers for x in read):
            return False
        first = {"list": 0, "shared": len(self._lists), "step": len(self._lists) + len(self._shared)}

        def number(value: _Value) -> int:
            return first[value.kind] + value.place

        steps = tuple((op, tuple(map(number, values)), params) for op, values, params in self._steps)
        inputs = (*(x for xs in self._lists for x in xs), *self._shared)
        length = len(self._lists[0])
        params = (len(self._lists), length, steps, tuple(map(number, results.values())), ())
        places = [i * length + at for i in results for at in range(length)]
        arrays = inputs[: len(inputs) - len(self._shared)]
        known = self._known if len(self._lists) == len(self._tensors) else None  # lists of numbers change
        if known is None or not known.run(_OP, params, arrays, self._shared, places):
            dispatch.apply_into(_OP, inputs, params, tuple(outs))
        private.increment_versions([x for i in results for x in self._tensors[i]])
        return True


_CALLS = dict(_calls())


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
