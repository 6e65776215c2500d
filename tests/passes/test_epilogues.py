"""Products whose results meet: each keeps its own epilogue, and shared ops belong to one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import capture, nn
from polyhal.hal.compile.passes.fuse.epilogues import fuse_epilogues
from polyhal.hal.device import Device
from polyhal.hal.system.reference.tolerances import accumulated

from .golden import check
from .rich_device import rich_device

F = ph.functions
_HALF_EPS = 2.0**-24


def test_two_products_that_end_in_one_node_share_it_once() -> None:
    check(
        fuse_epilogues,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %3 = multiply(%0, 2): float32[3, 4]
        %4 = matmul(%3, %1, out_dtype=None): float32[3, 4]
        %5 = add(%2, %4): float32[3, 4]
        return %5
        """,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = multiply(%0, 2): float32[3, 4]
        %3 = matmul(%2, %1, out_dtype=None): float32[3, 4]
        %4 = fused_matmul(%0, %1, %3, steps=(('add', (0, 1), ()),), numbers=(), out_dtype=None): float32[3, 4]
        return %4
        """,
    )


def test_a_residual_in_float32_is_added_to_a_product_in_half_precision() -> None:
    """The chain goes on in float32 until the dtype would change again; the sum is never rounded to bfloat16."""
    params = "steps=(('add', (0, 1), ()), ('add', (2, 3), ())), numbers=(), out_dtype=polyhal.float32"
    check(
        fuse_epilogues,
        """
        %0: bfloat16[3, 4]
        %1: bfloat16[5, 4]
        %2: bfloat16[5]
        %3: float32[3, 5]
        on it
        %4 = linear(%0, %1, %2): bfloat16[3, 5]
        %5 = add(%3, %4): float32[3, 5]
        %6 = cast(%5, dtype=polyhal.bfloat16): bfloat16[3, 5]
        return %6
        """,
        f"""
        %0: bfloat16[3, 4]
        %1: bfloat16[5, 4]
        %2: bfloat16[5]
        %3: float32[3, 5]
        on it
        %4 = permute(%1, axes=(1, 0)): bfloat16[4, 5] strides [1, 4]
        %5 = fused_matmul(%0, %4, %2, %3, {params}): float32[3, 5]
        %6 = cast(%5, dtype=polyhal.bfloat16): bfloat16[3, 5]
        return %6
        """,
    )


def test_the_second_product_keeps_the_part_of_its_chain_that_is_its_own() -> None:
    params = "steps=(('tanh', (0,), ()), ('multiply', (2, 1), ())), numbers=(), out_dtype=None"
    check(
        fuse_epilogues,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %3 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %4 = tanh(%2): float32[3, 4]
        %5 = relu(%3): float32[3, 4]
        %6 = multiply(%4, %5): float32[3, 4]
        return %6
        """,
        f"""
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = fused_matmul(%0, %1, steps=(('relu', (0,), ()),), numbers=(), out_dtype=None): float32[3, 4]
        %3 = fused_matmul(%0, %1, %2, {params}): float32[3, 4]
        return %3
        """,
    )


def test_the_factor_of_a_residual_is_part_of_the_epilogue() -> None:
    """Of a product, and of a linear layer with a residual; a scaled tensor that is read elsewhere remains."""
    check(
        fuse_epilogues,
        """
        %0: float32[4, 4]
        %1: float32[4, 4]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[4, 4]
        %3 = multiply(%0, 0.5): float32[4, 4]
        %4 = multiply(%2, 2.0): float32[4, 4]
        %5 = add(%4, %3): float32[4, 4]
        %6 = multiply(%5, 0.25): float32[4, 4]
        %7 = fused_linear(%5, %1, None, %6, activation='none', scale=1.0): float32[4, 4]
        return %7
        """,
        """
        %0: float32[4, 4]
        %1: float32[4, 4]
        on it
        %2 = fused_matmul(%0, %1, %0, steps=(('multiply', (1, 2), ()), ('multiply', (0, 3), ()), ('add', (5, 4), ())), numbers=(0.5, 2.0), out_dtype=None): float32[4, 4]
        %3 = permute(%1, axes=(1, 0)): float32[4, 4] strides [1, 4]
        %4 = fused_matmul(%2, %3, %2, steps=(('multiply', (1, 2), ()), ('add', (0, 3), ())), numbers=(0.25,), out_dtype=None): float32[4, 4]
        return %4
        """,  # noqa: E501
    )
    kept = """
        %0: float32[4, 4]
        %1: float32[4, 4]
        on it
        %2 = multiply(%0, 0.5): float32[4, 4]
        %3 = fused_matmul(%0, %1, %2, steps=(('add', (0, 1), ()),), numbers=(), out_dtype=None): float32[4, 4]
        return %2, %3
        """
    plain = "matmul(%0, %1, out_dtype=None): float32[4, 4]\n        %4 = add(%3, %2)"
    before = kept.replace("fused_matmul(%0, %1, %2, steps=(('add', (0, 1), ()),), numbers=(), out_dtype=None)", plain)
    check(fuse_epilogues, before.replace("return %2, %3", "return %2, %4"), kept)


