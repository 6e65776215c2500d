"""Chains of equal products of independent tensors become products of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal as ph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.fuse import batch_products as batch_products_module
from polyhal.hal.compile.passes.fuse.batch_products import batch_products
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code

from .golden import check
from .rich_device import rich_device

F = ph.functions


def _chains(lanes: int, weights: bool = False) -> str:
    """Return a graph: for each of `lanes` matrices the product with its transpose, or with a weight, then with itself."""
    lines = [f"%{i}: float32[2, 2]" for i in range(lanes * (1 + weights))] + ["on it"]
    value = len(lines) - 1
    for i in range(lanes):
        right = i + lanes if weights else value
        if not weights:
            lines.append(f"%{value} = permute(%{i}, axes=(1, 0)): float32[2, 2] strides [1, 2]")
            value += 1
        lines += [
            f"%{value} = matmul(%{i}, %{right}, out_dtype=None): float32[2, 2]",
            f"%{value + 1} = matmul(%{value}, %{i}, out_dtype=None): float32[2, 2]",
            f"%{value + 2} = relu(%{value + 1}): float32[2, 2]",
        ]
        value += 3
    step = 3 if weights else 4
    return "\n".join([*lines, "return " + ", ".join(f"%{value - 1 - step * (lanes - 1 - i)}" for i in range(lanes))])


def test_each_level_of_four_chains_is_one_product_of_a_batch() -> None:
    rows = "".join(f"%{i + 4} = reshape(%{i}, shape=(1, 2, 2)): float32[1, 2, 2]\n" for i in range(4))
    lanes = "".join(
        f"%{2 * i + 12} = slice(%11, starts=({i}, 0, 0), lengths=(1, 2, 2), steps=(1, 1, 1)): float32[1, 2, 2]{mark}\n"
        f"%{2 * i + 13} = reshape(%{2 * i + 12}, shape=(2, 2)): float32[2, 2]{mark}\n"
        for i, mark in enumerate(("", *[" unaligned"] * 3))
    )
    ends = "".join(f"%{20 + i} = relu(%{2 * i + 13}): float32[2, 2]\n" for i in range(4))
    check(
        batch_products,
        _chains(4),
        "".join(f"%{i}: float32[2, 2]\n" for i in range(4))
        + "on it\n"
        + rows
        + "%8 = concat(%4, %5, %6, %7, axis=0): float32[4, 2, 2]\n"
        + "%9 = permute(%8, axes=(0, 2, 1)): float32[4, 2, 2] strides [4, 1, 2]\n"
        + "%10 = matmul(%8, %9, out_dtype=None): float32[4, 2, 2]\n"
        + "%11 = matmul(%10, %8, out_dtype=None): float32[4, 2, 2]\n"
        + lanes
        + ends
        + "return %20, %21, %22, %23",
    )


def _count(text: str, *without: str) -> int:
    """Return the number of products after the pass, on a device that has no kernels for some ops."""
    graph = remove_dead_code(batch_products(parse(text, rich_device(*without))))
    return sum(node.op.name == "matmul" for node in graph.nodes)


def test_few_chains_and_chains_that_need_several_copies_are_left() -> None:
    """Matrices and weights are two columns for two products. Products of one chain depend on each other."""
    chain = "%0: float32[2, 2]\non it\n" + "".join(
        f"%{i + 1} = matmul(%{i}, %{i}, out_dtype=None): float32[2, 2]\n" for i in range(6)
    )
    assert _count(_chains(9)) == 2
    assert _count(_chains(3)) == 6
    assert _count(_chains(4, weights=True)) == 8
    assert _count(chain + "return %6") == 6
    assert _count(_chains(4), "matmul") == 8


def test_large_matrices_are_batched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_products_module, "MAX_STACKED", 20)
    assert _count(_chains(9)) == 4


# --- programs -----------------------------------------------------------------------------------------------------------


def _iterated(xs: Sequence[Any]) -> list[Any]:
    found = []
    for x in xs:
        y = x / (x * x).sum().sqrt()
        for _ in range(2):
            gram = y @ y.mT
            y = y * 1.5 + (gram * -0.5) @ y
        found.append(y * 2)
    return found


def _by_level_in_another_order(xs: Sequence[Any]) -> list[Any]:
    grams = {i: xs[i] @ xs[i].mT for i in reversed(range(len(xs)))}
    seconds = {i: grams[i] @ xs[i] for i in sorted(grams, key=lambda i: (i % 2, i))}
    return [F.tanh(seconds[i]) for i in range(len(xs))]


def _with_results_read_in_between(xs: Sequence[Any]) -> list[Any]:
    """The first product scales all others, and a view of each is read outside of the chain."""
    grams = [x @ x.mT for x in xs]
    scale = F.tanh(grams[0].sum())
    seconds = [(g * scale) @ x for g, x in zip(grams, xs, strict=True)]
    thirds = [g @ s for g, s in zip(grams, seconds, strict=True)]
    return [t.sum() + g.mT[1:].sum() + s[0, 1] for t, g, s in zip(thirds, grams, seconds, strict=True)]


def _returned_and_crossed(xs: Sequence[Any]) -> list[Any]:
    """Products are results themselves; each chain ends with the matrix of the next one."""
    grams = [x @ x.mT for x in xs]
    return [g @ y for g, y in zip(grams, [*xs[1:], xs[0]], strict=True)] + grams


PROGRAMS: list[Callable[[Sequence[Any]], list[Any]]] = [
    _iterated,
    _by_level_in_another_order,
    _with_results_read_in_between,
    _returned_and_crossed,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("device", PARITY_DEVICES)
def test_captured_chains_compute_the_results_of_eager_ops(device: str, program: Callable[..., list[Any]]) -> None:
    """Shapes differ between two groups of chains, and lanes of 3 by 5 elements are not aligned."""
    rng = np.random.default_rng(0)
    shapes = [(3, 5)] * 5 + [(4, 4)] * 4 + [(5, 3)]
    run, xs = ph.jit(program), [ph.tensor(rng.uniform(-1, 1, s).astype(np.float32), device=device) for s in shapes]
    if program is _returned_and_crossed:
        xs = xs[5:9]
    expected = program(xs)
    for _ in range(2):
        for found, other in zip(run(xs), expected, strict=True):
            # Sums of up to 25 terms of size 1, in three products in a row.
            np.testing.assert_allclose(found.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_results_of_captured_chains_do_not_share_memory() -> None:
    rng, device = np.random.default_rng(0), rich_device()
    xs = [ph.tensor(rng.uniform(-1, 1, (4, 4)).astype(np.float32), device=device) for _ in range(4)]
    run = ph.jit(_returned_and_crossed)
    results = run(xs)
    before = [r.numpy() for r in results]
    results[0] += 1
    for found, expected in zip(results[1:], before[1:], strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
