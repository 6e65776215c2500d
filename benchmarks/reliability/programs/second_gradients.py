"""Second gradients through the result of an op or through its operands: tells differences that only this choice makes.

The gradient of `logcumsumexp` is a function of its result in PyTorch, and of its operand here; the gradient of attention is a
function of its result here, and of probabilities in PyTorch. The gradient of a gradient with respect to leaves is equal. A
gradient with respect to the result, and hooks of the result, show the difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.reliability.programs import rerun
from benchmarks.reliability.programs.difference import Difference, WrongValue
from benchmarks.reliability.programs.libraries import Double, Polyhal
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.trace import trace
from polyhal import Device

_NEAR = 1e-4


class _Composed(Double):
    """PyTorch in double precision, with `logcumsumexp` composed of other ops, whose gradients are functions of operands."""

    def __init__(self) -> None:
        super().__init__()
        self.names |= {"torch": _WithoutResult(self.names["torch"])}


class _WithoutResult:
    """`torch` with another `logcumsumexp`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def logcumsumexp(self, x: Any, dim: int) -> Any:
        """Compute the logarithm of sums of exponentials relative to the largest element."""
        top = x.detach().amax() if x.numel() else 0.0
        return (x - top).exp().cumsum(dim).log() + top


def through_a_result(program: Program, difference: Difference) -> bool:
    """A value that depends on the way of a second gradient, through a result or through operands."""
    if not isinstance(difference, WrongValue):
        return False
    steps = trace(program, difference.call).behind(difference.name)
    if not any(s.calls("create_graph=True") for s in steps):
        return False
    if any(s.calls(r"logcumsumexp\(") for s in steps):
        composed = rerun.elements(program, _Composed(), difference)
        return composed is not None and np.allclose(difference.ours, composed, _NEAR, _NEAR, equal_nan=True)
    results = {t for s in steps if s.calls(r"scaled_dot_product_attention\(") for t in program.body[s.position].targets}
    hooks = [s for s in steps if s.calls(r"^v\d+\.register_hook\(") and results & set(s.before)]
    dropped = [program.body[s.position] for s in hooks]
    others = replace(program, statements=tuple(s for s in program.statements if not any(s is d for d in dropped)))
    found = [rerun.elements(others, library, difference) for library in (Polyhal(Device("numpy")), Double())]
    ours, theirs = found
    return bool(hooks) and ours is not None and theirs is not None and np.allclose(ours, theirs, _NEAR, _NEAR)
