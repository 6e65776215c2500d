"""Passes that remove work: views, algebra, constants, common subexpressions, dead code."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.decompose import decompose
from polyhal.hal.compile.passes.simplify.algebra import simplify_algebra
from polyhal.hal.compile.passes.simplify.common_subexpressions import merge_common_subexpressions
from polyhal.hal.compile.passes.simplify.constant_folding import fold_constants
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.passes.simplify.views import simplify_views
from polyhal.hal.device import Device

from .golden import check
from .rich_device import rich_device

_KEPT = "kept as it is"


def test_views_of_views_become_one() -> None:
    check(
        simplify_views,
        """
        %0: float32[2, 6]
        on it
        %1 = reshape(%0, shape=(2, 6)): float32[2, 6]
        %2 = reshape(%1, shape=(12,)): float32[12]
        %3 = reshape(%2, shape=(3, 4)): float32[3, 4]
        %4 = permute(%3, axes=(1, 0)): float32[4, 3] strides [1, 4]
        %5 = permute(%4, axes=(1, 0)): float32[3, 4]
        %6 = exp(%5): float32[3, 4]
        return %6
        """,
        """
        %0: float32[2, 6]
        on it
        %1 = reshape(%0, shape=(3, 4)): float32[3, 4]
        %2 = exp(%1): float32[3, 4]
        return %2
        """,
    )


def test_dead_code_is_removed_and_updates_are_kept() -> None:
    check(
        remove_dead_code,
        """
        %0: float32[3]
        %1: float32[3]
        on it
        %2 = exp(%0): float32[3]
        %3 = tanh(%0): float32[3]
        %4 = add(%1, %3): float32[3] over [0]
        %5 = negative(%2): float32[3]
        %1 <- %4
        return %0
        """,
        """
        %0: float32[3]
        %1: float32[3]
        on it
        %2 = tanh(%0): float32[3]
        %3 = add(%1, %2): float32[3] over [0]
        %1 <- %3
        return %0
        """,
    )


def test_equal_nodes_are_computed_once() -> None:
    """But 1 and 1.0, and both zeros, are different numbers; and changes of memory in place are never merged."""
    check(
        merge_common_subexpressions,
        """
        %0: float32[3]
        on it
        %1 = exp(%0): float32[3]
        %2 = exp(%0): float32[3]
        %3 = add(%1, 0.0): float32[3]
        %4 = add(%2, 0.0): float32[3]
        %5 = add(%2, -0.0): float32[3]
        %6 = add(%2, 0): float32[3]
        return %3, %4, %5, %6
        """,
        """
        %0: float32[3]
        on it
        %1 = exp(%0): float32[3]
        %2 = add(%1, 0.0): float32[3]
        %3 = add(%1, -0.0): float32[3]
        %4 = add(%1, 0): float32[3]
        return %2, %2, %3, %4
        """,
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_costs_at_most_one_op_in_addition_to_its_gradient(approximate: str, numpy_device: Device) -> None:
    """The gradient computes the same distribution function, by which gelu multiplies its input."""

    def nodes(results: str) -> int:
        text = f"""
            %0: float32[3]
            %1: float32[3]
            on {numpy_device}
            %2 = gelu(%0, approximate='{approximate}'): float32[3]
            %3 = gelu_grad(%1, %0, approximate='{approximate}'): float32[3]
            return {results}
            """
        graph = decompose(parse(textwrap.dedent(text), numpy_device))
        return len(remove_dead_code(merge_common_subexpressions(graph)).nodes)

    assert nodes("%2, %3") <= nodes("%3") + 1


def test_numbers_instead_of_filled_tensors() -> None:
    check(
        fold_constants,
        """
        %0: float32[3]
        %1: float16[3]
        on it
        %2 = full(shape=(), value=1, dtype=polyhal.float32): float32[]
        %3 = reshape(%2, shape=(1,)): float32[1]
        %4 = broadcast_to(%3, shape=(3,)): float32[3] strides [0]
        %5 = divide(%4, %0): float32[3]
        %6 = add(%2, %2): float32[]
        %7 = multiply(%5, %6): float32[3]
        %8 = add(%1, %2): float32[3]
        return %7, %8
        """,
        """
        %0: float32[3]
        %1: float16[3]
        %2: float32[]  # constant
        on it
        %3 = divide(1.0, %0): float32[3]
        %4 = multiply(%3, 2.0): float32[3]
        %5 = add(%1, %2): float32[3]
        return %4, %5
        """,
    )


def test_a_filled_result_is_filled_at_each_run() -> None:
    text = """
        %0: float32[3]
        on it
        %1 = full(shape=(3,), value=0, dtype=polyhal.float32): float32[3]
        %0 <- %1
        return %1
        """
    check(fold_constants, text, text)


def test_constants_are_computed_once(numpy_device: Device) -> None:
    before = """
        %0: int64[4]
        on it
        %1 = arange(start=0, stop=4, step=1, dtype=polyhal.int64): int64[4]
        %2 = square(%1): int64[4]
        %3 = add(%0, %2): int64[4]
        return %3
        """
    after = """
        %0: int64[4]
        %1: int64[4]  # constant
        on it
        %2 = add(%0, %1): int64[4]
        return %2
        """
    check(fold_constants, before, after, numpy_device)
    (held,) = fold_constants(parse(before.replace("\n        ", "\n"), numpy_device)).constants
    np.testing.assert_array_equal(held.device.download(held.ref), [0, 1, 4, 9])


def test_constants_are_made_on_the_device_that_reads_them() -> None:
    """As the weight of a loss, whose gradient goes to another device."""
    home, other = Device("numpy"), Device("numpy:no_f64")

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        return x * (ph.full((2,), 0.5, device=home) + ph.arange(2, device=home)).to(other)

    for _ in range(3):
        assert step(ph.ones((2,), device=other)).tolist() == [0.5, 1.5]
    (graph,) = step.graphs
    assert "transfer" in str(graph)
    assert "transfer" not in str(remove_dead_code(fold_constants(graph)))


# --- algebra --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("multiply(%0, 1.0)", "%0"),
        ("multiply(1, %0)", "%0"),
        ("divide(%0, 1.0)", "%0"),
        ("divide(%0, 4.0)", "multiply(%0, 0.25)"),
        ("divide(%0, 3.0)", _KEPT),
        ("divide(1.0, %0)", _KEPT),
        ("add(%0, -0.0)", "%0"),
        ("add(%0, 0.0)", _KEPT),
        ("add(0, %0)", _KEPT),
        ("subtract(%0, 0.0)", "%0"),
        ("subtract(%0, -0.0)", _KEPT),
        ("subtract(0.0, %0)", _KEPT),
        ("multiply(%0, 0.0)", _KEPT),
        ("subtract(%0, %0)", _KEPT),
        ("divide(%0, %0)", _KEPT),
        ("maximum(%0, %0)", "%0"),
        ("where(%2, %0, %0)", "%0"),
        ("cast(%0, dtype=polyhal.float32)", "%0"),
        ("multiply(%1, 1.0)", _KEPT),
    ],
)
def test_one_op(written: str, left: str) -> None:
    """Values keep NaN, infinities and the sign of zero; `%1` is a row, so its product with a number has its shape."""
    shape = "[4]" if "%1" in written else "[3, 4]"
    head = "%0: float32[3, 4]\n%1: float32[4] strides [2]\n%2: bool_[3, 4]\non it\n"
    before = f"{head}%3 = {written}: float32{shape}\nreturn %3"
    if left == _KEPT:
        after = before
    elif left == "%0":
        after = head.replace("on it\n", "") + "return %0"
    else:
        after = f"{head}%3 = {left}: float32{shape}\nreturn %3"
    check(simplify_algebra, before, after)


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (["negative(%0)", "negative(%1)"], "%0"),
        (["negative(%0)", "abs(%1)"], "abs(%0)"),
        (["negative(%0)", "add(%0, %1)"], "subtract(%0, %0)"),
        (["negative(%0)", "subtract(%0, %1)"], "add(%0, %0)"),
        (["full(shape=(3,), value=True, dtype=polyhal.bool_)", "where(%1, %0, 2.0)"], "%0"),
        (["cast(%0, dtype=polyhal.float64)", "cast(%1, dtype=polyhal.float32)"], "%0"),
        (["cast(%0, dtype=polyhal.float16)", "cast(%1, dtype=polyhal.float32)"], _KEPT),
        (["cast(%0, dtype=polyhal.int64)", "cast(%1, dtype=polyhal.float32)"], _KEPT),
    ],
)
def test_two_ops(written: list[str], left: str) -> None:
    between = "bool_" if "full" in written[0] else "float32"
    for name in ("float64", "float16", "int64"):
        between = name if name in written[0] else between
    head = "%0: float32[3]\non it\n"
    before = f"{head}%1 = {written[0]}: {between}[3]\n%2 = {written[1]}: float32[3]\nreturn %2"
    if left == _KEPT:
        after = before
    else:
        after = "%0: float32[3]\nreturn %0" if left == "%0" else f"{head}%1 = {left}: float32[3]\nreturn %1"
    check(simplify_algebra, before, after)


def test_rules_hold_for_special_values() -> None:
    """Every rule, on the values that break careless ones, to the last bit and the sign of zero."""
    x = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-45, -3e38], np.float32)
    y = x[::-1]
    with np.errstate(invalid="ignore", over="ignore"):
        rules = [
            (x * np.float32(1), x),
            (x / np.float32(1), x),
            (x + np.float32(-0.0), x),
            (x - np.float32(0), x),
            (np.negative(-x), x),
            (np.abs(-x), np.abs(x)),
            (x / np.float32(4), x * np.float32(0.25)),
            (x + -y, x - y),
            (x - -y, x + y),
            (np.maximum(x, x), x),
            (x.astype(np.float64).astype(np.float32), x),
        ]
    for left, right in rules:
        np.testing.assert_array_equal(left, right)
        numbers = ~np.isnan(right)
        np.testing.assert_array_equal(np.signbit(left)[numbers], np.signbit(right)[numbers])


def test_a_device_without_kernels_keeps_its_ops() -> None:
    """The reference device does not rewrite the ops that `rich_device` fuses."""
    from polyhal.hal.compile.passes.pipeline import optimize

    text = "%0: float32[3]\non it\n%1 = exp(%0): float32[3]\n%2 = add(%1, %0): float32[3]\nreturn %2"
    assert [n.op.name for n in optimize(parse(text, Device("numpy"))).nodes] == ["exp", "add"]
    assert [n.op.name for n in optimize(parse(text, rich_device())).nodes] == ["fused_elementwise"]


def test_numbers_replace_tensors_that_were_made_of_them() -> None:
    """Only where the other operand has the dtype of that tensor: the sum with a vector in bfloat16 stays in float32."""
    check(
        simplify_algebra,
        """
        %0: float32[3]
        %1: bfloat16[3]
        %2: float32 number  # rate
        on it
        %3 = broadcast_scalar(%2, shape=(), dtype=polyhal.float32): float32[]
        %4 = broadcast_scalar(2, shape=(1,), dtype=polyhal.float32): float32[1]
        %5 = multiply(%0, %3): float32[3]
        %6 = subtract(%3, %5): float32[3]
        %7 = add(%1, %3): float32[3]
        %8 = add(%0, %4): float32[3]
        return %6, %7, %8
        """,
        """
        %0: float32[3]
        %1: bfloat16[3]
        %2: float32 number  # rate
        on it
        %3 = broadcast_scalar(%2, shape=(), dtype=polyhal.float32): float32[]
        %4 = broadcast_scalar(2, shape=(1,), dtype=polyhal.float32): float32[1]
        %5 = multiply(%0, %2): float32[3]
        %6 = subtract(%2, %5): float32[3]
        %7 = add(%1, %3): float32[3]
        %8 = add(%0, %4): float32[3]
        return %6, %7, %8
        """,
    )


def test_products_of_lists_are_split_if_all_parts_have_pointwise_neighbors() -> None:
    check(
        decompose,
        """
        %0: float32[3]
        %1: float32[2]
        %2: float32[]
        on it
        %3, %4 = scale_all(%0, %1, %2): float32[3], float32[2]
        %5 = exp(%3): float32[3]
        %6 = exp(%1): float32[2]
        %7, %8 = scale_all(%5, %6, %2): float32[3], float32[2]
        return %4, %7, %8
        """,
        """
        %0: float32[3]
        %1: float32[2]
        %2: float32[]
        on it
        %3, %4 = scale_all(%0, %1, %2): float32[3], float32[2]
        %5 = exp(%3): float32[3]
        %6 = exp(%1): float32[2]
        %7 = multiply(%5, %2): float32[3]
        %8 = multiply(%6, %2): float32[2]
        return %4, %7, %8
        """,
        rich_device(),
    )
