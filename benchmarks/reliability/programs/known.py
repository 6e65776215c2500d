"""Differences from PyTorch that are meant, with their reasons. All others are findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.reliability.programs.judge import Difference
from benchmarks.reliability.programs.program import Program


class Known(NamedTuple):
    """A kind of difference that is meant."""

    name: str
    reason: str
    is_it: Callable[[Program, Difference], bool]


def _stricter(program: Program, difference: Difference) -> bool:
    """Polyhal's error alone, by an op whose gradient keeps its own result or operand, as the fused kernel needs it."""
    found = re.search(r"\(\[(\w+)\] '\w+' was changed in place after it was saved", difference.text)
    if (
        difference.kind == "raises"
        and "[multiply]" in difference.text
        and any(s.op == "kron" for s in program.statements)
    ):
        return True
    if "modified by an inplace operation" in difference.text and "ScaledDotProd" in difference.text:
        return difference.kind == "raises"  # by PyTorch, on the device
    expected = difference.text.rpartition("expected ")[2]
    fails = any(
        len(position) < 4 for position in re.findall(r"(\d+): '", expected)
    )  # statements that may fail count from 1000
    return difference.kind == "raises" and not fails and bool(found) and found[1] in _KEEP


def _broadcast_gradient(program: Program, difference: Difference) -> bool:
    """Polyhal's error at a write to what `autograd.grad` returned."""
    found = re.match(
        r"\{.*?(-?\d+): '\w+'\} \(\[\w+\] elements of the tensor share memory, as after a broadcast", difference.text
    )
    if difference.kind != "raises" or not found or int(found[1]) >= len(program.body):
        return False
    position = int(found[1])
    failed = program.body if position < 0 else program.body[position : position + 1]  # -1: somewhere in a captured function
    made: set[str] = set()
    for s in program.body:
        if "autograd.grad(" in s.text or s.operands & made:
            made |= set(s.targets)
    return any(made & s.operands for s in failed)


def _gradient_that_may_vary(program: Program, difference: Difference) -> bool:
    return difference.kind == "requires_grad" and "create_graph=True" in program.text()


def _gradient_at_nan(program: Program, difference: Difference) -> bool:
    special = any(np.isnan(leaf.values.astype(float)).any() for leaf in program.leaves)
    return special and difference.name.endswith(".grad") and difference.text.startswith("nan at")


def _sign_of_zero(program: Program, difference: Difference) -> bool:
    found = re.match(r"(\S+) at .*, expected (\S+),", difference.text)
    signs = any(s.op in ("copysign", "atan2", "angle", "reciprocal") for s in program.statements)
    return difference.kind == "value" and signs and bool(found) and _opposite(float(found[1]), float(found[2]))


def _opposite(a: float, b: float) -> bool:
    return a == -b or abs(a + b) <= 1e-5 * abs(b)


def _written_checkpoint(program: Program, difference: Difference) -> bool:
    return difference.kind == "raises" and "([checkpoint] the function did something else" in difference.text


def _copied_by_pytorch(program: Program, difference: Difference) -> bool:
    found = difference.kind == "raises" and re.search(r"\(\[matmul\] '\w+' was changed in place", difference.text)
    return bool(found) and "tensordot(" in program.text()


def _defined_gradient(program: Program, difference: Difference) -> bool:
    return difference.kind == "raises" and bool(
        re.match(r"no error \(\), expected .*derivative for aten::\w+ is not implemented", difference.text)
    )


def _not_finite(program: Program, difference: Difference) -> bool:
    found = re.match(r"(\S+) at .*, expected (\S+),", difference.text)
    if difference.kind != "value" or not found or not _holds(program, np.isfinite):
        return False
    text = program.text()
    ours, theirs = float(found[1]), float(found[2])
    if np.isnan(theirs) and not np.isnan(ours):
        return any(f"{name}(" in text for name in ("quantile", "interpolate", "airy_ai", "zeta"))
    if np.isnan(ours) and theirs in (0.0, 1.0):
        return "igamma" in text
    return _holds(program, lambda values: ~np.isnan(values)) and ("searchsorted(" in text or "bucketize(" in text)


