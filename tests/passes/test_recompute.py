"""Later groups of pointwise ops compute cheap values again instead of reading them."""

from __future__ import annotations

import textwrap

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.fuse.elementwise import fuse_elementwise
from polyhal.hal.compile.passes.fuse.recompute import recompute_cheap
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code

from .golden import check
from .rich_device import rich_device

_GATE = """
    %0: float32[4, 8]
    %1: float32[8, 8]
    on it
    %2 = matmul(%0, %1, out_dtype=None): float32[4, 8]
    %3 = multiply(%2, 0.5): float32[4, 8]
    %4 = tanh(%2): float32[4, 8]
    %5 = add(%4, 1.0): float32[4, 8]
    %6 = multiply(%3, %5): float32[4, 8]
    %7 = matmul(%6, %1, out_dtype=None): float32[4, 8]
    %8 = multiply(%7, %3): float32[4, 8]
    %9 = multiply(%7, %5): float32[4, 8]
    %10 = tanh_grad(%8, %4): float32[4, 8]
    %11 = add(%9, %10): float32[4, 8]
    %12 = matmul(%11, %1, out_dtype=None): float32[4, 8]
    return %12
    """


def _groups(text: str) -> list[str]:
    """Return the lines of groups of pointwise ops, without their places."""
    graph = parse(textwrap.dedent(text), rich_device())
    fused: Graph = fuse_elementwise(remove_dead_code(recompute_cheap(graph)))
    return [line.strip() for line in str(fused).splitlines() if "= fused_elementwise(" in line]


def test_a_gate_stores_only_its_costly_part() -> None:
    forward, backward = _groups(_GATE)
    assert forward.count("float32[4, 8]") == 2  # its result, and tanh
    assert [forward.count(name) for name in ("tanh", "multiply", "add")] == [1, 2, 1]
    assert [backward.count(name) for name in ("'tanh'", "'multiply'", "'add'")] == [0, 3, 2]
    assert backward.startswith("%6 = fused_elementwise(%2, 0.5, %5, %3, ")


def test_values_with_other_readers_are_read() -> None:
    """A product reads the gate as well, so that it is in memory."""
    text = _GATE.replace("return %12", "%13 = matmul(%5, %1, out_dtype=None): float32[4, 8]\n    return %12, %13")
    _, backward = _groups(text)
    assert backward.count("'add'") == 1


def test_operands_larger_than_the_value_are_not_kept_for_it() -> None:
    text = """
        %0: float32[4, 8]
        %1: float32[8, 8]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[4, 8]
        %3 = greater(%2, 0.0): bool_[4, 8]
        %4 = where(%3, %2, 0.1): float32[4, 8]
        %5 = matmul(%4, %1, out_dtype=None): float32[4, 8]
        %6 = where(%3, %5, 0.0): float32[4, 8]
        %7 = matmul(%6, %1, out_dtype=None): float32[4, 8]
        return %7
        """
    check(recompute_cheap, text, text)


def test_inputs_that_the_step_replaces_are_not_read_later() -> None:
    text = """
        %0: float32[4, 8]
        %1: float32[8, 8]
        on it
        %2 = multiply(%0, 0.5): float32[4, 8]
        %3 = add(%2, 1.0): float32[4, 8]
        %4 = matmul(%3, %1, out_dtype=None): float32[4, 8]
        %5 = multiply(%4, %2): float32[4, 8]
        %0 <- %4
        return %5
        """
    check(recompute_cheap, text, text)
    assert len(_groups(text)) == 1
    assert len(_groups(text.replace("%0 <- %4", ""))) == 2
