"""Losses of connectionist temporal classification: a forward recursion over time steps in logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat, pad
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.pointwise.logic import equal, greater, less, logical_and, not_equal
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.tensor_like import Array, TensorLike

_NEVER = float("-inf")


def _ctc_losses(log_probs: Array, targets: Array, steps: Array, labels: Array, *, blank: int = 0) -> Any:
    """Negative log likelihood, in nats, of each of N label sequences, summed over its alignments with T time steps.

    `log_probs` (T, N, C), `targets` (N, S), whose first `labels` (N,) count, and `steps` (N,), how many time steps
    count. Infinity where the labels do not fit. Source: Graves et al., ICML 2006, equations 5 to 8.
    """
    log_probs, targets = np.asarray(log_probs, np.float64), np.asarray(targets)
    losses = [
        _np_loss(log_probs[: int(t), n], targets[n, : int(count)], blank)
        for n, (t, count) in enumerate(zip(np.asarray(steps), np.asarray(labels), strict=True))
    ]
    return np.array(losses, np.float64)


def _np_loss(log_probs: Array, labels: Array, blank: int) -> float:
    if not len(log_probs):
        return 0.0 if not len(labels) else np.inf
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    skips = np.zeros(len(states), bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    alpha = np.full(len(states), -np.inf)
    alpha[:2] = log_probs[0, states[:2]]
    for row in log_probs[1:]:
        once = np.concatenate(([-np.inf], alpha[:-1]))
        twice = np.where(skips, np.concatenate(([-np.inf, -np.inf], alpha))[: len(states)], -np.inf)
        alpha = np.logaddexp(np.logaddexp(alpha, once), twice) + row[states]
    return float(-np.logaddexp.reduce(alpha[-2:]))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    log_probs, targets, steps, labels = (tensor_at(specs, i) for i in range(4))
    if log_probs.ndim != 3 or targets.ndim != 2 or targets.shape[0] != log_probs.shape[1]:
        raise ValueError(f"log_probs {log_probs.shape} and targets {targets.shape}; expected (T, N, C) and (N, S)")
    if not log_probs.dtype.is_floating_point:
        raise TypeError(f"log_probs are {log_probs.dtype.name}; expected floats")
    for name, spec in (("targets", targets), ("steps", steps), ("labels", labels)):
        if not spec.dtype.is_integral:
            raise TypeError(f"{name} are {spec.dtype.name}; expected integers")
    if not steps.shape == labels.shape == targets.shape[:1]:
        raise ValueError(f"steps {steps.shape} and labels {labels.shape}; expected {targets.shape[:1]} each")
    if not 0 <= params["blank"] < log_probs.shape[2]:
        raise ValueError(f"blank is {params['blank']}; expected a class from 0 to {log_probs.shape[2] - 1}")
    return [(accumulator(log_probs.dtype), targets.shape[:1])]


def _states(targets: TensorLike, labels: TensorLike, blank: int) -> Any:
    """The labels with blanks between and around them, (N, 2 S + 1)."""
    batch, length = targets.shape
    used = less(reshape(arange(0, length, 1, labels.dtype), (1, length)), reshape(labels, (batch, 1)))
    kept = reshape(where(used, targets, blank), (batch, length, 1))
    pairs = reshape(pad(kept, ((0, 0), (0, 0), (1, 0)), blank), (batch, 2 * length))
    return pad(pairs, ((0, 0), (0, 1)), blank)


def _earlier(alpha: TensorLike, states: int) -> Any:
    """The value of the state so many states before."""
    batch, count = alpha.shape
    kept = max(count - states, 0)
    return pad(slice_(alpha, (0, 0), (batch, kept), (1, 1)), ((0, 0), (count - kept, 0)), _NEVER)


def _log_sum(*terms: Any) -> Any:
    """Logarithm of the sum of exponentials; without NaN, in the gradient either, where all terms are -inf."""
    top = terms[0]
    for term in terms[1:]:
        top = maximum(top, term)
    possible = greater(top, _NEVER)
    shift = where(possible, top, 0.0)
    total = exp(terms[0] - shift)
    for term in terms[1:]:
        total = total + exp(term - shift)
    return where(possible, log(where(possible, total, 1.0)) + shift, _NEVER)


def _decomposed(log_probs: Any, targets: TensorLike, steps: TensorLike, labels: TensorLike, *, blank: int) -> Any:
    length, batch, _ = log_probs.shape
    wide = accumulator(log_probs.dtype)
    states = _states(targets, labels, blank)
    count = states.shape[1]
    wanted = broadcast_to(reshape(states, (1, batch, count)), (length, batch, count))
    emitted = take_along_axis(log_probs.cast(dtype=wide), wanted, 2)
    before = pad(slice_(states, (0, 0), (batch, max(count - 2, 0)), (1, 1)), ((0, 0), (min(2, count), 0)), blank)
    skips = logical_and(not_equal(states, blank), not_equal(states, before))
    first = less(reshape(arange(0, count, 1, dtypes.int32), (1, count)), 2)
    begin = where(first, 0.0, _NEVER)
    alpha = broadcast_to(begin, (batch, count)).cast(dtype=wide)
    for t in range(length):
        row = reshape(slice_(emitted, (t, 0, 0), (1, batch, count), (1, 1, 1)), (batch, count))
        reached = alpha
        if t:
            reached = _log_sum(alpha, _earlier(alpha, 1), where(skips, _earlier(alpha, 2), _NEVER))
        alpha = where(greater(reshape(steps, (batch, 1)), t), reached + row, alpha)
    last = reshape(labels, (batch, 1)) * 2
    ends = concat([last, maximum(last - 1, 0)], 1)
    at_ends = take_along_axis(alpha, ends, 1)
    blank_end = slice_(at_ends, (0, 0), (batch, 1), (1, 1))
    label_end = where(equal(last, 0), _NEVER, slice_(at_ends, (0, 1), (batch, 1), (1, 1)))
    total = reshape(_log_sum(blank_end, label_end), (batch,))
    nothing = where(equal(labels, 0), 0.0, _NEVER)
    return -where(equal(steps, 0), nothing, total)


def _log_softmax(x: Array) -> Any:
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(
        length: int, targets: Any, steps: Sequence[int], labels: Sequence[int], blank: int = 0, **options: Any
    ) -> Sample:
        scores = rng.uniform(-2, 2, (length, len(targets), 5))
        return Sample(
            (_log_softmax(scores), np.array(targets), np.array(steps), np.array(labels)), {"blank": blank}, **options
        )

    return [
        case(6, [[1, 2, 2], [3, 1, 4]], [6, 4], [3, 2]),
        case(4, [[0, 1]], [4], [2], blank=4),
        case(3, [[1, 1], [2, 1]], [3, 1], [0, 1]),
        case(2, [[1, 1], [2, 3]], [2, 0], [2, 0], special=True, note="labels that do not fit, and no steps"),
    ]


def _terms(specs: Specs, params: Params) -> int:
    """Each time step adds a few rounded terms."""
    return 4 * tensor_at(specs, 0).shape[0]


ctc_losses = declare(
    _ctc_losses,
    name="ctc_losses",
    family="loss",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(4.0, floor=4.0, terms=_terms),
    autocast=Autocast.FLOAT32,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros((1, 1), int), np.ones(1, int), np.ones(1, int)),
            {},
            ValueError,
            "expected \\(T, N, C\\)",
        )
    ],
)
