"""Writes over the elements of a tensor, on the tape and off it: assignments, `op_` methods and operators such as `+=`.

There is one mechanism. Off the tape, an op writes its result over its operand (`dispatch.apply_into`). On the tape it does so
if its gradient needs nothing that the write destroys, and makes its result elsewhere otherwise; then the memory is overwritten.
In both cases the tensor is rebound to the result (frontend/tape/rebase.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.core.dispatch.operands import NUMBERS
from polyhal.hal.dtypes import to_complex
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.complex_numbers.rules import real
from polyhal.hal.ops.layout.window import overlaps
from polyhal.tape.rebase import History, base_of, rebase
from polyhal.tape.saved_copies import copy_saved
from polyhal.tape.tape import keeps_memory, position, record

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.indexing.table_updates import TableUpdate
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.tensor import Tensor

_broadcast_to, _copy = FUNCTIONS["broadcast_to"], FUNCTIONS["copy"]
_overlaps = lru_cache(4096)(overlaps)
_KINDS = ("bool", "uint", "int", "float", "complex")
"""Kinds of dtypes; a result may be written over a tensor of its own kind or a later one."""


def overwrite(x: Any, value: Any, method: str = "copy_") -> None:
    """Replace the elements of `x` by a number or a tensor, broadcast and cast."""
    if dispatch.is_complex(x) or dispatch.is_complex(value):
        _overwrite_parts(x, value, method)
        return
    is_tensor = hasattr(value, "ref")
    if not is_tensor:
        require_fit(method, value, x.dtype)
    if is_tensor and value.shape != x.shape:
        value = _broadcast_to(value, x.shape)
    _prepare(x, method)
    if not _on_tape(x, (value,)):
        dispatch.thread.executor.overwrite(x, value)
        return
    if is_tensor and value.buffer is x.buffer:
        value = _copy(value)  # before `base_of`: the gradient of the value passes the hooks of `x`
    base = base_of(x, method)
    dispatch.thread.executor.overwrite(x.detach(), value.detach() if is_tensor else value)
    rebase(x, base, value, is_result=False)


def _overwrite_parts(x: Tensor, value: Tensor | int, method: str) -> None:
    """Replace the elements where `x` or `value` is complex. Raises ShapeError for a real `x`."""
    if not x.dtype.is_complex:
        _check_kind(method, to_complex(x.dtype), x.dtype)
    overwrite(x.real, real(value), method)
    overwrite(x.imag, value.imag if dispatch.is_complex(value) else 0, method)


def apply_in_place(
    method: str, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], position: int = 0
) -> Tensor:
    """Replace the input at `position` by the result of `op`, which is cast to its dtype. Returns that input.

    Raises AutogradError for leaves that require gradients, and ShapeError for a result of another shape or of another kind,
    as a float for integers.
    """
    plain = _are_plain(inputs)
    if not plain:
        inputs, _ = dispatch.admitted(op, inputs, None)
    x: Tensor = inputs[position]

    def compute(old: Tensor) -> Any:
        return dispatch.apply(op, tuple(old if v is x else v for v in inputs), params)

    if dispatch.is_complex_call(() if plain else inputs, params):
        return function_in_place(method, compute, x)  # type: ignore[no-any-return]
    _prepare(x, method)
    others = (*inputs[:position], *inputs[position + 1 :])
    if not _on_tape(x, others):
        if not _fits(op, tuple(map(_detached, inputs)), params, x):
            _rebind(method, x, None, compute)
        return x
    base = base_of(x, method)
    written = x.detach()
    if _keeps_nothing(op, x, inputs) and _fits(op, tuple(map(_detached, inputs)), params, written):
        written.index = 0
        record(op, inputs, params, (written,))
        rebase(x, base, written, is_result=True)
        return x
    _rebind(method, x, base, compute)
    return x


def update_in_place(method: str, x: Tensor, update: TableUpdate | None) -> bool:
    """Update rows of `x` in its memory and touch no others. Returns False, without a change, where that is not possible."""
    if update is None:
        _check_writable(x, method)
        return True
    if update.table.buffer is not x.buffer:
        return False
    call = update.in_place()
    if call is None:
        return False
    op, inputs, params = call
    apply_in_place(method, op, inputs, params)
    return True


def function_in_place(method: str, function: Callable[..., Any], x: Tensor, *args: Any, **keywords: Any) -> Any:
    """Replace the elements of `x` by `function(x, ...)`, as `apply_in_place` does for one op."""
    if dispatch.is_complex(x):
        value = function(_copy(x), *args, **keywords)
        if value.shape != x.shape:
            raise ShapeError(message(method, f"the result has shape {value.shape}", expected=f"the target's {x.shape}"))
        overwrite(x, value, method)
        return x
    _prepare(x, method)
    _check_writable(x, method)
    _rebind(method, x, None, lambda old: function(old, *args, **keywords))
    return x


def _rebind(method: str, x: Tensor, base: History | None, compute: Callable[[Tensor], Any]) -> None:
    """Write a result that was made elsewhere over `x`. What its gradient keeps of `x` is kept as a copy."""
    old: Any = x
    if base is None and dispatch.thread.grad_enabled and x.requires_grad:
        base = base_of(x, method)
    if dispatch.thread.grad_enabled and (x.requires_grad or base is not None):
        old = _copy(x.detach())
        old.node, old.index, old.requires_grad = x.node, max(x.index, 0), x.requires_grad
    start = position()
    value = compute(old)
    if old is x and keeps_memory(value, x.buffer, start):  # the gradient of another operand needs the old elements
        value = compute(_copy(x))
    if value.shape != x.shape:
        raise ShapeError(message(method, f"the result has shape {value.shape}", expected=f"the target's {x.shape}"))
    _check_kind(method, value.dtype, x.dtype)
    if value.buffer is x.buffer:
        value = _copy(value)
    if not _on_tape(x, (value,)):
        dispatch.thread.executor.overwrite(x, value)
        return
    base = base_of(x, method) if base is None else base
    dispatch.thread.executor.overwrite(x.detach(), value.detach())
    rebase(x, base, value, is_result=True)


def _fits(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], target: Tensor) -> bool:
    """Write the result of an op over `target`, unless it has another shape or dtype."""
    try:
        dispatch.apply_into(op, inputs, params, (target,))
    except ShapeError:
        return False
    return True


def _are_plain(inputs: tuple[Any, ...]) -> bool:
    """Return whether all operands are real tensors of one device and Python numbers, as in most calls."""
    device = None
    for x in inputs:
        if hasattr(x, "ref"):
            if device is not None and x.device is not device:
                return False
            device = x.device
            if x.ref.spec.dtype.kind == "complex":
                return False
        elif type(x) not in NUMBERS:
            return False
    return device is not None


def _prepare(x: Tensor, method: str) -> None:
    """Copy saved values of the tape that are in the memory. Raises ShapeError if elements share memory."""
    copy_saved(x.buffer)
    spec = x.ref.spec
    if _overlaps(spec.shape, spec.strides):
        raise ShapeError(
            message(method, "elements of the tensor share memory, as after a broadcast", fix="change a clone of it")
        )


def _check_kind(method: str, result: DType, target: DType) -> None:
    if _KINDS.index(result.kind) > _KINDS.index(target.kind):
        raise ShapeError(
            message(
                method,
                f"the result is {result.name}",
                expected=f"the target's {target.name} or a dtype that fits it",
                fix="use an op that returns a new tensor",
            )
        )


def _on_tape(x: Tensor, values: tuple[Any, ...]) -> bool:
    return dispatch.thread.grad_enabled and (
        x.requires_grad or (x.dtype.kind == "float" and any(getattr(v, "requires_grad", False) for v in values))
    )


def _check_writable(x: Tensor, method: str) -> None:
    """Raise AutogradError for a leaf that requires gradients."""
    if dispatch.thread.grad_enabled and x.requires_grad:
        base_of(x, method)


def _keeps_nothing(op: OpDef, x: Tensor, inputs: tuple[Any, ...]) -> bool:
    """Return whether the tape keeps neither the result nor an input in the memory of `x`."""
    mask = sum(1 << i for i, v in enumerate(inputs) if getattr(v, "requires_grad", False))
    saved = None if op.gradient is None or op.schema.variadic else op.gradient.saved[mask]
    if saved is None or saved.outputs:
        return False
    return all(getattr(inputs[i], "buffer", None) is not x.buffer for _, i in saved.inputs)


def _detached(x: Any) -> Any:
    return x.detach() if getattr(x, "requires_grad", False) else x
