"""Calls of elementwise ops, as their declarations say: operands, dtypes, and the interval in which samples are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef

_PLACES = {"torch": torch, "F": torch.nn.functional, "torch.special": torch.special}
_OTHERWISE = {"equal": "torch.eq", "bitwise_invert": "torch.bitwise_not", "not_equal": "torch.ne"}
_NOT_HERE = frozenset({"nextafter", "where", "clip", "binary_cross_entropy", "threshold", "cast", "signbit"})
"""Neighbours of numbers are other ones in double precision; the others have rows in tables."""


def elementwise() -> tuple[Call, ...]:
    """Return a call for each elementwise op that PyTorch has under the same name."""
    made = []
    for op in OPS:
        name = _name(op.name)
        if op.family == "elementwise" and name and op.name not in _NOT_HERE:
            made.append(Call(name.rpartition(".")[2], _drawing(op, name)))
    return tuple(made)


def _name(op: str) -> str:
    if op in _OTHERWISE:
        return _OTHERWISE[op]
    return next((f"{place}.{op}" for place, module in _PLACES.items() if hasattr(module, op)), "")


def _drawing(op: OpDef, name: str) -> Callable[[Draw], str]:
    intervals = _intervals(op)
    integers = op.promotion in ("integral", "integer")
    arity = len(op.schema.inputs)
    differentiable = op.promotion != "float" or _is_differentiable(name, arity)

    def draw(d: Draw) -> str:
        if integers:
            x = d.tensor(_is_integer)
        elif op.promotion in ("any", "bool", "number", "numeric") and d.chance(0.3):
            x = d.tensor(
                lambda t: not t.is_complex() and (op.promotion in ("any", "bool") or t.dtype is not torch.bool)
            )
        else:
            x = d.floats()
        operands = [x, *(d.beside(x) for _ in range(arity - 1))]
        texts = [_within(d, v, interval) for v, interval in zip(operands, intervals, strict=True)]
        if not differentiable:
            texts = [f"({t}).detach()" if v.t.requires_grad else t for t, v in zip(texts, operands, strict=True)]
        if "polynomial" in op.name:
            texts[1] = str(d.rng.randrange(5))
        elif "shift" in op.name:
            texts[1] = str(d.rng.randrange(4))
        elif arity == 2 and op.promotion not in ("integer",) and d.chance(0.15) and op.name in _TAKE_NUMBERS:
            texts[1] = str(int(d.number()) or 2) if integers else str(d.number() or 2.0)
        return f"{name}({', '.join(texts)})"

    return draw


_TAKE_NUMBERS = frozenset(
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "remainder",
        "floor_divide",
        "fmod",
        "pow",
        "less",
        "greater",
        "equal",
        "not_equal",
        "xlogy",
    ]
)


def _is_differentiable(name: str, arity: int) -> bool:
    """Return whether PyTorch has gradients of an op, in all of its operands."""
    x = torch.full((1,), 0.5, requires_grad=True)
    try:
        function = eval(name, dict(_PLACES))
        gradient = torch.autograd.grad(function(*([x + 0.1] * arity)).sum(), x)
    except (RuntimeError, TypeError):
        return False
    return bool(torch.isfinite(gradient[0]).all())


def _is_integer(t: torch.Tensor) -> bool:
    return not t.is_floating_point() and not t.is_complex() and t.dtype is not torch.bool


def _intervals(op: OpDef) -> list[tuple[float, float]]:
    """Return the interval of each operand in the samples of an op."""
    samples = op.tests.samples
    drawn = [s for s in samples(np.random.default_rng(0)) if not s.special and not s.note] if samples else []
    found = []
    for position in range(len(op.schema.inputs)):
        arrays = [np.asarray(s.inputs[position], dtype=float) for s in drawn if np.size(s.inputs[position])]
        found.append((min(a.min() for a in arrays), max(a.max() for a in arrays)) if arrays else (-4.0, 4.0))
    return found


def _within(d: Draw, x: Var, interval: tuple[float, float]) -> str:
    """Bring an operand into an interval if values elsewhere would be NaN or infinite."""
    low, high = interval
    if not x.t.is_floating_point() or (low < -1.5 and high > 1.5) or d.chance(0.05):
        return x
    if low >= 0 and high <= 1:
        return f"torch.sigmoid({x})"
    if low < 0 and high < 1.5:
        return f"torch.tanh({x}) * {min(-low, high):.1f}"
    return f"torch.abs({x}) + {max(low, 0.1):.1f}"