def _holds(program: Program, usual: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether a leaf has an element that is not usual."""
    return any(not usual(leaf.values.astype(float)).all() for leaf in program.leaves)


def _bessel(program: Program, difference: Difference) -> bool:
    found = re.match(r"(\S+) at .*, expected (\S+),", difference.text)
    if difference.kind != "value" or not found or "bessel_" not in program.text():
        return False
    return abs(float(found[1]) - float(found[2])) < 1e-7


def _zero_for_none(program: Program, difference: Difference) -> bool:
    return difference.kind == "extra" and difference.name.endswith(".grad") and difference.text.startswith("only zeros")


_KEEP = frozenset(
    (
        *("attention", "max", "min", "amax", "amin", "cross_entropy_rows", "mean_cross_entropy"),
        *("hypot", "ndtr", "rms_norm", "tanhshrink"),
    )
)

KNOWN = (
    Known(
        "keeps more for the gradient",
        "Attention and maxima keep their result for the gradient and cross entropy its logits: PyTorch keeps others (indices, "
        "probabilities). `abs` of complex numbers keeps its result, `tanhshrink` and `ndtr` their operand and `rms_norm` its "
        "weight, where PyTorch keeps numbers in between. A write to it between forward and backward pass is an error here and "
        "none there. PyTorch does not notice a write to an operand of `kron`.",
        _stricter,
    ),
    Known(
        "a gradient is a broadcast",
        "A gradient that `autograd.grad` returns may be a broadcast of one number where PyTorch's is not (that of `mean`), and "
        "the other way round; a write to it is an error that says to clone it.",
        _broadcast_gradient,
    ),
    Known(
        "a gradient that may vary",
        "With `create_graph` a gradient that is constant (that of `cummax` or `softshrink`) may require a gradient in one "
        "library alone, which is 0.",
        _gradient_that_may_vary,
    ),
    Known(
        "a gradient at NaN",
        "The gradient of a piecewise function (`elu`) at NaN is NaN here, in PyTorch that of its last piece.",
        _gradient_at_nan,
    ),
    Known(
        "the sign of a zero",
        "The sign of the zero that `softshrink` makes of -0.0 depends in PyTorch on the position in the tensor; `copysign` and "
        "`atan2` show it.",
        _sign_of_zero,
    ),
    Known(
        "an argument of a checkpoint is written to",
        "A write to an argument of a checkpointed function before its backward pass is an error here; PyTorch computes "
        "again with the new values.",
        _written_checkpoint,
    ),
    Known(
        "PyTorch copies",
        "`tensordot` of axes of length 1 keeps sums in PyTorch, which are copies, and its operand here.",
        _copied_by_pytorch,
    ),
    Known(
        "a gradient that PyTorch does not have",
        "Derivatives that are 0 almost everywhere (`heaviside`) are defined here, and not implemented in PyTorch.",
        _defined_gradient,
    ),
    Known(
        "at infinities and NaN",
        "PyTorch's quantile between equal infinities, its `interpolate` to the same size of an infinity and its `airy_ai` and "
        "`zeta` at infinity are NaN, from a difference or product of infinities; here they are the limits. Its "
        "`igammac(inf, nan)` is 1, and its `searchsorted` takes a NaN in the sequence for the smallest element: here NaN, and "
        "the largest.",
        _not_finite,
    ),
    Known(
        "Bessel functions",
        "PyTorch's Bessel functions are off by up to 1e-8 in double precision.",
        _bessel,
    ),
    Known(
        "zeros for no gradient",
        "An argument that no result depends on has gradient 0 after a captured forward pass (as with `torch.compile`), and "
        "none after an eager one.",
        _zero_for_none,
    ),
)


def explained(program: Program, difference: Difference) -> str:
    """The name of the known difference that this is; empty if it is a finding."""
    return next((k.name for k in KNOWN if k.is_it(program, difference)), "")
