"""Random steps, run by polyhal and by NumPy in float64: elementwise ops, reductions, views, products, changes in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.device import Device

LENGTH = 4
STATE = (3, LENGTH)
Values = list[Any]
Instruction = tuple[int, int, int, int]
"""An op, its two operands among the values so far, and a choice specific to the op, as numbers. Each is taken modulo
the number of candidates."""

instructions = st.lists(st.tuples(*[st.integers(0, 999)] * 4), min_size=2, max_size=9)

_UNARY: Sequence[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = (
    (lambda x: -x, np.negative),
    (lambda x: x.abs(), np.abs),
    (lambda x: x.tanh(), np.tanh),
    (lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    (lambda x: x * 1.0, lambda x: x),
    (lambda x: x - 0.0, lambda x: x),
    (lambda x: (-x).abs(), np.abs),
    (lambda x: x / 4.0, lambda x: x / 4),
    (lambda x: x * 0.0, lambda x: x * 0),
    (lambda x: x + 0.0, lambda x: x + 0),
    (lambda x: x - x, lambda x: x - x),
    (lambda x: (x.square() + 1.0).sqrt(), lambda x: np.sqrt(x * x + 1)),
    (lambda x: (x.tanh()).exp(), lambda x: np.exp(np.tanh(x))),
)
_BINARY: Sequence[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = (
    (lambda x, y: x + y, np.add),
    (lambda x, y: x - y, np.subtract),
    (lambda x, y: (x * y).tanh(), lambda x, y: np.tanh(x * y)),
    (lambda x, y: x.maximum(y), np.maximum),
    (lambda x, y: x + ph.full((), 0.5, device=x.device), lambda x, y: x + 0.5),
    (lambda x, y: x + (-y), np.subtract),
)


def run(program: Sequence[Instruction], values: Values, state: Any, numpy: bool) -> Any:
    """Return the last two values of a program that starts from `values` and changes `state` on its way."""
    values = [*values, state * 1]
    for kind, first, second, choice in program:
        x, y = values[first % len(values)], values[second % len(values)]
        values.append(_step(kind % 8, x, y, choice, state, numpy))
    return values[-1], values[-2]


def _step(kind: int, x: Any, y: Any, choice: int, state: Any, numpy: bool) -> Any:
    if kind <= 1:
        return _UNARY[choice % len(_UNARY)][numpy](x)
    if kind == 2:
        both = _fit(x.shape, y.shape)
        return _BINARY[choice % len(_BINARY)][numpy](x, y) if both else x
    if kind == 3:
        return _reduced(x, choice, numpy)
    if kind == 4:
        return _viewed(x, choice, numpy)
    if kind == 5:
        return _multiplied(x, y, choice, numpy)
    if kind == 6:
        _store(state, x, choice, numpy)
        return state * 1
    shifted = x - (x.max(axis=-1, keepdims=True) if x.ndim else x)
    e = np.exp(shifted) if numpy else shifted.exp()
    return e / (e.sum(axis=-1, keepdims=True) if x.ndim else e)


def _reduced(x: Any, choice: int, numpy: bool) -> Any:
    if not x.ndim:
        return x
    axis, keep = choice % x.ndim, choice % 3 == 0
    return [x.sum, x.mean, x.max][choice % 7 % 3](axis=axis, keepdims=keep)


def _viewed(x: Any, choice: int, numpy: bool) -> Any:
    which = choice % 5
    if which == 0 or not x.ndim:
        return x.reshape(-1)
    if which == 1:
        return x.reshape((*x.shape[:-1], 1, x.shape[-1]))
    if which == 2:
        return x.T if x.ndim == 2 else x
    if which == 3:
        return x[x.shape[0] // 2 :]
    return np.broadcast_to(x, (2, *x.shape)) if numpy else x.broadcast_to((2, *x.shape))


def _multiplied(x: Any, y: Any, choice: int, numpy: bool) -> Any:
    """Return a product with something after it that may become its epilogue."""
    if x.ndim != 2 or y.ndim != 2 or y.shape[1] != x.shape[1]:
        return x
    out = x @ y.T
    if choice % 3 == 0:
        return np.maximum(out * 0.5, 0) if numpy else (out * 0.5).relu()
    return (np.tanh(out) if numpy else out.tanh()) + out.max() if choice % 3 == 1 else out * 0.25


def _store(state: Any, x: Any, choice: int, numpy: bool) -> None:
    """Change the state in place, wholly or in part."""
    if choice % 3 == 0:
        state[1:] = 0.5
    elif choice % 3 == 1 and x.shape == STATE:
        if numpy:
            state += np.tanh(x)
        else:
            state.add_(x.tanh())
    elif x.shape[-1:] == (LENGTH,) and x.size == LENGTH:
        state[0] = np.tanh(x.reshape(-1)) if numpy else x.reshape(-1).tanh()
    elif numpy:
        state *= 0.5
    else:
        state.mul_(0.5)


def _fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m in (1, n) or n == 1 for m, n in zip(reversed(a), reversed(b), strict=False)) and len(a) + len(b) < 8


def inputs(call: int) -> list[np.ndarray]:
    """Return the inputs of the step at its call number `call`."""
    rng = np.random.default_rng(call)
    return [rng.uniform(-1, 1, s) for s in [(3, LENGTH), (LENGTH,), (2, 3, LENGTH)]]


def special() -> list[np.ndarray]:
    """Return inputs with values that careless rewrites lose: infinities, NaN, zeros of both signs, and the largest
    numbers."""
    found = inputs(9)
    for i, x in enumerate(found):
        flat = x.reshape(-1)
        flat[i:4] = [np.inf, -0.0, 0.0, -3e38][i:]
        flat[-1 - i] = [np.nan, -np.inf, -0.0][i]
    return found


def tensors(arrays: Sequence[np.ndarray], device: Device) -> list[Any]:
    """Return arrays as float32 tensors."""
    return [ph.Tensor(a.astype(np.float32), device=device) for a in arrays]
