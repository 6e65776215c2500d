"""Captured graphs with views, in-place writes and shared memory agree with NumPy, whatever the buffer assignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.compile.scheduler.arena import round_up
from polyhal.hal.compile.scheduler.plan import StepPlan
from polyhal.hal.layout import Spec

DEVICES = ["numpy", "numpy:contiguous_only"]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "scale", "view", "transpose", "assign", "part", "fill", "sum", "matmul", "concat", "join", "drop"]
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=2,
    max_size=14,
)


def _apply(kind: str, a: Any, b: Any, concatenate: Callable[..., Any], copy: Callable[..., Any]) -> Any:
    """Run one step on 4 x 4 matrices of either library; returns None if it changes `a` in place."""
    if kind == "add":
        return a + b
    if kind == "scale":
        return a * 0.5
    if kind == "view":
        return a.reshape(2, 8).reshape(4, 4)
    if kind == "transpose":
        return a.T
    if kind == "sum":
        return a - a.sum(1)[:, None]
    if kind == "matmul":
        return (a @ b) * 0.25
    if kind == "concat":
        return concatenate((a[:2], b[2:]), 0)
    if kind == "join":
        return concatenate((a + b, a * 0.5), 0)[2:6]
    if kind == "fill":
        copy(a[1:3], None)
    elif kind == "part":
        copy(a[:2], b[2:])
    elif kind == "assign":
        copy(a, b)
    return None


def _numpy_copy(target: np.ndarray, value: np.ndarray | None) -> None:
    target[...] = 0.25 if value is None else value.copy()


def _tensor_copy(target: ph.Tensor, value: ph.Tensor | None) -> None:
    if value is None:
        target.fill_(0.25)
    else:
        target.copy_(value.clone())


def _run(steps: list[tuple[str, int, int]], state: list[Any], concatenate: Any, copy: Any) -> list[Any]:
    """Run all steps on a growing list of values. In-place changes apply to the state only."""
    values = list(state)
    for kind, i, j in steps:
        if kind == "drop" and len(values) > len(state) + 1:
            values.pop(len(state) + i % (len(values) - len(state)))
            continue
        in_place = kind in ("fill", "part", "assign")
        a, b = values[i % (len(state) if in_place else len(values))], values[j % len(values)]
        if kind != "drop":
            made = _apply(kind, a, b, concatenate, copy)
            if made is not None:
                values.append(made)
    return values[len(state) :]


def _check_locations(plan: StepPlan) -> None:
    """Check that no two allocations of an arena overlap while both are live."""
    for arena in plan.arenas.values():
        spots = list(zip(arena.intervals, arena.layout.locations, strict=True))
        for i, (need, (block, at)) in enumerate(spots):
            for other, (other_block, other_at) in spots[:i]:
                overlaps = need.first <= other.last and other.first <= need.last
                if overlaps and block == other_block:
                    assert at + need.nbytes <= other_at or other_at + other.nbytes <= at


@pytest.mark.parametrize("name", DEVICES)
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_random_steps_agree_with_numpy(name: str, steps: list[tuple[str, int, int]]) -> None:
    device = ph.Device(name)
    start = [np.random.default_rng(k).standard_normal((4, 4)) for k in range(2)]
    expected_state = [x.copy() for x in start]
    tensors = [ph.Tensor(x, device=device) for x in start]

    def step() -> list[ph.Tensor]:
        return _run(steps, tensors, ph.concat, _tensor_copy)

    jitted = ph.jit(step)
    for _ in range(4):
        copied = [x.copy() for x in expected_state]
        expected = [np.array(x) for x in _run(steps, copied, np.concatenate, _numpy_copy)]
        expected_state = copied
        found = jitted()
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-12, atol=1e-12)
        for x, y in zip(tensors, expected_state, strict=True):
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-12, atol=1e-12)
    for recorded in jitted.steps:
        _check_locations(recorded.executable.plan)


def test_results_that_the_program_keeps_are_not_overwritten() -> None:
    device = ph.Device("numpy")

    @ph.jit
    def double(x: ph.Tensor) -> ph.Tensor:
        return x * 2

    held = [double(ph.full((3,), float(k), device=device)) for k in range(6)]
    assert [x.numpy()[0] for x in held] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


@pytest.mark.parametrize("start", [0, 1])
def test_a_result_is_computed_in_place_only_with_the_alignment_that_kernels_assume(start: int) -> None:
    x = ph.arange(0, 33, dtype=ph.float32, device="numpy")
    part = x[start : start + 32]
    with ph.capture() as block:
        part.mul_(2.0)
    block.replay()
    want = np.arange(33, dtype=np.float32)
    want[start : start + 32] *= 4
    np.testing.assert_array_equal(x.numpy(), want)
    plan = block.recorded().executable.plan
    for value, found in enumerate(plan.buffers.slices):
        spec = plan.graph.specs[value]
        if found is not None and isinstance(spec, Spec):
            assert plan.buffers.allocations[found[0]].spec.aligned >= spec.aligned


def test_gradients_keep_their_memory_from_run_to_run() -> None:
    device = ph.Device("numpy")
    weight = ph.ones((64, 64), device=device).requires_grad_()

    @ph.jit
    def step(x: ph.Tensor) -> None:
        weight.grad = None
        (x @ weight).sum().backward()

    x = ph.ones((8, 64), device=device)
    for _ in range(4):
        step(x)
    used = device.memory_stats().used
    device.pool.reset_peak()
    step(x)
    assert device.memory_stats().peak == used


def test_blocks_keep_to_the_largest_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with a small maximum allocation has several blocks, and the same results."""
    from dataclasses import replace

    device = ph.Device("numpy")
    capabilities = device.backend.capabilities
    small = replace(capabilities, limits=replace(capabilities.limits, max_allocation=8192))
    monkeypatch.setattr(device.backend, "capabilities", small)

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        y = [ph.exp(x * float(k)) for k in range(6)]
        return y[0] @ y[1] + y[2] @ y[3] + y[4] @ y[5]

    x = ph.Tensor(np.random.default_rng(0).standard_normal((32, 32)), device=device)
    eager = step(x).numpy()
    np.testing.assert_array_equal(step(x).numpy(), eager)
    (arena,) = step.steps[0].executable.plan.arenas.values()
    assert len(arena.layout.blocks) > 1
    assert max(arena.layout.blocks) <= 8192


