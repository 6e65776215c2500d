"""A backward pass visits only nodes on a path to a requested gradient, and hooks of leaves run once, on the sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.autograd import Context, Function


def test_grad_runs_only_nodes_on_paths_to_chosen_tensors(device: Device) -> None:
    weights = ph.ones((2,), device=device)
    x = ph.tensor([0.5, 2.0], device=device, requires_grad=True)
    middle = ph.xlogy(weights, x)
    weights.abs_()  # the gradient of x needs the old values
    (g,) = ph.grad((middle * middle).sum(), middle)
    np.testing.assert_allclose(g.numpy(), 2 * np.log([0.5, 2.0]), rtol=1e-6)
    with pytest.raises(RuntimeError, match="changed in place"):
        ph.grad((middle * middle).sum(), x)


def test_grad_computes_no_gradient_of_an_operand_off_the_path(device: Device) -> None:
    x = ph.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    y = ph.tensor([[3.0], [4.0]], device=device, requires_grad=True)
    product = (x * 1.0) @ y
    with ph.no_grad():
        x.zero_()
    (g,) = ph.grad(product.sum(), x, retain_graph=True)
    np.testing.assert_array_equal(g.numpy(), [[3.0, 4.0]])


def test_a_rule_off_the_path_is_not_called(device: Device) -> None:
    called = []

    class Noted(Function):
        @staticmethod
        def forward(ctx: Context, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Context, g: Tensor) -> Tensor:
            called.append(g)
            return g * 2

    x = ph.ones((2,), device=device, requires_grad=True)
    y = ph.ones((2,), device=device, requires_grad=True)
    total = (Noted.apply(x) * y).sum()
    ph.grad(total, y, retain_graph=True)
    assert not called
    ph.grad(total, x)
    assert len(called) == 1


def test_a_pass_after_one_to_the_middle_finds_the_rest_of_the_tape(device: Device) -> None:
    x = ph.ones((2,), device=device, requires_grad=True)
    middle = x.exp()
    (g,) = ph.grad(middle.sum(), middle)  # frees the saved tensors on its path, without those of exp
    middle.backward(g)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 1.0]), rtol=1e-6)


USES: list[Callable[[Tensor], Tensor]] = [
    lambda x: x * x,
    lambda x: x.sin() + x.cos() * 3,
    lambda x: x @ x,
    lambda x: ph.cat([x, x]),
    lambda x: ph.einsum("ij,ij->j", x, x),
    lambda x: x[:1] + x[1:],
]


@pytest.mark.parametrize("collected", [False, True], ids=["backward", "grad"])
@pytest.mark.parametrize("use", USES, ids=["square", "sum", "matmul", "cat", "einsum", "slices"])
def test_a_hook_of_a_leaf_runs_once_with_the_sum_of_its_gradients(
    use: Callable[[Tensor], Tensor], collected: bool, device: Device
) -> None:
    values = np.array([[0.3, -0.7], [1.1, 0.4]], np.float32)
    seen: list[np.ndarray] = []

    def clipped(g: Tensor) -> Tensor:
        seen.append(g.numpy())
        return ph.clip(g, -0.3, 0.3)

    def gradient(hook: bool) -> np.ndarray:
        x = ph.tensor(values, device=device, requires_grad=True)
        if hook:
            x.register_hook(clipped)
        y = use(x)
        total = (y * y).sum()
        if collected:
            return ph.grad(total, x)[0].numpy()
        total.backward()
        assert x.grad is not None
        return x.grad.numpy()

    whole = gradient(False)
    np.testing.assert_allclose(gradient(True), np.clip(whole, -0.3, 0.3), rtol=1e-6)
    (g,) = seen
    np.testing.assert_allclose(g, whole, rtol=1e-6)


def test_results_of_a_hook_are_on_the_tape_of_second_gradients(device: Device) -> None:
    x = ph.tensor([0.5, 2.0], device=device, requires_grad=True)
    x.register_hook(lambda g: g * g)
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not None
    (second,) = ph.grad(x.grad.sum(), [x], allow_unused=True)
    # The gradient is (2 x) ** 2. Its derivative is 8 x, which the hook squares.
    np.testing.assert_allclose(second.numpy(), (8 * x.numpy()) ** 2, rtol=1e-6)


def test_a_captured_step_runs_hooks_of_leaves_once(device: Device) -> None:
    x = ph.tensor([0.5, 2.0], device=device, requires_grad=True)
    x.register_hook(lambda g: ph.clip(g, -0.3, 0.3))

    @ph.jit
    def step(scale: Tensor) -> Tensor:
        x.grad = None
        loss = (x.sin() * scale + x * x).sum()
        loss.backward()
        return loss

    for scale in (1.0, -3.0, 0.1):
        step(ph.tensor(scale, device=device))
        assert x.grad is not None
        expected = np.cos([0.5, 2.0]) * scale + np.array([1.0, 4.0])
        np.testing.assert_allclose(x.grad.numpy(), np.clip(expected, -0.3, 0.3), rtol=1e-5)
