"""Batching rules of all ops: a batch of calls equals the single calls, and so do its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.func import grad, vmap
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.samples import Sample

SIZE = 3
MOST_SAMPLES = 3
NOT_MAPPED = {"creation", "optimizer", "transfer", "random", "fused"}
"""Families without tensors, in place, or made by passes only."""
OPS_TO_MAP = [op.name for op in OPS if op.family not in NOT_MAPPED and op.tests.samples and not op.schema.mutates]


FIXED_INTEGERS = {
    "dequantize_blocks",
    "ldl_solution",
    "put_maxima",
    "quantized_matmul",
    "quantized_rows",
    "scatter_bags",
    "sum_bags",
}
"""Ops whose integers make sense in one order only."""


def _batch(op: str, value: Any, rng: np.random.Generator) -> np.ndarray:
    """A batch of inputs like a sample's: floats are moved a little, integers are shuffled."""
    if value.dtype.kind == "f":
        return np.stack([value * rng.uniform(0.9, 1.1) for _ in range(SIZE)])
    if op in FIXED_INTEGERS:
        return np.stack([value] * SIZE)
    return np.stack([rng.permutation(value.reshape(-1)).reshape(value.shape) for _ in range(SIZE)])


def _drawn(op: OpDef, most: int = MOST_SAMPLES) -> Iterator[tuple[Sample, tuple[Any, ...], tuple[int | None, ...]]]:
    """Samples in which all inputs, only the first, or only the last are batched."""
    assert op.tests.samples is not None
    rng = np.random.default_rng(0)
    for sample in list(op.tests.samples(np.random.default_rng(1)))[:most]:
        values = [np.asarray(v) if isinstance(v, (np.ndarray, np.generic)) else v for v in sample.inputs]
        tensors = [i for i, v in enumerate(values) if isinstance(v, np.ndarray)]
        half = any(values[i].dtype.kind not in "biu" and values[i].dtype != np.float64 for i in tensors)
        if sample.special or half or not tensors or not all(values[i].size for i in tensors):
            continue
        for chosen in {tuple(tensors), (tensors[0],), (tensors[-1],)}:
            inputs = tuple(
                ph.tensor(_batch(op.name, v, rng) if i in chosen else v, device="numpy") if i in tensors else v
                for i, v in enumerate(values)
            )
            yield sample, inputs, tuple(0 if i in chosen else None for i in range(len(values)))


def _element(x: Any, axis: int | None, i: int) -> Any:
    return x if axis is None else x[i]


@pytest.mark.parametrize("name", OPS_TO_MAP)
def test_a_batch_is_its_calls_one_by_one(name: str) -> None:
    op = OPS[name]
    for sample, inputs, axes in _drawn(op):
        params = {**op.schema.params, **sample.params}

        def call(*values: Any, params: dict[str, Any] = params) -> Any:
            return op.call(values, **params) if op.schema.variadic else op.call(*values, **params)

        mapped = vmap(call, axes)(*inputs)
        results = mapped if isinstance(mapped, tuple) else (mapped,)
        for i in range(SIZE):
            single = call(*(_element(x, a, i) for x, a in zip(inputs, axes, strict=True)))
            for got, expected in zip(results, single if isinstance(single, tuple) else (single,), strict=True):
                assert got.dtype is expected.dtype
                # Both run in float64; a sum in another order may differ in the last bits of some terms.
                np.testing.assert_allclose(got[i].numpy(), expected.numpy(), rtol=1e-12, atol=1e-12, err_msg=str(axes))


@pytest.mark.parametrize("name", [n for n in OPS_TO_MAP if OPS[n].batching])
def test_rules_take_values_that_are_traced(name: str) -> None:
    """Passes over captured graphs apply them to values without memory: the results have the shapes and dtypes of tensors'."""
    op = OPS[name]
    assert op.batching is not None
    for sample, inputs, axes in _drawn(op, most=1):
        params, batched = {**op.schema.params, **sample.params}, tuple(a == 0 for a in axes)
        expected = op.batching(BatchedCall(op, inputs, batched, SIZE, params))

        def rule(
            *symbols: Any, op: OpDef = op, inputs: Any = inputs, batched: Any = batched, params: Any = params
        ) -> Any:
            values = tuple(s if isinstance(x, ph.Tensor) else x for s, x in zip(symbols, inputs, strict=True))
            assert op.batching is not None
            return op.batching(BatchedCall(op, values, batched, SIZE, params))

        if expected is NotImplemented:
            continue
        specs = [contiguous(x.dtype, x.shape) if isinstance(x, ph.Tensor) else None for x in inputs]
        graph = trace(rule, specs, {})
        results = expected if isinstance(expected, tuple) else (expected,)
        assert [(graph.specs[i].dtype, graph.specs[i].shape) for i in graph.outputs] == [
            (r.dtype, r.shape) for r in results
        ]


@pytest.mark.parametrize("name", [n for n in OPS_TO_MAP if OPS[n].gradient or OPS[n].decompose])
def test_gradients_of_a_batch_are_those_of_its_calls(name: str) -> None:
    op = OPS[name]
    for sample, inputs, axes in _drawn(op, most=1):
        if not sample.differentiable or axes[0] is None or not inputs[0].dtype.is_floating_point:
            continue
        params = {**op.schema.params, **sample.params}

        def total(first: Any, *others: Any, params: dict[str, Any] = params) -> Any:
            values = (first, *others)
            result = op.call(values, **params) if op.schema.variadic else op.call(*values, **params)
            results = result if isinstance(result, tuple) else (result,)
            floats = [(r * r).sum() for r in results if r.dtype.is_floating_point]
            return sum(floats[1:], floats[0]) if floats else first.sum()

        mapped = vmap(grad(total), axes)(*inputs)
        for i in range(SIZE):
            single = grad(total)(*(_element(x, a, i) for x, a in zip(inputs, axes, strict=True)))
            np.testing.assert_allclose(mapped[i].numpy(), single.numpy(), rtol=1e-10, atol=1e-10, err_msg=str(axes))
