"""Gradients of leaves with several uses are summed, and no gradient is overwritten while another op still reads it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.errors import AutogradError
from polyhal.tape import sinks

Term = Callable[[Any, Any, Any], Any]
"""Takes a library and the leaves `x` of shape (3, 4) and `w` of shape (4, 4); returns a tensor of shape (3, 4)."""


def gathered(lib: Any, x: Any, w: Any) -> Any:
    index = np.array([2, 0, 2])
    return x[torch.from_numpy(index) if lib is torch else Tensor(index, device=x.device)]


FORMS: dict[str, tuple[Term, ...]] = {
    "functions": (lambda lib, x, w: x.sin(), lambda lib, x, w: x.cos(), lambda lib, x, w: x),
    "tanh": (lambda lib, x, w: x.tanh(), lambda lib, x, w: x, lambda lib, x, w: x.exp()),
    "gelu": (lambda lib, x, w: lib.nn.functional.gelu(x), lambda lib, x, w: x),
    "relu": (lambda lib, x, w: x.relu(), lambda lib, x, w: x, lambda lib, x, w: x.sigmoid()),
    "slices": (lambda lib, x, w: x[:1] * 2, lambda lib, x, w: x, lambda lib, x, w: x[1:2].exp()),
    "an index": (lambda lib, x, w: x[1] * 3, lambda lib, x, w: x, lambda lib, x, w: x[0]),
    "a gather": (gathered, lambda lib, x, w: x, lambda lib, x, w: x * x),
    "a residual product": (lambda lib, x, w: x @ w, lambda lib, x, w: x, lambda lib, x, w: (x @ w.T).relu()),
    "a residual leaf": (lambda lib, x, w: w[:3], lambda lib, x, w: x @ w, lambda lib, x, w: x),
    "an expansion": (lambda lib, x, w: x[:, :1].expand(3, 4), lambda lib, x, w: x, lambda lib, x, w: x.sum(0)),
    "a reshape": (lambda lib, x, w: x.reshape(4, 3).reshape(3, 4), lambda lib, x, w: x, lambda lib, x, w: x.abs()),
    "a transposition": (lambda lib, x, w: x.T.reshape(3, 4), lambda lib, x, w: x, lambda lib, x, w: x.T.sin().T),
    "a concatenation": (
        lambda lib, x, w: lib.cat([x[:1], x[1:]]),
        lambda lib, x, w: lib.cat([w[:1], x[:2]]),
        lambda lib, x, w: x,
    ),
    "twice itself": (lambda lib, x, w: x + x, lambda lib, x, w: x, lambda lib, x, w: x - x.sin()),
    "differences": (lambda lib, x, w: x - w[:3], lambda lib, x, w: w[1:] - x, lambda lib, x, w: -x),
    "a norm": (
        lambda lib, x, w: lib.nn.functional.layer_norm(x, (4,), w[0], w[1]),
        lambda lib, x, w: x,
        lambda lib, x, w: w[0],
    ),
    "a choice": (
        lambda lib, x, w: lib.where(x > 0, x, w[:3]),
        lambda lib, x, w: x,
        lambda lib, x, w: x.clamp(-0.5, 0.5),
    ),
    "two layers": (
        lambda lib, x, w: lib.nn.functional.linear(lib.nn.functional.linear(x, w).tanh(), w),
        lambda lib, x, w: x,
        lambda lib, x, w: w[1:] * x,
    ),
}
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda lib, y: (y**2).sum(),
    "mse_loss": lambda lib, y: lib.nn.functional.mse_loss(y, y.detach() * 0),
}


def values() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.uniform(0.2, 1.5, s) * rng.choice([-1, 1], s) for s in ((3, 4), (4, 4))]


def leaves(lib: Any, device: Device | None) -> list[Any]:
    if lib is torch:
        return [torch.tensor(v, requires_grad=True) for v in values()]
    return [Tensor(v.astype(np.float32), device=device, requires_grad=True) for v in values()]


def assert_close(found: Sequence[Tensor], expected: Sequence[torch.Tensor]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None and theirs.grad is not None:
            # A few dozen float32 roundings per element, of terms up to ten times as large.
            np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=2e-5, atol=2e-5)


def program(terms: Sequence[Term], loss: str) -> Callable[[Any, list[Any]], Any]:
    return lambda lib, xs: LOSSES[loss](lib, sum(term(lib, *xs) for term in terms))


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_of_a_leaf_used_several_times_is_the_sum(form: str, device: Device) -> None:
    for order in itertools.permutations(FORMS[form]):
        for loss in LOSSES:
            run = program(order, loss)
            theirs, mine = leaves(torch, None), leaves(ph, device)
            run(torch, theirs).backward()
            run(ph, mine).backward()
            assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_captured_steps_leave_the_same_gradients(form: str, device: Device) -> None:
    run = program(FORMS[form][::-1], "square")
    theirs, mine = leaves(torch, None), leaves(ph, device)
    run(torch, theirs).backward()

    @ph.jit
    def step() -> None:
        for x in mine:
            x.grad = None
        run(ph, mine).backward()

    for _ in range(4):
        step()
        assert_close(mine, theirs)


def test_passes_over_a_retained_tape_add_up(device: Device) -> None:
    theirs, mine = leaves(torch, None), leaves(ph, device)
    for lib, xs in ((torch, theirs), (ph, mine)):
        y = program(FORMS["functions"], "square")(lib, xs)
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
    assert_close(mine, theirs)


def test_a_gradient_that_the_caller_or_a_hook_keeps_does_not_change_later(device: Device) -> None:
    x = ph.ones((3,), device=device, requires_grad=True)
    seen: list[Tensor] = []
    seed = ph.ones((3,), device=device)
    for _ in range(2):
        y = x.reshape(3, 1).reshape(3)
        y.register_hook(seen.append)
        y.retain_grad()
        y.backward(seed)
        seen.append(y.grad)  # type: ignore[arg-type]
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    assert [g.tolist() for g in (seed, *seen)] == [[1, 1, 1]] * 5


def test_a_custom_function_may_keep_its_gradients(device: Device) -> None:
    kept: list[Tensor] = []

    class Keep(ph.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            kept.append(g)
            return g

    x = ph.ones((2,), device=device, requires_grad=True)
    for _ in range(2):
        (x + Keep.apply(x)).backward(ph.ones((2,), device=device) * 3)
    assert x.grad is not None
    assert x.grad.tolist() == [12, 12]
    assert [g.tolist() for g in kept] == [[3, 3]] * 2


def test_leaves_with_one_gradient_have_separate_memory(device: Device) -> None:
    xs = [ph.ones((2, 3), device=device, requires_grad=True) for _ in range(4)]
    ((xs[0] + xs[1]) + ph.cat([xs[2][:1], xs[3][:1]])).exp().sum().backward()
    gradients = [x.grad for x in xs]
    before = [g.tolist() for g in gradients if g is not None]
    for i, g in enumerate(gradients):
        assert g is not None
        g.zero_()
        assert [h.tolist() for h in gradients[i + 1 :] if h is not None] == before[i + 1 :]


def test_a_gradient_on_the_tape_is_added_to_without_changing_another_leaf(device: Device) -> None:
    x, y = (ph.ones((2,), device=device, requires_grad=True) for _ in range(2))
    (x + y).exp().sum().backward(create_graph=True)
    assert x.grad is not None
    assert y.grad is not None
    other = y.grad.tolist()
    (x * 3).sum().backward()
    assert y.grad.tolist() == other
    np.testing.assert_allclose(x.grad.numpy(), np.exp(2) + 3, rtol=1e-6)
    (second,) = ph.grad(x.grad.sum(), x)
    np.testing.assert_allclose(second.numpy(), np.exp(2), rtol=1e-6)


def test_a_gradient_passed_back_in_is_not_added_to_itself(device: Device) -> None:
    x = ph.ones((2,), device=device, requires_grad=True)
    (x * 3).sum().backward()
    (x.sin() + x + x.cos()).backward(x.grad)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 3 * (2 + np.cos(1) - np.sin(1)), rtol=1e-6)


UNARY: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.sin(),
    lambda x: x.tanh(),
    lambda x: x * 0.5,
    lambda x: x.T.reshape(2, 2),
    lambda x: x[:1].expand(2, 2),
    lambda x: x.reshape(4).reshape(2, 2),
    lambda x: -x,
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a @ b.tanh(),
)


@settings(max_examples=150)
@given(st.data())
def test_random_programs_have_the_gradients_of_pytorch(data: st.DataObject) -> None:
    statements = data.draw(
        st.lists(st.tuples(st.integers(0, 10), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=10)
    )
    start = [np.array([[0.3, -0.7], [1.1, 0.4]]), np.array([[-0.2, 0.9], [0.6, -1.3]])]

    def run(xs: list[Any]) -> None:
        made = list(xs)
        for kind, i, j in statements:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(UNARY[kind](a) if kind < len(UNARY) else BINARY[kind - len(UNARY)](a, b))
        (made[-1].sin() + made[-1] * made[statements[0][1] % len(made)].cos()).sum().backward()

    theirs = [torch.tensor(v, requires_grad=True) for v in start]
    mine = [Tensor(v, dtype="float64", device="numpy", requires_grad=True) for v in start]
    run(theirs)
    with ph.check("gradients"):
        run(mine)
    for a, b in zip(mine, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None and b.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_a_gradient_that_is_written_while_an_op_waits_for_it_is_named(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ph.ones((3,), device=device, requires_grad=True)
    with ph.check("gradients"):
        (x.sin() + x.cos() + x).exp().sum().backward()  # without an overwritten gradient
    x.grad = None
    monkeypatch.setattr(sinks, "is_exclusive", lambda total: True)
    monkeypatch.setattr(sinks, "take", lambda g: True)
    with (
        ph.check("gradients"),
        pytest.raises(AutogradError, match=r"\[add\] it writes to a gradient that sin has yet to read; .*# here"),
    ):
        (x.sin() + x.cos() + x).exp().sum().backward()  # here


def test_a_hook_that_writes_to_a_gradient_of_another_op_is_found(device: Device) -> None:
    x = ph.ones((3,), device=device, requires_grad=True)
    y, z = x * 2, x.sin()

    def clear(g: Tensor) -> None:
        g.zero_()

    z.register_hook(clear)
    with (
        ph.check("gradients"),
        pytest.raises(AutogradError, match=r"\[multiply\] its incoming gradient was written before"),
    ):
        (y + z).exp().sum().backward()


def test_a_gradient_that_is_written_while_a_step_is_recorded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.hal.system.checks import gradients

    check = gradients.GradientCheck()
    monkeypatch.setattr("polyhal.tape.engine.watched_gradients", check.watch)
    monkeypatch.setattr(sinks, "is_exclusive", lambda total: True)
    monkeypatch.setattr(sinks, "take", lambda g: True)
    x = ph.ones((3,), device="numpy", requires_grad=True)

    @ph.jit(warm_up=False)
    def step() -> None:
        (x.sin() + x.cos() + x).exp().sum().backward()

    with pytest.raises(AutogradError, match=r"\[sin\] its incoming gradient was written before it was used"):
        step()
