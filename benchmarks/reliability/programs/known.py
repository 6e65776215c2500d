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
    made = {t for s in program.body if "autograd.grad(" in s.text for t in s.targets}
    return any(made & s.operands for s in failed)


def _gradient_that_may_vary(program: Program, difference: Difference) -> bool:
    found = difference.kind == "requires_grad" and difference.text.startswith("True")
    return found and "create_graph=True" in program.text()


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


def _zero_for_none(program: Program, difference: Difference) -> bool:
    return difference.kind == "extra" and difference.name.endswith(".grad") and difference.text.startswith("only zeros")


_KEEP = frozenset({"attention", "max", "min", "amax", "amin", "cross_entropy_rows", "mean_cross_entropy"})

KNOWN = (
    Known(
        "keeps more for the gradient",
        "Attention and maxima keep their result for the gradient and cross entropy its logits: PyTorch keeps others (indices, "
        "probabilities). A write to it between forward and backward pass is an error here and none there. PyTorch does "
        "not notice a write to an operand of `kron`.",
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
        "With `create_graph` a gradient that is constant (that of `cummax`) may require a gradient here, which is 0.",
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
        "zeros for no gradient",
        "An argument that no result depends on has gradient 0 after a captured forward pass (as with `torch.compile`), and "
        "none after an eager one.",
        _zero_for_none,
    ),
)


def explained(program: Program, difference: Difference) -> str:
    """The name of the known difference that this is; empty if it is a finding."""
    return next((k.name for k in KNOWN if k.is_it(program, difference)), "")
