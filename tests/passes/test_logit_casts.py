"""Losses read logits in half precision, and write their gradients in it, where programs cast both."""

from __future__ import annotations

import textwrap

import polyhal as ph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.simplify.logit_casts import remove_logit_casts

from .golden import check
from .rich_device import rich_device

_CAST = """
    %0: bfloat16[2, 4, 7]
    %1: int64[8]
    %2: float32[8]
    on it
    %3 = cast(%0, dtype=polyhal.float32): float32[2, 4, 7]
    %4 = reshape(%3, shape=(8, 7)): float32[8, 7]
    %5, %6 = cross_entropy_rows(%4, %1, ignore_index=-100, label_smoothing=0.0): float32[8], float32[8, 2]
    %7 = cross_entropy_rows_grad(%2, %4, %1, %6, ignore_index=-100, label_smoothing=0.0, columns=0): float32[8, 7]
    %8 = reshape(%7, shape=(2, 4, 7)): float32[2, 4, 7]
    %9 = cast(%8, dtype=polyhal.bfloat16): bfloat16[2, 4, 7]
    %10 = exp(%9): bfloat16[2, 4, 7]
    return %5, %10
    """


def _gradient(text: str) -> str:
    """Return the line of the loss's gradient after the pass."""
    after = str(remove_logit_casts(parse(textwrap.dedent(text), rich_device())))
    (found,) = (line for line in after.splitlines() if "cross_entropy_rows_grad(" in line)
    return found


def test_casts_around_a_loss() -> None:
    check(
        remove_logit_casts,
        _CAST,
        """
        %0: bfloat16[2, 4, 7]
        %1: int64[8]
        %2: float32[8]
        on it
        %3 = reshape(%0, shape=(8, 7)): bfloat16[8, 7]
        %4, %5 = cross_entropy_rows(%3, %1, ignore_index=-100, label_smoothing=0.0): float32[8], float32[8, 2]
        %6 = reshape(%0, shape=(8, 7)): bfloat16[8, 7]
        %7 = cross_entropy_rows_grad(%2, %6, %1, %5, ignore_index=-100, label_smoothing=0.0, columns=0): bfloat16[8, 7]
        %8 = reshape(%7, shape=(2, 4, 7)): bfloat16[2, 4, 7]
        %9 = exp(%8): bfloat16[2, 4, 7]
        return %4, %9
        """,
    )


def test_logits_that_are_shifted_after_the_cast() -> None:
    """The loss leaves out the last token, so that its gradient gets a row of zeros."""
    found = _gradient(
        """
        %0: float16[2, 4, 7]
        %1: int64[6]
        %2: float32[6]
        on it
        %3 = cast(%0, dtype=polyhal.float32): float32[2, 4, 7]
        %4 = slice(%3, starts=(0, 0, 0), lengths=(2, 3, 7), steps=(1, 1, 1)): float32[2, 3, 7] strides [28, 7, 1]
        %5 = contiguous(%4): float32[2, 3, 7]
        %6 = reshape(%5, shape=(6, 7)): float32[6, 7]
        %7, %8 = cross_entropy_rows(%6, %1, ignore_index=-100, label_smoothing=0.0): float32[6], float32[6, 2]
        %9 = cross_entropy_rows_grad(%2, %6, %1, %8, ignore_index=-100, label_smoothing=0.0, columns=0): float32[6, 7]
        %10 = reshape(%9, shape=(2, 3, 7)): float32[2, 3, 7]
        %11 = pad(%10, widths=((0, 0), (0, 1), (0, 0)), value=0): float32[2, 4, 7]
        %12 = cast(%11, dtype=polyhal.float16): float16[2, 4, 7]
        return %7, %12
        """
    )
    assert found.endswith("float16[6, 7]")


def test_a_gradient_that_is_read_in_float32_is_computed_in_it() -> None:
    for text in (
        _CAST.replace("return %5, %10", "return %5, %10, %7"),
        _CAST.replace("return %5, %10", "return %5, %10, %8"),
        _CAST.replace("%10 = exp(%9): bfloat16[2, 4, 7]", "%10 = exp(%8): float32[2, 4, 7]"),
        _CAST.replace("dtype=polyhal.bfloat16): bfloat16", "dtype=polyhal.float16): float16").replace(
            "exp(%9): b", "exp(%9): "
        ),
    ):
        assert _gradient(text).endswith("float32[8, 7]")


def test_logits_that_were_rounded_are_read_as_they_are() -> None:
    """A cast of wider logits rounds, which no kernel repeats."""
    text = _CAST.replace("%0: bfloat16", "%0: float64").replace("bfloat16", "float64")
    check(remove_logit_casts, text, text)


def test_nothing_without_a_kernel() -> None:
    for device in (rich_device("cross_entropy_rows", "cross_entropy_rows_grad"), ph.Device("numpy")):
        check(remove_logit_casts, _CAST, _CAST, device)
