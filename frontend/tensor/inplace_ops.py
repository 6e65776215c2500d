"""`InPlaceOps`, the base class of tensors with `NAME_` for elementwise ops and functions that declare it, and with `+=`.

The methods are made from the declarations of ops (`hal/ops/names.py`); `inplace_ops.pyi` is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.errors import ShapeError
from polyhal.hal.layout import axis_order, is_dense, normalize_axis
from polyhal.hal.ops import FUNCTIONS, METHODS
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.indexing.table_updates import UPDATES, Prepare
from polyhal.hal.ops.methods import OPERATORS
from polyhal.hal.ops.names import Names
from polyhal.hal.ops.opdef import OpDef, compile_function
from polyhal.hal.ops.returns import Returns, declared_returns
from polyhal.tensor.inplace import apply_in_place, function_in_place, update_in_place

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


class InPlaceOps:
    """Ops that write their result over their first operand."""

    __slots__ = ()


def _methods() -> dict[str, Callable[..., Any]]:
    """`NAME_` for every elementwise op and functions that declare it, and the operators that write in place, such as `+=`."""
    made: dict[str, Callable[..., Any]] = {}
    for name, function in METHODS.items():
        op: OpDef | None = getattr(function, "op", None)
        names: Names = function.__names__  # type: ignore[attr-defined]
        if op is not None and op.promotion not in (None, "cast"):
            made[f"{name}_"] = _method(f"{name}_", op)
        elif names.in_place:
            make = _reshaping_method if declared_returns(function) is Returns.VIEW else _general_method
            made[f"{name}_"] = make(f"{name}_", function)
    for operator, name in OPERATORS.items():
        if operator != "matmul":
            made[f"__i{operator}__"] = _operator(name)
    return made


def _method(name: str, op: OpDef) -> Callable[..., Any]:
    def apply(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...]) -> Any:
        return apply_in_place(name, op, inputs, params)

    method = compile_function(op, name, apply)
    method.__doc__ = _doc(op.name)
    return method


def _general_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    prepare = UPDATES.get(name.removesuffix("_"))

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        if prepare is not None and not self.dtype.is_complex:
            if self.is_contiguous:
                done = update_in_place(name, self, prepare(self, *args, **keywords))
            else:
                done = _update_in_memory_order(name, prepare, self, args, keywords)
            if done:
                return self
        return function_in_place(name, function, self, *args, **keywords)

    method.__name__ = name
    method.__doc__ = _doc(name.removesuffix("_"))
    return method if prepare is None else names_range_errors(method)


def _reshaping_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        from polyhal.tape.reshape import reshape_in_place

        return reshape_in_place(name, self, lambda x: function(x, *args, **keywords))

    method.__name__ = name
    method.__doc__ = (
        f"Become the view of the same memory that `{name.removesuffix('_')}` returns.\n\n"
        "Raises AutogradError for leaves that require gradients, and CaptureError in a captured step."
    )
    return method


def _update_in_memory_order(
    name: str, prepare: Prepare, x: Tensor, args: Sequence[Any], keywords: Mapping[str, Any]
) -> bool:
    """Update a tensor that is contiguous but for the order of its axes. Returns False where that is not possible.

    The axes of the tensor and of the arguments that have as many are put in the order of its memory.
    """
    axis = args[0] if args else keywords.get("axis", keywords.get("dim"))
    if not isinstance(axis, int) or not is_dense(x.shape, x.strides):
        return False
    order = axis_order(x.shape, x.strides)

    def moved(value: Tensor | float) -> Any:
        return FUNCTIONS["permute"](value, order) if hasattr(value, "ref") and value.ndim == x.ndim else value

    others = {k: moved(v) for k, v in keywords.items() if k not in ("axis", "dim")}
    place = order.index(normalize_axis(axis, x.ndim))
    try:
        update = prepare(moved(x), place, *[moved(v) for v in args[1:]], **others)
    except ShapeError:  # which the function raises again, with the axes as they were passed
        return False
    return update_in_place(name, x, update)


def _operator(name: str) -> Callable[..., Any]:
    function = FUNCTIONS[name]
    op: OpDef | None = getattr(function, "op", None)

    def operator(self: Any, other: Tensor | complex | float) -> Any:
        if op is None or op.schema.params:
            return function_in_place(f"{name}_", function, self, other)
        return apply_in_place(f"{name}_", op, (self, other), ())

    return operator


def _doc(name: str) -> str:
    return f"Replace the elements by those of `{name}`, cast to the tensor's dtype. Returns the tensor."


IN_PLACE: dict[str, Callable[..., Any]] = _methods()
"""The methods and operators by name."""

for _name, _function in IN_PLACE.items():
    setattr(InPlaceOps, _name, _function)
