"""Collectives among one to eight devices of several backends, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from groups import MIXED, groups
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.core.transfers import staged_chunk
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError, DeviceMismatchError, ShapeError, UnsupportedDTypeError
from polyhal.hal.system.communicators import direct, relay
from polyhal.parallel import Group

PAIR = ["numpy", "numpy:no_f64"]
DTYPES = [ph.float32, ph.bfloat16, ph.float16, ph.int32, ph.int64, ph.uint8]
REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use chunks of a few elements, so that small tensors have many chunks, which are written in both ways."""
    monkeypatch.setattr(relay, "CHUNK", 64)
    monkeypatch.setattr(direct, "CHUNK", 64)
    monkeypatch.setattr(staged_chunk, "SMALL", 40)


def stored(names: list[str], dtype: ph.DType) -> bool:
    return all(dtype in Device(n).capabilities.storage for n in names)


def arrays(rng: np.random.Generator, dtype: ph.DType, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    if dtype.is_floating_point:
        return [rng.standard_normal(s).astype(dtype.numpy) for s in shapes]
    return [rng.integers(0, 100, s).astype(dtype.numpy) for s in shapes]


def tensors(values: list[np.ndarray], names: list[str], dtype: ph.DType) -> list[ph.Tensor]:
    return [ph.tensor(v, dtype=dtype, device=n) for v, n in zip(values, names, strict=True)]


def assert_equal(got: ph.Tensor, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.array_equal(got.numpy(), expected)


def reduced(values: list[np.ndarray], op: str) -> np.ndarray:
    """Combine the values one after the other, each sum rounded to their dtype."""
    total = values[0]
    for value in values[1:]:
        total = REDUCTIONS[op](total, value)
    return total


@given(groups(), st.sampled_from(DTYPES), st.sampled_from(list(REDUCTIONS)), st.integers(0, 2**32), st.data())
@settings(max_examples=20, deadline=None)
def test_every_collective_equals_numpy(
    names: list[str], dtype: ph.DType, op: str, seed: int, data: st.DataObject
) -> None:
    if not stored(names, dtype):
        dtype = ph.float32
    group, rng, n = Group(names), np.random.default_rng(seed), len(names)
    root = data.draw(st.integers(0, n - 1))
    shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))
    axis = data.draw(st.integers(0, len(shape) - 1))
    values = arrays(rng, dtype, [shape] * n)
    xs = tensors(values, names, dtype)
    total = reduced(values, op)
    for got in group.all_reduce(xs, op):
        assert_equal(got, total)
    one = group.reduce(xs, root, op)
    assert one is not None
    assert one.device is group.devices[root]
    assert_equal(one, total)
    for got in group.broadcast(xs[root], root):
        assert_equal(got, values[root])
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), min_size=n - 1, max_size=n - 1)))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    for kind, parts, whole in (
        ("reduce_scatter", group.reduce_scatter(xs, op, sizes, axis), total),
        ("scatter", group.scatter(xs[root], root, sizes, axis), values[root]),
    ):
        for got, expected in zip(parts, np.split(whole, cuts, axis), strict=True):
            assert_equal(got, expected)
        assert [p.device for p in parts] == list(group.devices), kind
        pieces = group.gather(parts, root, axis)
        assert pieces is not None
        assert_equal(pieces, whole)
        for got in group.all_gather(parts, axis):
            assert_equal(got, whole)
    for x, value in zip(xs, values, strict=True):
        assert_equal(x, value)


