"""Values and gradients at infinities, NaN and very large numbers that differ from PyTorch's on purpose, by op."""

from __future__ import annotations

import re
import warnings
from typing import NamedTuple

import numpy as np

from benchmarks.reliability.programs.execute import run
from benchmarks.reliability.programs.judge import Difference
from benchmarks.reliability.programs.libraries import PyTorch
from benchmarks.reliability.programs.program import Program

_LARGE = 1e4


class Limit(NamedTuple):
    """Calls, and the two numbers that they may differ by."""

    calls: str
    """A pattern of their text."""
    ours: str
    """Polyhal's number: `nan`, `number` (which PyTorch has not), or `other`: neither library has NaN."""
    reason: str
    gradients_alone: bool = False


_FORMULA = "the limit, where PyTorch's formula is a difference, a quotient or a product of infinities and zeros"
LIMITS = (
    Limit(r"quantile\(|interpolate\(|trapezoid\(|kl_div\(|logcumsumexp\(|var_mean\(", "number", _FORMULA),
    Limit(r"airy_ai\(|zeta\(|bessel_\w+\(|log_ndtr\(|softsign\(|logaddexp2?\(|copysign_?\(", "number", _FORMULA),
    Limit(r"batch_norm\(|layer_norm\(|LayerNorm\(|BatchNorm\w+\(|prod\(", "number", _FORMULA),
    Limit(r"scaled_dot_product_attention\(|MultiheadAttention\(", "number", "excluded keys and values are not read"),
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
    Limit(
        r"searchsorted\(|bucketize\(", "other", "NaN is the largest element, where PyTorch takes it for the smallest"
    ),
)
"""Ops that follow NaN, infinities and zeros to their limits."""


def at_a_limit(program: Program, difference: Difference) -> bool:
    """Return whether a value differs at an infinity, NaN or a very large number, in a program with an op of the table."""
    found = re.match(r"(\S+) at .*, expected (\S+),", difference.text)
    if difference.kind != "value" or not found or not _is_special(program):
        return False
    ours, theirs = ("nan" in number for number in found.groups())
    kind = "other" if ours == theirs else "nan" if ours else "number"
    text = "\n".join(s.text for s in program.statements)
    is_gradient = difference.name.endswith(".grad") or "autograd.grad(" in text
    return any(
        limit.ours == kind and re.search(limit.calls, text) and (is_gradient or not limit.gradients_alone)
        for limit in LIMITS
    )


def _is_special(program: Program) -> bool:
    """Return whether an infinity, NaN or a very large number is among the program's values in PyTorch."""
    arrays = [leaf.values for leaf in program.leaves]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays += [v.array for v in run(program, PyTorch())[0].values.values()]
    return any((~(np.abs(a.astype(float)) < _LARGE)).any() for a in arrays if a.dtype.kind != "c")