def _sum_of_products(x: Any, w: Any, v: Any) -> Any:
    return x @ w + (x * 2) @ w


def _gated(x: Any, w: Any, v: Any) -> Any:
    return F.silu(x @ w) * (x @ v)


def _three(x: Any, w: Any, v: Any) -> Any:
    return (x @ w + x @ v) * (x @ (w + v)).tanh()


def _sizes(formula: Callable[..., Any], x: np.ndarray, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return sums of the absolute terms of a formula: `silu` grows by at most 1.1 of its operand, `tanh` by
    1."""
    if formula is _sum_of_products:
        return 3 * (x @ w)
    return 1.1 * (x @ w) * (x @ v) if formula is _gated else (x @ w + x @ v) * (x @ (w + v))


def _assert_rounded_alike(a: np.ndarray, b: np.ndarray, sizes: np.ndarray, roundings: int) -> None:
    """Both are results of the same `roundings`, in another order. Errors of sums of `sizes` are those of the kit."""
    assert (np.abs(a - b) <= 2 * accumulated(roundings) * _HALF_EPS * sizes).all()


@pytest.mark.parametrize("formula", [_sum_of_products, _gated, _three])
def test_products_that_meet_compute_what_they_do_one_by_one(formula: Callable[..., Any], device: Device) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in [(6, 8), (8, 8), (8, 8)]]
    for target in (device, rich_device()):
        tensors = [ph.Tensor(a, device=target) for a in arrays]
        with capture():
            result = formula(*tensors)
        plain = formula(*[ph.Tensor(a, device="numpy") for a in arrays])
        # Two products of 8 terms that are multiplied, and a function of one of them, good to 4 units.
        sizes = _sizes(formula, *(np.abs(a).astype(np.float64) for a in arrays))
        _assert_rounded_alike(result.numpy(), plain.numpy(), sizes, 8 + 8 + 8 + 2)


def _two_layers_on_one_input(device: Device) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a gradient through both, op by op and captured, and the sums of its absolute terms."""
    ph.manual_seed(0)
    q, k, first = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
    x = ph.Tensor(np.random.default_rng(0).uniform(-1, 1, (6, 8)).astype(np.float32), device=device)

    def step() -> None:
        first.weight.grad = None
        h = first(x)
        (q(h) * k(h)).sum().backward()

    step()
    eager = first.weight.grad.numpy()
    with capture():
        step()
    return eager, first.weight.grad.numpy(), _sizes_of_gradient(first, q, k, x)


def _sizes_of_gradient(first: nn.Linear, q: nn.Linear, k: nn.Linear, x: ph.Tensor) -> np.ndarray:
    (f, b), (q_weight, q_bias), (k_weight, k_bias) = (
        [np.abs(p.numpy()).astype(np.float64) for p in layer.parameters()] for layer in (first, q, k)
    )
    inputs = np.abs(x.numpy()).astype(np.float64)
    h = inputs @ f.T + b
    gradient = (h @ k_weight.T + k_bias) @ q_weight + (h @ q_weight.T + q_bias) @ k_weight
    sizes: np.ndarray = gradient.T @ inputs
    return sizes


def test_the_gradient_of_a_product_of_layers_on_one_input(device: Device) -> None:
    """The gradients of both layers with respect to their input are products that are added."""
    for target in (device, rich_device()):
        eager, captured, sizes = _two_layers_on_one_input(target)
        # One product after the other: of 8 terms and a bias, twice; of 8 and an addend; of 6.
        _assert_rounded_alike(captured, eager, sizes, 9 + 9 + 9 + 6)
