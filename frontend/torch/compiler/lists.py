"""Ops over lists of tensors in compiled optimizers: one op per element of the list, which programs fuse again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.torch.compiler.functional import FUNCTIONAL
from polyhal.torch.registration import TABLE, UnsupportedArgumentsError
from polyhal.torch.table.operands import is_tensor

if TYPE_CHECKING:
    from polyhal.torch.call_types import Keywords

_PREFIX = "_foreach_"
_RENAMED = {"norm": "linalg_vector_norm", "zero": "zeros_like"}


def list_function(name: str) -> Callable[..., list[Any]] | None:
    """Return the function of an overload such as `_foreach_add.Scalar`; None for other names and without a single-tensor op."""
    packet = name.partition(".")[0]
    if not packet.startswith(_PREFIX):
        return None
    op = packet.removeprefix(_PREFIX)
    op = _RENAMED.get(op, op)
    known = any(
        f"{op}.{which}" in table for table in (TABLE, FUNCTIONAL) for which in ("default", "Tensor", "Tensor_Tensor")
    )
    return partial(_each, op) if known else None


def _each(op: str, *args: Any, **kwargs: Any) -> list[Any]:
    """Apply the op at each index of the lists among the arguments."""
    count = next(len(x) for x in args if isinstance(x, list))
    return [_single(op, [x[i] if isinstance(x, list) else x for x in args], kwargs) for i in range(count)]


def _single(op: str, args: list[Any], kwargs: Keywords) -> Any:
    for which in _overloads(args):
        name = f"{op}.{which}"
        if name in TABLE:
            return TABLE[name].function(*args, **kwargs)
        if name in FUNCTIONAL:
            return FUNCTIONAL[name](*args, **kwargs)
    raise UnsupportedArgumentsError(f"no form of {op} takes these arguments")


def _overloads(args: list[Any]) -> tuple[str, ...]:
    """Return names of overloads that may take the arguments, starting with overloads of ATen's binary ops."""
    if len(args) != 2:
        return ("default", "Scalar", "Tensor")
    if not is_tensor(args[0]):
        return ("Scalar",)
    return (
        ("Tensor", "Tensor_Tensor", "default")
        if is_tensor(args[1])
        else ("Scalar", "Tensor_Scalar", "Tensor", "default")
    )
