"""Copies of slices of a value alias the slices, unless that would change results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.compile.scheduler.buffers import assign_buffers
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.system.discovery.registry import registry

from .worker_devices import executable_of

_copies: Callable[[Sequence[ph.Tensor]], tuple[ph.Tensor, ...]] = FUNCTIONS["copies"]
_LENGTH = 256


@pytest.fixture(scope="module")
def device() -> Device:
    """Return a device with a kernel for many copies and with suballocation."""
    if not registry().probe("opencl"):
        pytest.skip("no OpenCL device")
    return Device("opencl")


def scaled(xs: Sequence[ph.Tensor], factor: Any) -> None:
    """Scale tensors in place, as gradients are clipped."""
    dispatch.apply_into(OPS["scale_all"], (*xs, factor), (), tuple(xs))


def copies_in(step: Any) -> int:
    """Return the number of copies that run."""
    executable = executable_of(step)
    calls = zip(executable.graph.nodes, executable.calls, strict=True)
    return sum(n.op.name in ("copy", "copies") for n, call in calls if call is not None)


def parts_of(v: ph.Tensor) -> list[ph.Tensor]:
    """Return copies of eight slices, which one kernel can compute."""
    return list(_copies([v[i : i + 32] for i in range(0, _LENGTH, 32)]))


def check(step: Callable[..., Sequence[ph.Tensor]], device: Device) -> int:
    """Compare a captured step with its eager run, several times. Returns the number of copies that run."""
    captured = ph.jit(step, warm_up=False)
    for n in range(4):
        x = ph.Tensor(np.arange(_LENGTH, dtype=np.float32) + n, device=device)
        half = ph.Tensor(np.float32(0.5), device=device)
        for got, wanted in zip(captured(x, half), step(x, half), strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    return copies_in(captured)


def test_copies_of_dead_values_are_aliased(device: Device) -> None:
    def step(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        parts = parts_of(x.exp() * 0 + x)
        scaled(parts, half)
        return [p * 2 for p in parts]

    assert not check(step, device)


def test_results_may_be_parts_of_one_value(device: Device) -> None:
    def step(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        parts = parts_of(x + 1)
        scaled(parts, half)
        return [*parts[:4], parts[4].reshape(4, 8)]

    assert not check(step, device)


def test_a_result_that_is_kept_keeps_its_value(device: Device) -> None:
    """The program may keep a slice of the last run while the next one runs."""

    @ph.jit(warm_up=False)
    def step(x: ph.Tensor) -> Sequence[ph.Tensor]:
        return parts_of(x * 3)

    kept = [step(ph.Tensor(np.full(_LENGTH, n, np.float32), device=device))[n] for n in range(5)]
    assert [k.tolist() for k in kept] == [[3 * n] * 32 for n in range(5)]
    assert not copies_in(step)


@pytest.mark.parametrize("read", ["whole", "part", "sum"])
def test_copies_of_values_that_are_read_later_run(device: Device, read: str) -> None:
    def step(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        v = x + 1
        parts = parts_of(v)
        scaled(parts, half)
        square = v.reshape(16, 16)
        return [*parts, {"whole": square @ square, "part": v[3:5] + parts[0][:2], "sum": v[100:].sum()}[read]]

    assert check(step, device)


def test_copies_of_inputs_and_of_overlapping_or_transposed_slices_run(device: Device) -> None:
    def of_input(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        parts = parts_of(x)
        scaled(parts, half)
        return parts

    def overlapping(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        v = x + 1
        parts = list(_copies([v[i : i + 64] for i in range(0, 192, 32)]))
        scaled(parts[:3], half)
        return [p + 1 for p in parts]

    def transposed(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        v = (x + 1).reshape(32, 8)
        parts = list(_copies([v[:, i] for i in range(8)]))
        scaled(parts, half)
        return parts

    assert all(check(step, device) for step in (of_input, overlapping, transposed))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.lists(st.integers(0, _LENGTH // 16), min_size=4, max_size=9),
    program=st.lists(st.integers(0, 99), max_size=8),
)
def test_random_programs_on_parts(cuts: list[int], program: list[int], device: Device) -> None:
    """Slices are scaled in place, written to, added and returned, in any order. Cuts are at vector boundaries."""
    ends = sorted({0, _LENGTH, *[16 * cut for cut in cuts]})

    def step(x: ph.Tensor, half: ph.Tensor) -> Sequence[ph.Tensor]:
        v = x + 1
        parts = list(_copies([v[a:b] for a, b in itertools.pairwise(ends)]))
        sums = [half]
        for code in program:
            kind, i = code % 5, code // 5 % len(parts)
            if kind == 0:
                scaled(parts[: len(ends) - 1], half)
            elif kind == 1:
                parts[i].add_(1)
            elif kind == 2:
                parts[i] = parts[i] * 2
            elif kind == 3:
                sums.append(parts[i].sum())
            else:
                parts.append(parts[i][:3])
        return [*[p + 0 if n % 2 else p for n, p in enumerate(parts)], *[s + 0 for s in sums]]

    check(step, device)


def test_an_intermediate_result_leaves_memory_to_an_update_by_the_same_kernel(device: Device) -> None:
    """A group of ops on each of four vectors computes the roots, which cumulative sums read, and the new vectors."""
    xs = [ph.Tensor(np.arange(1, n, dtype=np.float32), device=device) for n in range(40, 44)]
    wanted = [x.numpy() for x in xs]

    def step() -> list[ph.Tensor]:
        roots = [x.sqrt() for x in xs]
        for x, root in zip(xs, roots, strict=True):
            x.mul_(root)
        return [root.cumsum(0) for root in roots]

    captured = ph.jit(step, warm_up=False)
    for _ in range(3):
        sums = captured()
        for got, x in zip(sums, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), np.sqrt(x).cumsum(), rtol=1e-6)
        wanted = [x * np.sqrt(x) for x in wanted]
    for x, y in zip(xs, wanted, strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-6)
    assert "foreach_elementwise" in str(captured.explain())
    assert not assign_buffers(executable_of(captured).graph, lambda value: None).copies
