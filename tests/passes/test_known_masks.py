"""Masks of attention that are known before a step runs become `causal=True`, and results do not change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.compile.passes.simplify.attention_masks import recognize_masks
from polyhal.hal.compile.recording import Recording
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import FUNCTIONS

Mask = Callable[[int, int, Tensor], Tensor]
"""Makes a mask for queries and keys; the tensor is an input of the step, of bools for each key of two batches."""
Effect = tuple[bool, bool]
"""True if the mask is read, and the parameter `causal`."""
UNCHANGED, NO_MASK, CAUSAL, BOTH = (True, False), (False, False), (False, True), (True, True)
_LOWEST = float(np.finfo(np.float32).min)


def _calls(
    mask: Mask, queries: int, keys: int, device: Device
) -> tuple[list[Effect], list[np.ndarray], list[np.ndarray]]:
    """Record attention and its gradient. Returns the effect of the pass on each, and the results of both, before and after."""
    rng = np.random.default_rng(0)
    q, k, v, g = (
        ph.tensor(rng.standard_normal((2, 3, n, 8), np.float32), device=device) for n in (queries, keys, keys, queries)
    )
    padding = ph.tensor(np.arange(2 * keys).reshape(2, 1, 1, keys) % 7 != 2, device=device)

    def run(q: Tensor, k: Tensor, v: Tensor, g: Tensor, padding: Tensor) -> list[Tensor]:
        made = mask(queries, keys, padding)
        out, lse = FUNCTIONS["attention"](q, k, v, made, False, None)
        return [out, lse, *FUNCTIONS["attention_grad"](g, q, k, v, made, out, lse, False, None)]

    eager = [x.numpy() for x in run(q, k, v, g, padding)]
    with Recording() as recording:
        for x in (q, k, v, g, padding):
            recording.argument(x)
        recording.results(run(q, k, v, g, padding))
    graph = recognize_masks(recording.finish().graph)
    found = [n for n in graph.nodes if n.op.family == "attention"]
    effects = [(n.inputs[n.op.schema.inputs.index("mask")] is not None, n.bound["causal"]) for n in found]
    return effects, eager, [x.numpy() for x in recording.program().run([q, k, v, g, padding])]


def _sees(first: int) -> Mask:
    """Return a comparison of ranges, in which query 0 sees the keys up to `first`."""

    def mask(queries: int, keys: int, padding: Tensor) -> Tensor:
        positions = ph.arange(queries) + first
        return (ph.arange(keys).reshape(1, 1, 1, keys) <= positions.reshape(1, 1, queries, 1)).expand(
            2, 1, queries, keys
        )

    return mask


def _added(number: float) -> Mask:
    return lambda queries, keys, padding: ph.full((queries, keys), number).triu(keys - queries + 1)


def _selected(number: float) -> Mask:
    def mask(queries: int, keys: int, padding: Tensor) -> Tensor:
        return ph.where(_sees(keys - queries)(queries, keys, padding), 0.0, number)

    return mask


def _window(queries: int, keys: int, padding: Tensor) -> Tensor:
    return _sees(0)(queries, keys, padding) & (ph.arange(keys) > ph.arange(queries).reshape(-1, 1) - 3)


def _padded(queries: int, keys: int, padding: Tensor) -> Tensor:
    return _sees(0)(queries, keys, padding) & padding


def _padded_with_ones(queries: int, keys: int, padding: Tensor) -> Tensor:
    return _sees(0)(queries, keys, padding) & ph.ones(2, 1, 1, keys, dtype=ph.bool_)


def _padded_transposed(queries: int, keys: int, padding: Tensor) -> Tensor:
    return _sees(0)(queries, keys, padding).transpose(-1, -2) & padding


def _biased(number: float, condition: Mask) -> Mask:
    return lambda queries, keys, padding: ph.where(condition(queries, keys, padding), padding.cast(ph.float32), number)


def _either(queries: int, keys: int, padding: Tensor) -> Tensor:
    return _sees(0)(queries, keys, padding) | padding


CASES: dict[str, tuple[Mask, int, int, Effect]] = {
    "compared": (_sees(0), 5, 5, CAUSAL),
    "tril": (lambda t, s, _: ph.ones(t, s, dtype=ph.bool_).tril(), 5, 5, CAUSAL),
    "after cached keys": (_sees(4), 3, 7, CAUSAL),
    "first queries, first keys": (_sees(0), 3, 7, BOTH),
    "one key too many": (_sees(5), 3, 7, UNCHANGED),
    "queries before all keys": (_sees(-4), 7, 3, CAUSAL),
    "more queries, first keys": (_sees(0), 7, 3, UNCHANGED),
    "a query that sees all keys": (_sees(6), 1, 7, NO_MASK),
    "a query that sees some keys": (_sees(3), 1, 7, UNCHANGED),
    "queries that see all keys": (_sees(9), 3, 7, NO_MASK),
    "all keys": (lambda t, s, _: ph.ones(2, 1, 1, s, dtype=ph.bool_), 4, 6, NO_MASK),
    "added -inf": (_added(-math.inf), 5, 5, CAUSAL),
    "added lowest number": (_selected(_LOWEST), 5, 5, CAUSAL),
    "added large number": (_selected(-1e4), 5, 5, UNCHANGED),
    "added NaN": (_added(math.nan), 5, 5, UNCHANGED),
    "added 0": (_added(0.0), 5, 5, NO_MASK),
    # Added to all scores of a query, the lowest number makes them equal.
    "added lowest number before all keys": (_selected(_LOWEST), 6, 5, UNCHANGED),
    "window": (_window, 6, 6, BOTH),
    "with padding": (_padded, 6, 6, BOTH),
    "with padding of ones": (_padded_with_ones, 6, 6, CAUSAL),
    "transposed, with padding": (_padded_transposed, 6, 6, UNCHANGED),
    "padding or causal": (_either, 6, 6, UNCHANGED),
    "padding": (lambda t, s, padding: padding, 6, 6, UNCHANGED),
    "bias": (_biased(-math.inf, _padded), 6, 6, BOTH),
    "rounded bias": (lambda t, s, p: _biased(-math.inf, _padded)(t, s, p).cast(ph.float16), 6, 6, BOTH),
    "padding as numbers": (lambda t, s, p: _padded(t, s, p).cast(ph.float32), 6, 6, UNCHANGED),
    "bias of all causal pairs": (_biased(_LOWEST, _sees(0)), 6, 6, BOTH),
    # The lowest number hides nothing from a query whose visible keys are all padding.
    "bias, with padding": (_biased(_LOWEST, _padded), 6, 6, UNCHANGED),
    "bias, other pairs by a small number": (_biased(-5.0, _sees(0)), 6, 6, UNCHANGED),
}


@contextmanager
def _default(device: Device) -> Iterator[Device]:
    previous = ph.get_default_device()
    ph.set_default_device(device)
    try:
        yield device
    finally:
        ph.set_default_device(previous)


def _check(name: str, device: Device) -> None:
    mask, queries, keys, expected = CASES[name]
    effects, eager, captured = _calls(mask, queries, keys, device)
    assert effects == [expected] * 2
    for before, after in zip(eager, captured, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_known_mask(name: str) -> None:
    with _default(Device("numpy")) as device:
        _check(name, device)


def test_a_mask_that_is_repeated_for_a_large_batch() -> None:
    """Only its memory counts, which all sequences share."""

    def mask(queries: int, keys: int, padding: Tensor) -> Tensor:
        return _sees(0)(queries, keys, padding)[:1].expand(1 << 20, 2, 1, queries, keys)

    with _default(Device("numpy")), Recording() as recording:
        q = recording.placeholder(Device("numpy"), contiguous(ph.float32, (1 << 20, 2, 3, 32, 8)))
        out, _ = FUNCTIONS["attention"](q, q, q, mask(32, 32, q), False, None)
        recording.results([out])
        del out, _
    (node,) = (n for n in recognize_masks(recording.finish().graph).nodes if n.op.family == "attention")
    assert node.inputs[3] is None
    assert node.bound["causal"]


@pytest.mark.parametrize("name", ["after cached keys", "queries before all keys", "window", "with padding"])
def test_kernels_agree(device: Device, name: str) -> None:
    with _default(device):
        _check(name, device)
