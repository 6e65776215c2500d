"""Captured functions whose results are arguments, views, aliases or not differentiable behave as eager calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import Tensor, nn
from polyhal.hal.errors import AutogradError
from polyhal.nn import functional as F

START = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)
Program = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes an argument and a leaf of shape (2, 3), which is not passed to the captured function."""


def made_twice(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y


def with_transpose(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.T


def with_clone(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.clone()


def assigned_row(h: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h[0] = w[0] * 2
    return h, h * 1


def negated_probabilities(h: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = F.softmax(h, -1)
    s.neg_()  # its gradient needs the overwritten values
    return s, h * 2


def assigned_no_rows(h: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = h.detach() * 2
    y[2:] = w[2:]
    return y, y * 1


def new_leaf(made: Callable[[Tensor, Tensor], Tensor]) -> Program:
    def program(h: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        leaf = made(h, w).detach().requires_grad_()
        return leaf, leaf * 2 + w

    return program


def copied_over(h: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = h * 2 + w
    h.copy_(y)
    return h, y


PROGRAMS: dict[str, Program] = {
    "an argument": lambda h, w: (h, h.sin()),
    "a layer that passes on": lambda h, w: (nn.Identity()(h), h.sin()),
    "dropout in evaluation": lambda h, w: (F.dropout(h, 0.5, False), nn.Dropout(0.5).eval()(h)),
    "a border of nothing": lambda h, w: (F.pad(h, (0, 0)), h.sin()),
    "positive": lambda h, w: (h.positive(), h.sin()),
    "a view": lambda h, w: (h.T, h.sin()),
    "a view of a view": lambda h, w: (h.T[1:], h.expand(2, 3)),
    "views or copies": lambda h, w: (h.contiguous(), h.reshape(3, 2)),
    "a detached view": lambda h, w: (h.detach(), h * w),
    "one tensor twice": lambda h, w: made_twice(h * 2),
    "a tensor and a view of it": lambda h, w: with_transpose(h * 2),
    "a tensor and a copy of it": lambda h, w: with_clone(h * 2),
    "two copies": lambda h, w: (h.clone(), h.clone()),
    "equal expressions": lambda h, w: (h * 2, h * 2),
    "a product with 1": lambda h, w: (h * 1, h * 1),
    "equal constants": lambda h, w: (ph.zeros(2, 3, device=h.device), ph.zeros(2, 3, device=h.device)),
    "a leaf": lambda h, w: (w, h * w),
    "a view of a leaf": lambda h, w: (w[0], h * w),
    "an argument changed in place": lambda h, w: (h.mul_(w), h * 1),
    "a view of an argument changed in place": lambda h, w: (h.mul_(w).T, h * 1),
    "a row assigned": assigned_row,
    "no rows assigned": assigned_no_rows,
    "a value copied over an argument": copied_over,
    "a new leaf": new_leaf(lambda h, w: h * 2),
    "a new leaf over an argument": new_leaf(lambda h, w: h),
    "a new leaf over a view of an argument": new_leaf(lambda h, w: h[1:]),
    "a new leaf over another": new_leaf(lambda h, w: w),
    "a result that cannot be differentiated": negated_probabilities,
}


def observed(value: Callable[[], Any]) -> Any:
    """Return a value, or the type of the error that it raises."""
    try:
        return value()
    except AutogradError:
        return AutogradError


def facts(function: Callable[[Tensor], Any], device: ph.Device, w: Tensor, is_leaf: bool, tracked: bool) -> list[Any]:
    """Return the observable properties of results: identity, autograd nodes, gradients, shared memory."""
    w.grad = None
    x = ph.tensor(START + 1, device=device, requires_grad=tracked)
    h = x if is_leaf else x * 2
    try:
        a, b = function(h)
    except AutogradError:  # a leaf that requires gradients cannot be written
        return [AutogradError]
    found: list[Any] = [a is h, b is h, a is b, a.requires_grad, b.requires_grad, a.is_leaf, b.is_leaf]
    if b.requires_grad:
        found.append(observed(lambda: (b * b).sum().backward(retain_graph=True)))
    if a.requires_grad:
        found.append(observed(lambda: (a * 3).sum().backward()))
    if AutogradError not in found:  # a failed pass may have accumulated some gradients
        leaves = (x, w, a) if a.is_leaf else (x, w)
        found += [None if t.grad is None else t.grad.numpy().round(3).tolist() for t in leaves]
    before = a.numpy()
    with ph.no_grad():
        a.add_(100.0)
        found += [t.numpy().round(3).tolist() for t in (a, b, h, w)]
        a.copy_(ph.tensor(before, device=device))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_equal_the_results_of_an_eager_call(device: ph.Device, name: str) -> None:
    w = ph.tensor(START, device=device, requires_grad=True)
    for is_leaf, tracked in ((True, True), (False, True), (True, False)):

        def program(h: Tensor) -> Any:
            return PROGRAMS[name](h, w)

        captured = ph.jit(program)
        expected = facts(program, device, w, is_leaf, tracked)
        for _ in range(4):
            assert facts(captured, device, w, is_leaf, tracked) == expected


def test_equal_results_without_elements_are_not_copied(device: ph.Device) -> None:
    """Backends never receive an empty reference, also where simplified ops make one value the result twice."""

    @ph.jit
    def step(x: Any, chosen: Any) -> Any:
        order = ph.argsort(x, dim=0, stable=True)
        return order, ph.where(chosen, order, order)

    x = ph.zeros((0, 0, 3), device=device)
    for _ in range(3):
        assert [r.shape for r in step(x, x > 0)] == [(0, 0, 3), (0, 0, 3)]


def test_a_result_that_is_an_argument_has_a_second_gradient(device: ph.Device) -> None:
    step = ph.jit(lambda h: h.T)
    for _ in range(4):
        x = ph.tensor(START, device=device, requires_grad=True)
        (first,) = ph.grad((step(x * 2) ** 3).sum(), x, create_graph=True)
        (second,) = ph.grad(first.sum(), x)
        np.testing.assert_allclose(second.numpy(), 48 * START, rtol=1e-5)  # of (2 x)^3


def test_gradients_that_are_equal_do_not_share_memory(device: ph.Device) -> None:
    x = ph.tensor(START, device=device)
    a, b = (ph.tensor(START, device=device, requires_grad=True) for _ in range(2))

    @ph.jit
    def step() -> None:
        a.grad = b.grad = None
        ((a * x).sum() + (b * x).sum()).backward()

    for _ in range(4):
        step()
        assert a.grad is not None
        assert b.grad is not None
        a.grad.zero_()
        np.testing.assert_array_equal(b.grad.numpy(), START)


def test_only_the_gradient_that_needs_a_lost_value_raises(device: ph.Device) -> None:
    step = ph.jit(lambda h: negated_probabilities(h, h))
    for _ in range(4):
        x = ph.tensor(START, device=device, requires_grad=True)
        lost, kept = step(x)
        kept.sum().backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), np.full_like(START, 2))
        with pytest.raises(AutogradError, match="changed in place"):
            lost.sum().backward()


def test_an_error_of_a_backward_pass_is_raised_by_the_backward_pass() -> None:
    class Refusing(ph.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            raise KeyError("no gradient today")

    step = ph.jit(Refusing.apply)
    for _ in range(4):
        y = step(ph.tensor(START, device="numpy", requires_grad=True))
        with pytest.raises(KeyError, match="today"):
            y.sum().backward()


def test_a_saved_step_returns_its_argument_and_views_of_it(tmp_path: Path) -> None:
    w = ph.tensor(START, device="numpy")
    step = ph.jit(
        lambda h: {"given": h, "turned": h.T[1:], "made": h * w, "kept": w, "leaf": h.detach().requires_grad_()}
    )
    for _ in range(2):
        step(ph.tensor(START, device="numpy"))
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "step.safetensors"), "numpy")
    x = ph.tensor(START + 1, device="numpy")
    results = loaded(x)
    assert results["given"] is x
    x.zero_()
    assert not results["turned"].numpy().any()
    np.testing.assert_array_equal(results["made"].numpy(), (START + 1) * START)
    np.testing.assert_array_equal(results["kept"].numpy(), START)
    assert not results["leaf"].numpy().any()


def leaf_of_older_memory(h: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    leaf = h.detach().requires_grad_()
    (leaf * w).sum().backward()
    return (leaf,)


def retained_result(h: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    z = h * w
    z.retain_grad()
    (z * z).sum().backward()
    z.grad.mul_(2)
    return z, z.grad


def gradient_penalty(h: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mixed = (h * 0.5).requires_grad_()
    (slope,) = ph.autograd.grad((mixed * w).sin().sum(), mixed, create_graph=True)
    loss = (slope.norm(dim=1) - 1).square().mean()
    loss.backward()
    return (loss.detach(),)


@pytest.mark.parametrize("program", [leaf_of_older_memory, retained_result, gradient_penalty])
def test_gradients_of_tensors_made_inside_belong_to_their_run(device: ph.Device, program: Any) -> None:
    h = ph.tensor(START + 1, device=device)
    w = ph.tensor(START, device=device, requires_grad=True)
    step = ph.jit(lambda h: program(h, w))
    eager = None
    for call in range(12):  # more than the limit of failed recordings
        w.grad = None
        results = [x for t in step(h + call) for x in (t, t.grad)]
        found = [None if x is None else x.numpy() for x in (*results, w.grad)]
        w.grad = None
        eager = [x for t in program(h + call, w) for x in (t, t.grad)]
        for mine, theirs in zip(found, (*eager, w.grad), strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-6)
    assert len(step.graphs) == 1


def test_views_of_a_leaf_that_is_made_inside_belong_to_their_run(device: ph.Device) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        leaf = x.detach().requires_grad_()
        alone = y.detach().requires_grad_()
        return leaf.T, leaf, alone[0]

    step = ph.jit(function, warm_up=False)
    for call in range(3):
        x, y = (ph.tensor(START + call + k, device=device) for k in (0, 1))
        turned, leaf, part = step(x, y)
        (turned * 2 + leaf.T).sum().backward()
        (part * part).sum().backward()
        assert leaf.grad is not None
        np.testing.assert_array_equal(leaf.grad.numpy(), np.full((2, 3), 3, np.float32))
        np.testing.assert_array_equal(turned.detach().numpy(), (START + call).T)
        np.testing.assert_array_equal(part.detach().numpy(), START[0] + call + 1)


def test_a_refused_gradient_does_not_spoil_the_checkpoints_of_the_others(device: ph.Device) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        kept = ph.checkpoint(lambda a: (a * w).tanh() * a, x)
        lost = x * w
        lost = F.softmax(lost, -1)
        lost.detach().zero_()
        return kept, lost

    step = ph.jit(function, warm_up=False)
    for _ in range(3):
        gradients = []
        for call in (function, step):
            x, w = (ph.tensor(START * k, device=device, requires_grad=True) for k in (1, 2))
            kept, lost = call(x, w)
            kept.sum().backward()
            with pytest.raises(AutogradError, match="changed in place"):
                lost.sum().backward()
            gradients.append([g.numpy() for g in (x.grad, w.grad) if g is not None])
        for eager, captured in zip(*gradients, strict=True):
            np.testing.assert_allclose(captured, eager, rtol=1e-5)


def test_a_backward_pass_inside_leaves_the_gradients_of_other_results(device: ph.Device) -> None:
    x = ph.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)

    @ph.jit
    def step(x: Any) -> Any:
        h = x * 3.0
        loss = (x * x).sum()
        loss.backward()
        return h, loss

    for _ in range(3):
        h, _ = step(x)
        x.grad = None
        h.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_results_are_released_without_a_collection_of_cycles() -> None:
    """Each run makes results in new memory, which must return to the pool at once."""
    step = ph.jit(lambda x: (x * 2, {"sum": x.sum()}))
    x = ph.tensor(START)
    for _ in range(3):
        step(x)
    gc.disable()
    try:
        result = step(x)
        alive = [weakref.ref(result[0]), weakref.ref(result[1]["sum"])]
        del result
        assert [r() for r in alive] == [None, None]
    finally:
        gc.enable()
