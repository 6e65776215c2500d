"""Values and gradients at infinities, NaN and very large numbers that differ from PyTorch's on purpose, by op."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.reliability.programs.difference import Difference, WrongValue
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.trace import Step, trace

_LARGE = 1e4


class Limit(NamedTuple):
    """Calls, and the two numbers that they may differ by."""

    calls: str
    """A pattern of their text."""
    ours: str
    """Polyhal's number: `nan`, `number` (PyTorch has NaN), `finite` (PyTorch has an infinity), or `other`: none has NaN."""
    reason: str
    gradients_alone: bool = False
    at_zero: bool = False
    """Zeros among the operands are enough."""
    dtype: str = ""
    """The dtype of the numbers; empty for each one."""


_FORMULA = "the limit, where PyTorch's formula is a difference, a quotient or a product of infinities and zeros"
_ORDER = "products in another order: A(AA) or (AA)A"
_BORDER = (
    "kernels multiply the zeros around an image by weights of NaN and infinity, as PyTorch's padding of `conv2d` does"
)
LIMITS = (
    Limit(r"quantile\(|interpolate\(|trapezoid\(|kl_div\(|logcumsumexp\(|var_mean\(|nanmean\(", "number", _FORMULA),
    Limit(
        r"airy_ai\(|erfcx\(|zeta\(|bessel_\w+\(|log_ndtr\(|softsign\(|logaddexp2?\(|copysign_?\(", "number", _FORMULA
    ),
    Limit(r"batch_norm\(|layer_norm\(|LayerNorm\(|BatchNorm\w+\(|prod\(", "number", _FORMULA),
    Limit(
        r"logcumsumexp\(",
        "nan",
        "NaN that arrives stays NaN, where PyTorch takes logarithms of positive and of negative gradients, and NaN is neither",
        gradients_alone=True,
    ),
    Limit(r"scaled_dot_product_attention\(|MultiheadAttention\(", "number", "excluded keys and values are not read"),
    Limit(r"\b(addmm|addmv|addbmm|baddbmm)\(", "nan", "the product overflows before it is added", dtype="float16"),
    Limit(r"matrix_power\(", "nan", _ORDER),
    Limit(r"matrix_power\(", "number", _ORDER),
    Limit(r"copysign_?\(", "number", "the second derivative is 0", gradients_alone=True, at_zero=True),
    Limit(r"hypot\(", "number", "the derivative at 0 is 0, as a norm's", gradients_alone=True, at_zero=True),
    Limit(r"sinc\(", "number", "the second derivative at 0 is its limit", gradients_alone=True, at_zero=True),
    Limit(
        r"scatter_reduce\(.*'a(max|min)'",
        "number",
        "NaN equals no element, and PyTorch divides by the number of elements that are equal to the result",
        gradients_alone=True,
    ),
    Limit(r"soft_margin_loss\(", "number", "the derivative of this logarithm is its limit", gradients_alone=True),
    Limit(r"soft_margin_loss\(", "finite", "the logarithm of a sum of exponentials that are infinite in PyTorch"),
    Limit(
        r"torch\.complex\(", "number", "the gradient of an infinite absolute value is the limit", gradients_alone=True
    ),
    Limit(r"\bsign_?\(|multi_margin_loss\(|polynomial_\w\(|igammac?\(", "nan", "NaN stays NaN"),
    Limit(
        r"\babs_?\(|l1_loss\(|vector_norm\(\w+, 1|i1e?\(",
        "nan",
        "the derivative at NaN is NaN; PyTorch's sign of NaN is 0, and its Bessel functions take NaN for 0",
        gradients_alone=True,
    ),
    Limit(
        r"\b[cs]?elu_?\(|hardswish\(|hardtanh\(|relu6\(",
        "nan",
        "NaN at NaN, where PyTorch has the one or the other by the position in the tensor",
        gradients_alone=True,
    ),
    Limit(r"conv_transpose\dd\(|ConvTranspose\dd\(", "nan", _BORDER),
    Limit(r"\bconv\dd\(|\bConv\dd\(", "nan", _BORDER, gradients_alone=True),
    Limit(
        r"searchsorted\(|bucketize\(", "other", "NaN is the largest element, where PyTorch takes it for the smallest"
    ),
)
"""Ops that follow NaN, infinities and zeros to their limits."""
_TRUTH_OF_NAN = (
    (r"isnan\(|\bne\(|not_equal\(", True),
    (r"isfinite\(|\b(eq|less|less_equal|greater|greater_equal)\(", False),
)
"""Ops with truth values, and the value for NaN."""


def at_a_limit(program: Program, difference: Difference) -> bool:
    """Return whether a value differs at an infinity, NaN or a very large number of an op of the table that it depends on."""
    if not isinstance(difference, WrongValue) or difference.ours.dtype.kind == "c":
        return False
    is_nan, theirs_is_nan = np.isnan(difference.ours), np.isnan(difference.theirs)
    marked = {
        "nan": is_nan & ~theirs_is_nan,
        "number": ~is_nan & theirs_is_nan,
        "finite": np.isfinite(difference.ours) & np.isinf(difference.theirs),
        "other": ~is_nan & ~theirs_is_nan,
    }
    steps = trace(program, difference.call).behind(difference.name)
    if difference.dtype == "bool":
        return _shows_a_limit(difference, steps)
    is_gradient = difference.is_gradient or any(s.calls(r"autograd\.grad\(|\.grad\b") for s in steps)
    explained = np.zeros(len(is_nan), bool)
    limits = [x for x in LIMITS if marked[x.ours].any() and x.dtype in ("", difference.dtype)]
    for limit in (x for x in limits if is_gradient or not x.gradients_alone):
        calls = [s for s in steps if s.calls(limit.calls)]
        if any(_is_special(s) or (limit.at_zero and _has_zero(s)) for s in calls):
            explained |= marked[limit.ours]
    return bool(explained.all())


def _shows_a_limit(difference: WrongValue, steps: list[Step]) -> bool:
    """Return whether truth values tell NaN from a number, all in the same way, where an op of the table has one of both."""
    asks = [of_nan for calls, of_nan in _TRUTH_OF_NAN if steps and steps[-1].calls(calls)]
    for limit in LIMITS:
        is_ours = {"nan": True, "number": False}.get(limit.ours)
        if is_ours is None or limit.gradients_alone or not any(s.calls(limit.calls) and _is_special(s) for s in steps):
            continue
        if any(bool((difference.ours == (of_nan if is_ours else not of_nan)).all()) for of_nan in asks):
            return True
    return False


def _is_special(step: Step) -> bool:
    """Return whether an infinity, NaN or a very large number is among a statement's operands and results."""
    return any((~(np.abs(a.astype(float)) < _LARGE)).any() for a in step.arrays() if a.dtype.kind != "c")


def _has_zero(step: Step) -> bool:
    return any((a == 0).any() for a in step.before.values())
