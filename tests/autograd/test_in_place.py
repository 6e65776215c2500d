"""Writes in place on the tape: values and gradients are PyTorch's, eagerly and in captured steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal
from polyhal import Device, Tensor
from polyhal.hal.errors import AutogradError, ShapeError
from polyhal.nn import functional

Program = Callable[[Any, Any, Any], Any]
"""Takes a function that makes zeros, and two tensors of shapes (3, 4) and (4,); returns a tensor."""


def columns_assigned(zeros: Any, a: Any, b: Any) -> Any:
    out = zeros((3, 4))
    out[:, 0] = b[:3] * 2
    return out


def operators(zeros: Any, a: Any, b: Any) -> Any:
    h = a * b
    h += b
    h *= a
    h -= 1.0
    h /= b
    h **= 2
    h[0] *= 2
    return h


def views_made_before_the_write(zeros: Any, a: Any, b: Any) -> Any:
    out = zeros((3, 4))
    flat = out.view(-1)
    out[0] = b
    out[1].copy_(b * 3)
    return flat * 2 + out.reshape(-1)


def siblings_of_a_written_view(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 2
    row, flat = h[1], h.view(12)
    row.exp_()
    return flat * flat


def constants_over_results(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 2
    h[0] = 1.0
    h[1].zero_()
    h += a
    return h.sigmoid_()


def rows_from_earlier_rows(zeros: Any, a: Any, b: Any) -> Any:
    out = zeros((3, 4))
    for i in range(3):
        out[i] = a[i] * (out[i - 1].clone() if i else b)
    return out


def transposed_and_strided_views(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 1
    h.T[1] = b[:3]
    h[:, ::2].mul_(b[:2])
    return h


def keywords(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 1
    h.fill_(b.sum())
    h[0].add_(b, alpha=2)
    h.sub_(b, alpha=0.5)
    return h.div_(a)


def views_of_views(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 1
    row = h[0]
    row[1:3][0] = b[0]
    row.pow_(2)
    return h


def a_clone_of_a_detached_tensor(zeros: Any, a: Any, b: Any) -> Any:
    h = a.detach().clone()
    h += b
    return h.clamp_(max=2.5)


def parts_of_a_detached_tensor(zeros: Any, a: Any, b: Any) -> Any:
    h = zeros((3, 4)).detach()
    flat = h.view(12)
    h[::2].add_(b)
    h.T[1].mul_(a[:, 0])
    h[1] = a[1]
    return h * 2 + flat.reshape(3, 4)


def a_write_to_a_view_of_a_detached_tensor(zeros: Any, a: Any, b: Any) -> Any:
    h = a.detach().clone().detach()
    part = h[1:]
    row = part[0]
    row.copy_(b)
    part[:, 1].mul_(a[:2, 0])
    part[1:].sigmoid_()
    return h.exp()


def a_detached_tensor_beside_the_one_that_it_was_taken_from(zeros: Any, a: Any, b: Any) -> Any:
    h = a * 2
    off = h.detach()
    off[0] = b * 3
    h[1].mul_(b)
    part = off[:, 1:]
    off *= a
    h.add_(1)
    return h.sin() * part.sum() + off


def two_tensors_detached_from_one(zeros: Any, a: Any, b: Any) -> Any:
    h = zeros((3, 4))
    one, two = h.detach(), h.detach()
    one.add_(a)
    two[0].mul_(b)
    h.add_(b)
    return one * 2 + two * 3 + h


PROGRAMS = (
    parts_of_a_detached_tensor,
    a_write_to_a_view_of_a_detached_tensor,
    a_detached_tensor_beside_the_one_that_it_was_taken_from,
    two_tensors_detached_from_one,
    columns_assigned,
    operators,
    views_made_before_the_write,
    siblings_of_a_written_view,
    constants_over_results,
    rows_from_earlier_rows,
    transposed_and_strided_views,
    keywords,
    views_of_views,
    a_clone_of_a_detached_tensor,
)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0.5, 2, (3, 4)).astype(np.float32), rng.uniform(0.5, 2, 4).astype(np.float32)


def expected(program: Program) -> list[np.ndarray]:
    """Return the result of a program and the gradients of the sum of its squares, by PyTorch."""
    a, b = (torch.tensor(x, requires_grad=True) for x in inputs())
    out = program(torch.zeros, a, b)
    out.square().sum().backward()
    return [out.detach().numpy(), *(x.grad.numpy() for x in (a, b) if x.grad is not None)]


def gradients(program: Program, device: Device, a: Tensor, b: Tensor) -> list[Tensor]:
    a.grad = b.grad = None
    out = program(lambda shape: polyhal.zeros(shape, device=device), a, b)
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in (a, b) if x.grad is not None)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_write_in_place_learn_as_in_pytorch(program: Program, device: Device) -> None:
    a, b = (Tensor(x, device=device, requires_grad=True) for x in inputs())
    for mine, theirs in zip(gradients(program, device, a, b), expected(program), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_programs_that_write_in_place_learn_as_in_pytorch(program: Program, numpy_device: Device) -> None:
    a, b = (Tensor(x, device=numpy_device, requires_grad=True) for x in inputs())
    step = polyhal.jit(lambda a, b: gradients(program, numpy_device, a, b), warm_up=False)
    for _ in range(2):
        for mine, theirs in zip(step(a, b), expected(program), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-6)


def test_a_step_of_gradient_descent_changes_the_parameter(device: Device) -> None:
    p = Tensor([1.0, 2.0], device=device, requires_grad=True)
    same = p
    (p * p).sum().backward()
    with polyhal.no_grad():
        p -= 0.25 * p.grad
    assert p is same
    assert p.tolist() == [0.5, 1.0]
    assert p.is_leaf


def test_leaves_refuse_operators_and_writes_through_views(device: Device) -> None:
    p = Tensor([[1.0, 2.0]], device=device, requires_grad=True)
    with pytest.raises(AutogradError, match="a leaf that requires gradients"):
        p += 1.0
    with pytest.raises(AutogradError, match="a view of a leaf that requires gradients"):
        p.view(-1)[0] = 1.0
    with pytest.raises(AutogradError, match="a view of a leaf"):
        p.T.zero_()
    assert p.tolist() == [[1.0, 2.0]]


def test_leaves_in_memory_that_the_tape_wrote_to_refuse_writes_through_views(device: Device) -> None:
    x, y = Tensor([2.0], device=device), Tensor([3.0], device=device, requires_grad=True)
    x.copy_(y)
    leaf = x.detach().requires_grad_()
    for view in (leaf[0:], leaf.view(1, 1)):
        with pytest.raises(AutogradError, match="a view of a leaf that requires gradients"):
            view.add_(1.0)
    with pytest.raises(AutogradError, match="a view of a leaf that requires gradients"):
        leaf[0] = 1.0
    assert x.tolist() == [3.0]


@pytest.mark.parametrize("captured", [False, True])
def test_a_view_of_a_leaf_stays_one_after_a_write_to_the_tensor_it_was_detached_from(
    device: Device, captured: bool
) -> None:
    def step(x: Any, y: Any) -> tuple[Any, Any, Any]:
        made = x * 1.0
        leaf = made.detach().requires_grad_()
        view = leaf[0:]
        made.copy_(y)
        ((view * view).sum() + 5.0 * made.sum()).backward()
        return leaf.grad, y.grad, view

    def operands(library: Any, **where: Any) -> tuple[Any, Any]:
        return library.tensor([2.0], **where), library.tensor([3.0], requires_grad=True, **where)

    expected = [t.tolist() for t in step(*operands(torch))]
    x, y = operands(polyhal, device=device)
    run = polyhal.jit(step) if captured else step
    for _ in range(3):
        y.grad = None
        assert [t.tolist() for t in run(x, y)] == expected


def test_detached_tensors_stay_off_the_tape(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x * 2
    off = y.detach()
    row = off[:1]
    y += x
    assert not off.requires_grad
    assert not row.requires_grad
    assert off.tolist() == y.tolist() == [3.0, 6.0]
    kept = polyhal.zeros((2,), device=device).detach()
    kept[0] = x[1]
    kept.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_detached_tensors_that_are_gone_leave_no_history(device: Device) -> None:
    x, w = polyhal.zeros((3,), device=device), Tensor([1.0], device=device, requires_grad=True)
    for _ in range(5):
        x.detach()[1:].add_(w)
    assert len(x.buffer.detached) == 1
    assert not x.requires_grad
    assert x.tolist() == [0.0, 5.0, 5.0]


def test_a_value_that_its_own_gradient_needs_is_kept(device: Device) -> None:
    x = Tensor([2.0], device=device, requires_grad=True)
    y = x * 1
    y *= y
    y.exp_()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.exp(4.0), rtol=1e-5)


def test_second_gradients_flow_through_writes(numpy_device: Device) -> None:
    x = Tensor([1.0, 3.0], device=numpy_device, requires_grad=True)
    out = polyhal.zeros((2, 2), device=numpy_device)
    out[1] = x**3
    (first,) = polyhal.grad((out * out).sum(), x, create_graph=True)
    (second,) = polyhal.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 30 * np.array([1.0, 3.0]) ** 4)


def test_memory_that_is_shared_between_elements_is_not_written(device: Device) -> None:
    x = polyhal.broadcast_to(polyhal.zeros((1, 3), device=device), (2, 3))
    with pytest.raises(ShapeError, match="share memory, as after a broadcast"):
        x += 1


def test_results_are_cast_to_the_dtype_of_the_target(device: Device) -> None:
    x = polyhal.ones((2,), dtype="float16", device=device)
    x += polyhal.ones((2,), device=device)
    assert (x.dtype.name, x.tolist()) == ("float16", [2.0, 2.0])
    n = Tensor([7, -7], device=device)
    n //= 2
    assert n.tolist() == [3, -4]
    assert n.div_(2, rounding_mode="trunc").tolist() == [1, -2]
    with pytest.raises(ShapeError, match="the result is float32"):
        n /= 2


def test_an_empty_part_is_assigned_on_the_tape(device: Device) -> None:
    w = polyhal.ones((1, 0), requires_grad=True, device=device)
    y = polyhal.zeros((2, 0), device=device)
    y[-1:] = w
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.shape == (1, 0)


@pytest.mark.parametrize("method", ["div_", "mul_", "pow_", "atan2_", "xlogy_", "true_divide_"])
def test_a_write_keeps_the_operand_that_the_gradient_of_the_other_one_reads(method: str, device: Device) -> None:
    ours = polyhal.tensor([1.5, 2.0], requires_grad=True, device=device)
    x = polyhal.tensor([2.0, 3.0], device=device)
    theirs = torch.tensor([1.5, 2.0], requires_grad=True)
    y = torch.tensor([2.0, 3.0])
    getattr(x, method)(ours)
    getattr(y, method)(theirs)
    x.sum().backward()
    y.sum().backward()
    assert ours.grad is not None
    assert ours.grad.tolist() == pytest.approx(theirs.grad.tolist(), rel=1e-6)


def test_results_of_complex_abs_and_weights_of_rms_norm_may_be_overwritten(device: Device) -> None:
    x = polyhal.tensor([3.0, 0.0], device=device, requires_grad=True)
    size = polyhal.abs(polyhal.complex(x, polyhal.tensor([4.0, 0.0], device=device)))
    size.exp_()
    size.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [math.exp(5) * 0.6, 0.0], rtol=1e-6)
    w = polyhal.ones((2,), device=device, requires_grad=True)
    out = functional.rms_norm(polyhal.tensor([[1.0, 1.0]], device=device), [2], w, 0.0)
    with polyhal.no_grad():
        w.add_(1.0)
    out.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), [1.0, 1.0], rtol=1e-6)
