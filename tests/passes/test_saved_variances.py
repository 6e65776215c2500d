"""A backward pass reads the variances of the forward pass instead of computing them from inverse standard deviations."""

from __future__ import annotations

import textwrap

import pytest

from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.passes.simplify.saved_variances import restore_variances

from .golden import check
from .rich_device import rich_device

_SAVED = """
    %0: float32[2, 3, 4, 4]
    %1: float32[3]
    on it
    %2, %3, %4 = batch_norm(%0, %1, %1, eps=1e-05): float32[2, 3, 4, 4], float32[3], float32[3]
    %5 = add(%4, 1e-05): float32[3]
    %6 = rsqrt(%5): float32[3]
    %7 = square(%6): float32[3]
    %8 = divide(1.0, %7): float32[3]
    %9 = subtract(%8, 1e-05): float32[3]
    %10, %11, %12 = batch_norm_grad(%2, %0, %1, %3, %9, eps=1e-05): float32[2, 3, 4, 4], float32[3], float32[3]
    return %10, %11, %12
    """


def test_a_gradient_reads_the_variance() -> None:
    check(
        lambda graph: remove_dead_code(restore_variances(graph)),
        _SAVED,
        """
        %0: float32[2, 3, 4, 4]
        %1: float32[3]
        on it
        %2, %3, %4 = batch_norm(%0, %1, %1, eps=1e-05): float32[2, 3, 4, 4], float32[3], float32[3]
        %5, %6, %7 = batch_norm_grad(%2, %0, %1, %3, %4, eps=1e-05): float32[2, 3, 4, 4], float32[3], float32[3]
        return %5, %6, %7
        """,
    )


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        ("subtract(%8, 1e-05)", "subtract(%8, 1e-03)"),
        ("divide(1.0, %7)", "divide(2.0, %7)"),
        ("add(%4, 1e-05)", "add(%3, 1e-05)"),  # a mean may be negative
        ("square(%6)", "exp(%6)"),
    ],
)
def test_near_misses_are_computed(found: str, changed: str) -> None:
    text = textwrap.dedent(_SAVED).replace(found, changed)
    assert text != textwrap.dedent(_SAVED)
    graph = parse(text, rich_device())
    assert str(restore_variances(graph)) == str(graph)
