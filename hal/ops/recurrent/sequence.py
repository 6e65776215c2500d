"""Common parts of the recurrent ops: the order of time steps, rows of a sequence, states before each step, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Params, Specs, tensor_at
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import less


def time_order(length: int, reverse: bool) -> Sequence[int]:
    """The time steps in the order in which the layer computes them."""
    return range(length - 1, -1, -1) if reverse else range(length)


def step_of(x: Any, t: int) -> Any:
    """`x[t]`, a view."""
    rest = x.shape[1:]
    part = slice_(x, (t, *(0,) * len(rest)), (1, *rest), (1,) * x.ndim)
    return reshape(part, rest)


def stacked(steps: dict[int, Any]) -> Any:
    """The results of all time steps as one tensor, in the order of time."""
    return concat([reshape(steps[t], (1, *steps[t].shape)) for t in sorted(steps)], 0)


def states_before(first: Any, states: Any, reverse: bool) -> Any:
    """The state that each time step starts from: `first` (B, H), then `states` (T, B, H) without the last computed."""
    length, *rest = states.shape
    start = reshape(first, (1, *rest))
    if length == 1:
        return start
    others = slice_(states, (int(reverse), 0, 0), (length - 1, *rest), (1, 1, 1))
    return concat([others, start] if reverse else [start, others], 0)


def np_states_before(first: Any, states: Any, reverse: bool) -> Any:
    """`states_before` in NumPy."""
    return np.concatenate([states[1:], first[None]] if reverse else [first[None], states[:-1]])


def rows(x: Any) -> Any:
    """(T, B, width) as (T * B, width)."""
    return reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))


def parts(x: Any, count: int) -> list[Any]:
    """`count` equal parts along the last axis. Views."""
    lead, width = x.shape[:-1], x.shape[-1] // count
    return [slice_(x, (*(0,) * len(lead), i * width), (*lead, width), (1,) * x.ndim) for i in range(count)]


def np_sigmoid(x: Any) -> Any:
    """Logistic function, without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * np.asarray(x))


def steps_in_use(lengths: Any, length: int) -> Any:
    """Which steps of each sequence count: bool (T, B, 1); None without `lengths`."""
    if lengths is None:
        return None
    times = reshape(arange(0, length, 1, lengths.dtype), (length, 1, 1))
    return less(times, reshape(lengths, (1, lengths.shape[0], 1)))


def np_steps_in_use(lengths: Any, length: int, batch: int) -> Any:
    """`steps_in_use` in NumPy; all of them without `lengths`."""
    ends = np.full(batch, length) if lengths is None else np.asarray(lengths)
    return (np.arange(length)[:, None] < ends)[:, :, None]


def check_sequence(specs: Specs, gates: int, states: Sequence[int]) -> tuple[int, int, int]:
    """Check input, recurrent weight and initial states, which lie at `states`; returns length, batch and hidden size.

    The first input is (T, B, gates * H), T > 0, the second (gates * H, width of the state that is fed back). Raises
    ValueError and TypeError.
    """
    x, weight, hidden = tensor_at(specs, 0), tensor_at(specs, 1), tensor_at(specs, states[0])
    if x.ndim != 3 or x.shape[2] % gates or not x.shape[0]:
        raise ValueError(f"input {x.shape}; expected (T, B, {gates} * H) with at least one time step")
    length, batch, width = x.shape
    check("hidden state", hidden, (batch, hidden.shape[-1]))
    check("weight", weight, (width, hidden.shape[-1]))
    for spec in (x, weight, *(tensor_at(specs, i) for i in states)):
        if not spec.dtype.is_floating_point or spec.dtype is not x.dtype:
            raise TypeError(f"a tensor is {spec.dtype.name}, the input {x.dtype.name}; expected floats of one dtype")
    return length, batch, width // gates


def check(name: str, spec: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an optional input has this shape."""
    if spec is not None and spec.shape != shape:
        raise ValueError(f"{name} has shape {spec.shape}; expected {shape}")


def check_lengths(spec: Any, batch: int) -> None:
    """Raise ValueError or TypeError unless optional lengths are integers, one per sequence."""
    check("lengths", spec, (batch,))
    if spec is not None and not spec.dtype.is_integral:
        raise TypeError(f"lengths are {spec.dtype.name}; expected integers")


def terms(specs: Specs, params: Params) -> int:
    """An error of a step reaches all later ones, and each adds as many products as the state is wide."""
    given = [s for s in specs if isinstance(s, Spec)]
    length, batch, _ = next(s.shape for s in given if s.ndim == 3)
    width = next(s.shape[1] for s in given if s.ndim == 2)
    return length * max(width, batch)
