"""How rules for complex operands are attached to ops, and the rule of all ops that treat both parts equally."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.opdef import OpDef, OpFunction
from polyhal.hal.ops.tensor_like import Numeric, TensorLike

F = TypeVar("F", bound=Callable[..., Any])


def join(re: Numeric, im: Numeric) -> Any:
    """The complex tensor of two parts, broadcast to one shape and cast to one dtype; one of them may be a number."""
    return dispatch.frontend.join(re, im)


def real(x: TensorLike | complex | float) -> Any:
    """The real part of a complex tensor or number; others themselves."""
    return x.real if is_complex(x) else x


def imag(x: Any) -> Any:
    """The imaginary part of a tensor or number: zeros if it is real."""
    if is_complex(x):
        return x.imag
    return full(x.shape, 0, x.dtype, device=x.device) if hasattr(x, "ref") else 0


def complex_rule(*functions: OpFunction) -> Callable[[F], F]:
    """Have ops run by a function of their inputs and parameters where an input is complex."""

    def attach(rule: F) -> F:
        for function in functions:
            function.op.complex = rule
        return rule

    return attach


def by_parts(*functions: OpFunction, but: Collection[str] = ()) -> None:
    """Have ops run on the real parts and on the imaginary parts. Inputs named in `but` go to both as they are."""
    for function in functions:
        function.op.complex = _rule_by_parts(function.op, but)


def _rule_by_parts(op: OpDef, but: Collection[str]) -> Callable[..., Any]:
    names = op.schema.inputs

    def rule(*inputs: Any, **params: Any) -> Any:
        kept = [x is None or (not op.schema.variadic and names[i] in but) for i, x in enumerate(inputs)]
        parts = [tuple(x if keep else part(x) for x, keep in zip(inputs, kept, strict=True)) for part in (real, imag)]
        found = [dispatch.apply(op, part, tuple(params.values())) for part in parts]
        return tuple(map(join, *found)) if op.schema.returns_tuple else join(*found)

    return rule
