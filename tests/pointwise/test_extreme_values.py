"""Activations at the limits of float32, eager and captured, and ops in all dtypes that they declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.nn import functional as F


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


_GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "relu": F.relu,
}
"""Functions that are x for large x, and 0 for those far below 0."""


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", _GATES)
def test_gates_are_open_or_closed_for_the_largest_numbers(device: Device, name: str, captured: bool) -> None:
    values = np.float32([3.4e38, -3.4e38, 1e20, -1e20, 200.0, -200.0])
    x = Tensor(values, device=device, requires_grad=True)

    def step() -> tuple[Tensor, Tensor]:
        y = _GATES[name](x)
        return y, polyhal.grad(y, [x], [polyhal.ones_like(y)])[0]

    function = polyhal.jit(step) if captured else step
    for _ in range(3 if captured else 1):
        y, slope = (t.numpy() for t in function())
    np.testing.assert_allclose(y, np.where(values > 0, values, 0), rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(slope, values > 0, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "gelu by tanh", "silu"])
def test_a_gate_of_an_infinity_is_a_product_with_it(device: Device, name: str) -> None:
    y = _GATES[name](polyhal.tensor(np.float32([np.inf, -np.inf]), device=device)).numpy()
    assert y[0] == np.inf
    assert np.isnan(y[1])  # 0 times infinity, as in PyTorch


_SELECTIONS: dict[str, Callable[[Tensor], Any]] = {
    "median": lambda x: polyhal.median(x, 1)[0],
    "kthvalue": lambda x: polyhal.kthvalue(x, 2, 1)[0],
    "mode": lambda x: polyhal.mode(x, 1)[0],
    "cummax": lambda x: polyhal.cummax(x, 1)[0],
    "topk": lambda x: polyhal.topk(x, 2, 1)[0],
    "sort": lambda x: polyhal.sort(x, 1),
    "gather": lambda x: x.gather(1, polyhal.tensor([[0, 0], [6, 1], [2, 2]], device=x.device)),
    "index_select": lambda x: x.index_select(1, polyhal.tensor([0, 0, 3], device=x.device)),
    "max_pool": lambda x: F.max_pool1d(x, 3, 2, 1),
    "embedding_bag": lambda x: F.embedding_bag(polyhal.tensor([[0, 1], [2, 2]], device=x.device), x),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", _SELECTIONS)
def test_the_gradient_of_a_selection_has_kernels_in_half_precision(device: Device, name: str, dtype: str) -> None:
    """A kernel that does not build is an error in this test; the values are those of float32."""
    values = np.random.default_rng(1).permutation(21).reshape(3, 7).astype(np.float32)
    gradients = []
    for kind in (dtype, "float32"):
        x = Tensor(values, dtype=kind, device=device, requires_grad=True)
        y = _SELECTIONS[name](x)
        (y[0] if isinstance(y, tuple) else y).sum().backward()
        gradients.append(x.grad.to("float32").numpy())
    np.testing.assert_array_equal(*gradients)


def test_vecdot_conjugates_its_first_operand(device: Device) -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)) for _ in range(2))
    got = polyhal.linalg.vecdot(*(polyhal.tensor(v.astype(np.complex64), device=device) for v in (x, y)))
    np.testing.assert_allclose(got.numpy(), (x.conj() * y).sum(1), rtol=1e-5)


def test_vecdot_has_the_dtype_of_a_matrix_product(device: Device) -> None:
    x = polyhal.tensor(np.uint8([200, 2]), device=device)
    y = polyhal.tensor(np.uint8([2, 3]), device=device)
    for product in (
        polyhal.linalg.vecdot(x, y),
        polyhal.vdot(x, y),
        polyhal.inner(x, y),
        polyhal.tensordot(x, y, 1),
        x @ y,
    ):
        assert product.dtype is polyhal.uint8
        assert product.item() == 406 % 256
