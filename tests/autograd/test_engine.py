"""The backward pass: accumulation, graphs retained and freed, higher derivatives, hooks, changes in place, threads."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError


def leaf(values: object, device: Device) -> Tensor:
    return Tensor(values, dtype="float32", device=device, requires_grad=True)


def gradient(x: Tensor) -> list[float]:
    assert x.grad is not None
    found: list[float] = x.grad.tolist()
    return found


def test_a_tensor_used_twice_receives_both_gradients(device: Device) -> None:
    x = leaf([1.0, 2.0, 3.0], device)
    (x * x + x * 3.0).sum().backward()
    assert gradient(x) == [5.0, 7.0, 9.0]


def test_gradients_add_up_until_they_are_cleared(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    for expected in ([2.0, 2.0], [4.0, 4.0]):
        (x * 2).sum().backward()
        assert gradient(x) == expected
    x.zero_grad()
    assert x.grad is None


def test_a_write_to_a_part_of_a_returned_gradient_changes_that_part(device: Device) -> None:
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device)
    for result, value in ((x.sum(), 1.0), (x.mean(), 1 / 6), (x.mean(0).sum(), 0.5)):
        (g,) = polyhal.grad(result, x)
        g[:1, :1] = -1.0
        np.testing.assert_allclose(g.numpy(), [[-1, value, value], [value, value, value]], rtol=1e-6)


def test_broadcast_inputs_receive_gradients_of_their_shape(device: Device) -> None:
    a, b, c = leaf(np.ones((2, 3)), device), leaf(np.ones((3,)), device), leaf(2.0, device)
    (a * b + c).sum().backward()
    assert (a.grad.shape, gradient(b), gradient(c)) == ((2, 3), [2.0, 2.0, 2.0], 6.0)  # type: ignore[union-attr]


def test_a_diamond_is_walked_once_per_node(device: Device) -> None:
    x = leaf([2.0], device)
    y = x
    for _ in range(30):
        y = y + y
    y.backward()
    assert gradient(x) == [2.0**30]


def test_a_long_chain_needs_no_recursion(numpy_device: Device) -> None:
    x = leaf([1.0], numpy_device)
    y = x
    for _ in range(5000):
        y = y + 1.0
    y.backward()
    assert gradient(x) == [1.0]


def test_backward_needs_one_element_or_a_gradient(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    with pytest.raises(
        AutogradError,
        match=r"\[backward\] the output has shape \(2,\); expected one element, or a gradient of that shape",
    ):
        (x * 2).backward()
    with pytest.raises(AutogradError, match=r"the gradient has shape \(3,\); expected the output's \(2,\)"):
        (x * 2).backward(polyhal.ones((3,), device=device))
    (x * 2).backward(Tensor([1.0, 10.0], device=device))
    assert gradient(x) == [2.0, 20.0]


def test_backward_needs_a_tape(device: Device) -> None:
    with pytest.raises(AutogradError, match="not on the tape; set requires_grad on an input"):
        polyhal.ones((), device=device).backward()
    x = leaf([1.0], device)
    with polyhal.no_grad():
        y = x * 2
    with pytest.raises(AutogradError, match="not on the tape"):
        y.backward()


def test_nodes_that_saved_nothing_can_be_visited_again(device: Device) -> None:
    """Two losses share views of a parameter and a sum, and nothing else."""
    x = leaf([[1.0]], device)
    y = x.T.expand(2, 3)[:, :2] + 1
    (y * y).sum().backward()
    y.tanh().sum().backward()
    np.testing.assert_allclose(gradient(x), [[4 * (2 * 2 + 1 - np.tanh(2) ** 2)]], rtol=1e-6)


def test_products_with_numbers_can_be_visited_again(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    y = polyhal.lerp(x * 0.5, x, 0.25).sum()
    y.backward()
    y.backward()
    np.testing.assert_allclose(gradient(x), [1.25, 1.25], rtol=1e-6)  # twice 0.75 * 0.5 + 0.25


def test_a_freed_graph_says_so(device: Device) -> None:
    x = leaf([3.0], device)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(
        AutogradError, match=r"\[multiply\] the tape was freed by an earlier backward pass; pass retain_graph=True"
    ):
        y.backward()


def test_a_kept_graph_can_be_walked_again(device: Device) -> None:
    x = leaf([3.0], device)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert gradient(x) == [12.0]


def test_leaves_without_requires_grad_receive_no_gradient(device: Device) -> None:
    x, y = leaf([1.0], device), Tensor([2.0], device=device)
    (x * y).sum().backward()
    assert gradient(x) == [2.0]
    assert y.grad is None


def test_integers_and_comparisons_end_the_tape(device: Device) -> None:
    x = leaf([1.0, -1.0], device)
    for result in (x > 0, x.to("int32"), x.argmax()):
        assert not result.requires_grad


def test_grad_returns_gradients_and_does_not_accumulate(device: Device) -> None:
    x, y = leaf([2.0], device), leaf([3.0], device)
    product = x * y
    gx, gy = polyhal.grad(product.sum(), [x, y])
    assert (gx.item(), gy.item()) == (3.0, 2.0)  # type: ignore[union-attr]
    assert x.grad is None
    (middle,) = polyhal.grad((x * y * 5.0).sum() + (product := x * y).sum() * 7.0, [product])
    assert middle is not None
    assert middle.item() == 7.0


def test_grad_of_an_unused_input(device: Device) -> None:
    x, unused = leaf([2.0], device), leaf([3.0], device)
    with pytest.raises(AutogradError, match=r"inputs \[1\] were not used to make the outputs; pass allow_unused=True"):
        polyhal.grad((x * 2).sum(), [x, unused])
    assert polyhal.grad((x * 2).sum(), [x, unused], allow_unused=True)[1] is None


def test_derivatives_of_any_order(device: Device) -> None:
    x = leaf([2.0], device)
    y = (x * x * x * x).sum()
    values = []
    for _ in range(4):
        (y,) = polyhal.grad(y.sum(), [x], create_graph=True)  # type: ignore[assignment]
        values.append(y.item())
    assert values == [32.0, 48.0, 48.0, 24.0]


def test_a_gradient_penalty(device: Device) -> None:
    """backward through a gradient, as WGAN-GP does, against the formula."""
    x, w = leaf([[1.0, -2.0]], device), leaf([[0.5], [0.75]], device)
    (g,) = polyhal.grad((x @ w).tanh().sum(), [x], create_graph=True)
    assert g is not None
    (g * g).sum().backward()
    xv, wv = np.array([[1.0, -2.0]]), np.array([[0.5], [0.75]])
    t = np.tanh(xv @ wv)
    s = 1 - t * t
    norm = float((wv * wv).sum())
    expected = 2 * s * s * wv + (xv.T @ (-4 * s * s * t)) * norm
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=2e-4, atol=1e-9)


# --- values that changed --------------------------------------------------------------------------------------------


def test_changing_a_saved_input_is_noticed(device: Device) -> None:
    x, factor = leaf([1.0, 2.0], device), Tensor([3.0, 4.0], device=device)
    y = (x * factor).sum()
    factor.fill_(0)
    with pytest.raises(
        AutogradError, match=r"\[multiply\] 'y' was changed in place after it was saved .*version 0, now 1"
    ):
        y.backward()


def test_changing_a_saved_output_is_noticed(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    y = x.exp()
    with polyhal.no_grad():
        y.add_(1.0)
    with pytest.raises(AutogradError, match=r"\[exp\] 'out' was changed in place"):
        y.sum().backward()


def test_changing_through_a_view_is_noticed(device: Device) -> None:
    x, table = leaf([1.0, 2.0], device), polyhal.ones((2, 2), device=device)
    y = (x * table[0]).sum()
    table[1, 1] = 5.0
    with pytest.raises(AutogradError, match="changed in place"):
        y.backward()


def test_changing_a_tensor_that_no_rule_needs_is_allowed(device: Device) -> None:
    x, term = leaf([1.0, 2.0], device), Tensor([3.0, 4.0], device=device)
    y = (x + term).sum()
    term.fill_(0)
    y.backward()
    assert gradient(x) == [1.0, 1.0]


def test_tracked_tensors_refuse_changes(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    with pytest.raises(
        AutogradError, match=r"\[add_\] cannot change a leaf that requires gradients in place; do it under no_grad"
    ):
        x.add_(1.0)
    with pytest.raises(AutogradError, match=r"\[setitem\] cannot change a view of a leaf that requires gradients"):
        x[0] = 1.0
    with polyhal.no_grad():
        x.sub_(1.0)
    assert x.tolist() == [0.0, 1.0]


# --- hooks ----------------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_gradients(device: Device) -> None:
    x = leaf([1.0, 2.0], device)
    y = x * 2
    seen: list[list[float]] = []
    remove = y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [[1.0, 1.0]]
    assert gradient(x) == [20.0, 20.0]
    remove()
    remove()
    y.sum().backward()
    assert len(seen) == 1


def test_hooks_need_a_gradient(device: Device) -> None:
    with pytest.raises(AutogradError, match="does not require gradients; call requires_grad_"):
        polyhal.ones((1,), device=device).register_hook(lambda g: g)


# --- lifetimes and threads ------------------------------------------------------------------------------------------


def test_a_graph_dies_with_its_result(numpy_device: Device) -> None:
    """Without the garbage collector: the tape has no reference cycles."""
    gc.collect()
    gc.disable()
    try:
        x = leaf(np.ones((4, 4)), numpy_device)
        y = ((x @ x).exp() + x.softmax(axis=-1)).sum()
        middle = weakref.ref(z := x * 2)
        result = z.sum() + y
        del z, y
        assert middle() is None
        node = weakref.ref(result)
        del result
        assert node() is None
    finally:
        gc.enable()


def test_threads_have_their_own_mode_and_tape(device: Device) -> None:
    failures: list[BaseException] = []
    x = leaf([2.0], device)

    def work(k: int) -> None:
        try:
            assert polyhal.is_grad_enabled()
            for _ in range(20):
                (g,) = polyhal.grad((x * x * float(k)).sum(), [x])
                assert g is not None
                assert g.item() == 4.0 * k
        except BaseException as error:
            failures.append(error)

    with polyhal.no_grad():
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("cuts", "joined"),
    [
        ([(0, 2), (2, 5), (5, 6)], True),  # side by side, in any order
        ([(3, 6), (0, 3)], True),
        ([(0, 2), (3, 6)], False),  # a gap
        ([(0, 4), (2, 6)], False),  # an overlap
        ([(0, 6), (1, 2)], False),
    ],
    ids=str,
)
def test_gradients_of_slices_are_joined_where_they_fit(
    device: Device, cuts: list[tuple[int, int]], joined: bool
) -> None:
    x = leaf(np.arange(12).reshape(2, 6), device)
    whole = x * 1.0
    expected = np.zeros((2, 6))
    total: Tensor | None = None
    for weight, (start, stop) in enumerate(cuts, 1):
        part = (whole[:, start:stop] * float(weight)).sum()
        total = part if total is None else total + part
        expected[:, start:stop] += weight
    assert total is not None
    with polyhal.profile() as profile:
        total.backward()
    assert ("concat" in profile.ops) == joined
    assert ("unslice" in profile.ops) == (not joined)
    np.testing.assert_array_equal(gradient(x), expected)
