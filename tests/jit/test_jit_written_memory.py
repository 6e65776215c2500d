"""Differentiable in-place writes of captured functions to outside memory: values, gradients and aliases equal eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import Tensor

CALLS = 4
Outcome = list[list[float] | None]
Function = Callable[..., Any]


def _values(*tensors: Tensor | None) -> Outcome:
    return [None if x is None else np.asarray(x.detach().numpy()).reshape(-1).tolist() for x in tensors]


def view_of_an_argument(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Write to a view of an argument and return it."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        view = x.reshape((2, 3)) if x.shape != (2, 3) else x.reshape(x.shape)
        view.mul_(p.sum())
        return view, p * 2

    step, seen = transform(function), []
    for call in range(CALLS):
        h = x + call
        view, other = step(h)
        p.grad = None
        (view * view + other.sum()).sum().backward(retain_graph=True)
        seen += _values(p.grad)
        with ph.no_grad():
            h.add_(1)  # visible through the view
        seen += _values(view, h)
    return seen


def view_of_a_part(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Write to an argument that is a slice of a larger tensor with other views."""

    def function(x: Tensor) -> Tensor:
        view = x.view(x.shape)
        view.add_(p[0])
        return view

    step, seen = transform(function), []
    for call in range(CALLS):
        whole = (x + call).detach()
        part = whole[1:]
        view = step(part)
        p.grad = None
        (whole * 2 + view.sum() + part).sum().backward()
        seen += _values(p.grad, whole, view)
        with ph.no_grad():
            whole.zero_()
        seen += _values(view)
    return seen


def two_parts(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Write to two arguments that share a buffer."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        a.add_(p[0, 0])
        b.mul_(p[1])
        return a.sum() * 3

    step, seen = transform(function), []
    for call in range(CALLS):
        whole = (x + call).detach()
        first, second = whole[0], whole[1]
        total = step(first, second)
        p.grad = None
        (total + (first * second).sum() + (whole * whole).sum()).backward()
        seen += _values(p.grad, whole, first, second)
    return seen


def a_tensor_that_is_not_passed(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Write to a captured tensor that is detached after each call."""
    state = (x * 1).detach()

    def function(factor: Tensor) -> Tensor:
        state.mul_(p * factor)
        return state

    step, seen = transform(function), []
    for call in range(CALLS):
        result = step(ph.tensor(1.0 + call, device=x.device))
        p.grad = None
        seen.append([float(result is state), float(state.requires_grad)])
        (result * state).sum().backward()
        seen += _values(p.grad, state)
        state.detach_()
    return seen


def a_tensor_with_a_history(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Read the result of an older op, whose tape remains usable."""
    outer = p * p
    step, seen = transform(lambda y: outer * y), []
    for call in range(CALLS):
        result = step(x + call)
        p.grad = None
        (result.sum() + outer.sum()).backward(retain_graph=True)
        seen += _values(p.grad)
    return seen


def an_accumulated_state(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Accumulate into a captured tensor, whose history grows with each call."""
    state = (x * 0).detach()
    step, seen = transform(lambda y: state.add_(p * y)), []
    for call in range(CALLS):
        step(x + call)
        p.grad = None
        (state * state).sum().backward(retain_graph=True)
        seen += _values(p.grad, state)
    return seen


def an_argument_with_a_written_history(transform: Callable[[Function], Function], x: Tensor, p: Tensor) -> Outcome:
    """Write to an argument that is a slice of a result with earlier writes."""

    def function(part: Tensor) -> Tensor:
        part.mul_(2)
        return part.sum()

    step, seen = transform(function), []
    for _ in range(CALLS):
        whole = p * x
        whole[0, 0] = 5.0
        part = whole[0]
        total = step(part)
        p.grad = None
        (total + (part * whole[1]).sum()).backward()
        seen += _values(p.grad, whole, part)
    return seen


PROGRAMS = (
    view_of_an_argument,
    view_of_a_part,
    two_parts,
    a_tensor_that_is_not_passed,
    a_tensor_with_a_history,
    an_accumulated_state,
    an_argument_with_a_written_history,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_memory_written_in_a_captured_function_equals_that_of_an_eager_call(device: ph.Device, program: Any) -> None:
    outcomes = []
    for transform in (lambda f: f, ph.jit):
        x = ph.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3) + 1, device=device)
        p = ph.tensor(np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3), device=device, requires_grad=True)
        outcomes.append(program(transform, x, p))
    eager, captured = outcomes
    assert len(eager) == len(captured)
    for number, (a, b) in enumerate(zip(eager, captured, strict=True)):
        assert (a is None) == (b is None), number
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=1e-5, err_msg=str(number))


def test_no_node_of_a_recording_stays_with_a_tensor_that_was_written_to(device: ph.Device) -> None:
    state = ph.zeros((2,), device=device)
    p = ph.ones((2,), device=device, requires_grad=True)

    @ph.jit(warm_up=False)
    def step(x: Tensor) -> None:
        state.add_(p * x)
        if x.shape == (1,):
            x.sum().item()

    with pytest.raises(ph.hal.errors.CaptureError):
        step(ph.ones((1,), device=device))
    assert state.node is None
    assert not state.requires_grad
