"""Small pointwise ops that do the same to many tensors become one op."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal
from polyhal import jit
from polyhal.hal.compile.passes.fuse.lists import fuse_lists

from .golden import check
from .rich_device import rich_device


def test_casts_of_inputs_and_of_results() -> None:
    check(
        fuse_lists,
        """
        %0: float32[2]
        %1: float32[3]
        %2: float32[2, 5]
        %3: float32[]
        on it
        %4 = cast(%0, dtype=polyhal.bfloat16): bfloat16[2]
        %5 = sum(%4, axis=(0,), keepdims=False): bfloat16[]
        %6 = cast(%5, dtype=polyhal.float32): float32[]
        %7 = cast(%1, dtype=polyhal.bfloat16): bfloat16[3]
        %8 = sum(%7, axis=(0,), keepdims=False): bfloat16[]
        %9 = cast(%8, dtype=polyhal.float32): float32[]
        %10 = cast(%2, dtype=polyhal.bfloat16): bfloat16[2, 5]
        %11 = sum(%10, axis=(0, 1), keepdims=False): bfloat16[]
        %12 = cast(%11, dtype=polyhal.float32): float32[]
        %13 = cast(%3, dtype=polyhal.bfloat16): bfloat16[]
        %14 = sum(%13, axis=(), keepdims=False): bfloat16[]
        %15 = cast(%14, dtype=polyhal.float32): float32[]
        %16 = reshape(%6, shape=(1,)): float32[1]
        return %16, %9, %12, %15
        """,
        """
        %0: float32[2]
        %1: float32[3]
        %2: float32[2, 5]
        %3: float32[]
        on it
        %4, %5, %6, %7 = foreach_elementwise(%0, %1, %2, %3, lists=1, count=4, steps=(('cast', (0,), (polyhal.bfloat16,)),), results=(1,), sums=()): bfloat16[2], bfloat16[3], bfloat16[2, 5], bfloat16[]
        %8 = sum(%4, axis=(0,), keepdims=False): bfloat16[]
        %9 = sum(%5, axis=(0,), keepdims=False): bfloat16[]
        %10 = sum(%6, axis=(0, 1), keepdims=False): bfloat16[]
        %11 = sum(%7, axis=(), keepdims=False): bfloat16[]
        %12, %13, %14, %15 = foreach_elementwise(%8, %9, %10, %11, lists=1, count=4, steps=(('cast', (0,), (polyhal.float32,)),), results=(1,), sums=()): float32[], float32[], float32[], float32[]
        %16 = reshape(%12, shape=(1,)): float32[1]
        return %16, %13, %14, %15
        """,  # noqa: E501
        rich_device(),
    )


def test_chains_of_the_same_op_shared_operands_and_groups_of_few_are_not_merged() -> None:
    text = """
        %0: float32[2]
        %1: float32[]
        %2: float32 number  # rate
        on it
        %3 = multiply(%0, 2.0): float32[2]
        %4 = multiply(%3, 2.0): float32[2]
        %5 = multiply(%4, 2.0): float32[2]
        %6 = multiply(%5, 2.0): float32[2]
        %7 = multiply(%6, %1): float32[2]
        %8 = multiply(%6, %2): float32[2]
        %9 = multiply(%6, 2): float32[2]
        return %7, %8, %9
        """
    # The product with the rate waits in vain for three others.
    product, last = "%8 = multiply(%6, %2): float32[2]\n        ", "%9 = multiply(%6, 2): float32[2]\n        "
    after = text.replace(product + last, last.replace("%9", "%8") + product.replace("%8", "%9"))
    check(fuse_lists, text, after.replace("return %7, %8, %9", "return %7, %9, %8"), rich_device())


def test_groups_share_tensors_without_axes_and_numbers() -> None:
    rows = range(4)
    inputs = "".join(f"        %{i}: float32[{i + 2}]\n" for i in rows) + "        %4: float32[]\n        on it\n"
    steps = "(('multiply', (0, 1), ()), ('add', (2, 0), ()))"
    before = "".join(
        f"        %{i + 5} = fused_elementwise(%4, %{i}, "
        f"steps=(('multiply', (1, 0), ()), ('add', (2, 1), ())), results=(3,), reduction=None): float32[{i + 2}]\n"
        for i in rows
    )
    found = ", ".join(f"float32[{i + 2}]" for i in rows)
    after = (
        f"        %5, %6, %7, %8 = foreach_elementwise(%0, %1, %2, %3, %4, lists=1, count=4, steps={steps}, results=(3,), "
        f"sums=()): {found}\n"
    )
    end = "        return %5, %6, %7, %8\n"
    check(fuse_lists, inputs + before + end, inputs + after + end, rich_device())


def test_numbers_of_some_tensors_and_tensors_of_others_are_two_groups() -> None:
    """One of both would list a number and a vector in the same position."""
    inputs = """
        %0: float32[2]
        %1: float32[2]
        %2: float32[]
        %3: float32[]
        on it
        """
    before = """%4 = multiply(%0, %1): float32[2]
        %5 = multiply(%1, %0): float32[2]
        %6 = multiply(%0, %2): float32[2]
        %7 = multiply(%1, %3): float32[2]
        """
    grouped = "lists=2, count=2, steps=(('multiply', (0, 1), ()),), results=(2,), sums=()): float32[2], float32[2]"
    after = f"""%4, %5 = foreach_elementwise(%0, %1, %1, %0, {grouped}
        %6, %7 = foreach_elementwise(%0, %1, %2, %3, {grouped}
        """
    end = "return %4, %5, %6, %7\n        "
    check(fuse_lists, inputs + before + end, inputs + after + end, rich_device())


def test_nothing_where_the_device_has_no_kernel() -> None:
    lines = [f"        %{i}: float32[2]" for i in range(4)] + ["        on it"]
    lines += [f"        %{i + 4} = exp(%{i}): float32[2]" for i in range(4)] + ["        return %4, %5, %6, %7"]
    text = "\n".join(lines) + "\n"
    check(fuse_lists, text, text, rich_device("foreach_elementwise"))


@pytest.mark.parametrize("repeated", [False, True])
def test_updates_in_place_compute_the_same(repeated: bool) -> None:
    """Counts that are counted up, and a vector that is exchanged with another: each value is read before it is replaced."""
    device = rich_device()

    def make() -> list[Any]:
        rng = np.random.default_rng(0)
        return [polyhal.tensor(rng.standard_normal(i + 1, np.float32), device=device) for i in range(9)]

    def step(xs: list[Any]) -> Any:
        for x in xs:
            x.mul_(0.5).add_(1.0)
        if repeated:
            old = xs[3] * 1.0
            for x in xs[3:8]:
                x.add_(x)
            return old + xs[3]
        return xs[3] * 1.0

    eager, recorded = make(), make()
    run = jit(lambda: step(recorded))
    for _ in range(4):
        wanted, found = step(eager), run()
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
        for x, y in zip(eager, recorded, strict=True):
            np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert "foreach_elementwise" in str(run.explain())


@pytest.mark.parametrize("kind", ["float32[]", "float32 number  # rate"], ids=["on the device", "on the host"])
@pytest.mark.parametrize("several", [True, False], ids=["one of each tensor", "one of all"])
def test_numbers_may_differ_from_tensor_to_tensor(several: bool, kind: str) -> None:
    """As step counts, or corrections computed from them, that an optimizer keeps for each parameter."""
    rows = range(4)
    numbers = [f"        %{4 + i}: {kind}\n" for i in rows if several or not i]
    count = 4 + len(numbers)
    inputs = "".join(f"        %{i}: float32[{i + 2}]\n" for i in rows) + "".join(numbers) + "        on it\n"
    before = "".join(f"        %{count + i} = multiply(%{i}, %{4 + i * several}): float32[{i + 2}]\n" for i in rows)
    results = ", ".join(f"%{count + i}" for i in rows)
    operands = ", ".join(f"%{i}" for i in range(count))
    found = ", ".join(f"float32[{i + 2}]" for i in rows)
    lists = 2 if several else 1
    after = (
        f"        {results} = foreach_elementwise({operands}, lists={lists}, count=4, steps=(('multiply', (0, 1), ()),), "
        f"results=(2,), sums=()): {found}\n"
    )
    end = f"        return {results}\n"
    check(fuse_lists, inputs + before + end, inputs + after + end, rich_device())


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("device", PARITY_DEVICES)
def test_recorded_numbers_of_each_tensor_compute_the_results_of_eager_ops(device: str, on_host: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2, (i + 1, 3)).astype(np.float32) for i in range(6)]
    numbers = rng.uniform(0.5, 2, 6).astype(np.float32)
    xs = [polyhal.tensor(x, device=device) for x in arrays]
    on_device = [polyhal.tensor(n, device=device) for n in numbers]

    def step() -> list[polyhal.Tensor]:
        counts: list[Any] = on_device
        if on_host:
            counts = [polyhal.runtime_scalar(partial(float, n), "count") for n in numbers]
        return [(x / count + count) * x for x, count in zip(xs, counts, strict=True)]

    run = jit(step)
    for _ in range(3):
        for result, x, number in zip(run(), arrays, numbers, strict=True):
            np.testing.assert_allclose(result.numpy(), (x / number + number) * x, rtol=4e-7)