def test_blocks_are_not_shared_without_suballocation(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    device = ph.Device("numpy")
    monkeypatch.setattr(device.backend, "capabilities", replace(device.backend.capabilities, suballocation=False))

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        y = ph.exp(x)
        for k in range(5):
            y = ph.sin(y @ x) + float(k)
        return y.sum()

    x = ph.Tensor(np.random.default_rng(0).standard_normal((16, 16)), device=device)
    eager = step(x).numpy()
    np.testing.assert_array_equal(step(x).numpy(), eager)
    plan = step.steps[0].executable.plan
    (arena,) = plan.arenas.values()
    assert all(offset == 0 for _, offset in arena.layout.locations)
    assert 1 < len(arena.layout.blocks) < sum(isinstance(s, Spec) for s in plan.graph.specs)
    _check_locations(plan)


@pytest.mark.parametrize(
    ("limit", "budget", "shares"), [(0, None, True), (1 << 20, None, False), (1 << 20, 1 << 20, True)]
)
def test_small_steps_share_no_memory_where_launches_run_side_by_side(
    limit: int, budget: int | None, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    device = ph.Device("numpy")
    capabilities = device.backend.capabilities
    limits = replace(capabilities.limits, distinct_memory=limit)
    monkeypatch.setattr(device.backend, "capabilities", replace(capabilities, limits=limits))

    def chain(x: ph.Tensor) -> ph.Tensor:
        for _ in range(6):
            x = ph.sin(x @ x)
        return x.sum()

    step = ph.jit(chain, budget=budget)
    x = ph.Tensor(np.random.default_rng(0).standard_normal((32, 32)) / 6, device=device)
    for _ in range(3):
        result = step(x)
    np.testing.assert_array_equal(result.numpy(), chain(x).numpy())
    (arena,) = step.steps[0].executable.plan.arenas.values()
    total = sum(round_up(i.nbytes) for i in arena.intervals)
    assert (arena.layout.nbytes < total) == shares


def test_an_arena_is_split_if_memory_is_fragmented() -> None:
    """Every other block of a full device is free: 1.75 MiB in pieces of 256 KiB. Three values are live at a time."""
    device = ph.Device("sim:teaching,memory=4MiB")
    device.empty_cache()
    x = ph.ones((128, 256), device=device)
    taken = [device.pool.take_exactly(1 << 18) for _ in range(15 - device.pool.used // (1 << 18))]
    del taken[1::2]
    device.empty_cache()

    def step(x: ph.Tensor) -> ph.Tensor:
        a, b, c = x.cumsum(0), x.cumsum(1), x.sin()
        return (a.softmax(0) * b.softmax(1) + c).sum()

    result = ph.jit(step, warm_up=False)(x)
    expected = step(ph.ones((128, 256), device="numpy"))
    np.testing.assert_allclose(result.item(), expected.item(), rtol=1e-5)
    assert taken