@given(groups(4), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_a_captured_collective_is_bit_identical(names: list[str], seed: int) -> None:
    group, rng = Group(names), np.random.default_rng(seed)

    def combine(xs: list[ph.Tensor]) -> list[ph.Tensor]:
        means = group.all_reduce([x * 3 for x in xs], "mean")
        return group.reduce_scatter([m + 1 for m in means])

    step = ph.jit(combine)
    for _ in range(4):
        xs = tensors(arrays(rng, ph.float32, [(7, 5)] * len(names)), names, ph.float32)
        for eager, captured in zip(combine(xs), step(xs), strict=True):
            assert_equal(captured, eager.numpy())
    assert len(step.graphs) == 1


@pytest.mark.parametrize(
    "name", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "scatter", "gather", "reduce"]
)
def test_gradients(name: str) -> None:
    """Compare the gradient of sum(w_i * y_i) over all results y_i to the one computed by NumPy."""
    rng, n = np.random.default_rng(1), 3
    names, group = MIXED[:n], Group(MIXED[:n])
    values = arrays(rng, ph.float32, [(6, 2)] * n)
    weights = arrays(rng, ph.float32, [(6 * n, 2)] * n)
    xs = [x.requires_grad_() for x in tensors(values, names, ph.float32)]
    call: Any = getattr(group, name)
    results = call(xs[0] if name in ("broadcast", "scatter") else xs)
    results = results if isinstance(results, list) else [results]
    used = [w[: y.shape[0]] for w, y in zip(weights, results, strict=False)]
    loss = sum((y * ph.tensor(w, device=y.device)).sum().to("numpy") for y, w in zip(results, used, strict=True))
    loss.backward()  # type: ignore[union-attr]
    if name in ("all_reduce", "reduce"):
        expected = [sum(w.astype(np.float64) for w in used)] * n
    elif name == "reduce_scatter":
        expected = [np.concatenate(used)] * n
    elif name in ("all_gather", "gather"):
        expected = np.split(sum(w.astype(np.float64) for w in used), n)  # type: ignore[arg-type]
    elif name == "broadcast":
        expected = [sum(w.astype(np.float64) for w in used)]
    else:
        expected = [np.concatenate(used)]
    for x, e in zip(xs, expected, strict=False):
        assert x.grad is not None
        # At most n - 1 additions, each rounded to float32.
        bound = (n - 1) * 2.0**-24 * sum(np.abs(w).max() for w in used)
        np.testing.assert_allclose(x.grad.numpy(), e, rtol=0, atol=bound)


def test_complex_tensors_and_means() -> None:
    group = Group(PAIR)
    a, b = (ph.tensor([1 + 2j, 3j], device=d) for d in PAIR)
    assert [x.tolist() for x in group.all_reduce([a, b])] == [[2 + 4j, 6j]] * 2
    c, d = (ph.tensor([v, 4.0], device=name) for v, name in zip((1.0, 2.0), PAIR, strict=True))
    assert [x.tolist() for x in group.all_reduce([c, d], "mean")] == [[1.5, 4.0]] * 2


def test_the_result_depends_only_on_the_order_of_the_participants() -> None:
    """Sums of float32 depend on their order: it is the order of the participants, on whichever device the sum is computed."""
    values = [np.full(40, v, np.float32) for v in (1.0, 2.0**24, -(2.0**24))]
    for names in (MIXED[:3], MIXED[2::-1]):
        group = Group(names)
        for got in group.all_reduce(tensors(values, names, ph.float32)):
            assert_equal(got, np.zeros(40, np.float32))


def test_wrong_calls_say_what_is_wrong() -> None:
    group = Group(PAIR)
    a, b = (ph.ones((2, 3), device=d) for d in PAIR)
    with pytest.raises(ShapeError, match=r"got 1 tensors; expected 2, one per device of group of numpy\+numpy:no_f64"):
        group.all_reduce([a])
    with pytest.raises(ShapeError, match=r"got shapes \[\(2, 3\), \(3, 2\)\]"):
        group.all_reduce([a, b.T])
    with pytest.raises(
        DeviceMismatchError, match="the tensor of device 1 is on numpy; expected a tensor on numpy:no_f64"
    ):
        group.all_reduce([a, a])
    with pytest.raises(ValueError, match="unknown reduction 'product'; expected one of sum, max, min"):
        group.all_reduce([a, b], "product")
    with pytest.raises(UnsupportedDTypeError, match="the mean of int64 tensors"):
        group.all_reduce([a.long(), b.long()], "mean")
    with pytest.raises(ShapeError, match=r"sizes are \[1, 2\]; expected 2 sizes that add up to 2"):
        group.scatter(a, sizes=[1, 2])
    with pytest.raises(ValueError, match="root is 2; expected a device number from 0 to 1"):
        group.broadcast(a, 2)
    with pytest.raises(ValueError, match="numpy occurs twice, as numpy; expected each device once"):
        Group(["numpy", "numpy"])
    with pytest.raises(AutogradError, match="the gradient of a max over devices"):
        group.all_reduce([a.requires_grad_(), b], "max")[0].sum().backward()
