"""For tests: a program written by hand, or reduced from a random one, agrees with PyTorch."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

import polyhal
from benchmarks.reliability.programs.modes import MODES
from benchmarks.reliability.programs.program import Leaf, Program, Statement

NAN, INF = float("nan"), float("inf")


def leaf(values: Any, dtype: str, requires_grad: bool = False) -> Leaf:
    """Return a tensor that a program begins with."""
    return Leaf("", dtype, np.asarray(values, dtype=np.float64 if "float" in dtype else dtype), requires_grad)


def program_of(text: str, **leaves: Leaf) -> Program:
    """Make a program of lines of Python: each line that is not indented begins a statement."""
    lines: list[str] = []
    for line in textwrap.dedent(text).strip().split("\n"):
        if line.startswith(" "):
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    named = tuple(Leaf(n, x.dtype, x.values, x.requires_grad) for n, x in leaves.items())
    return Program(0, named, tuple(Statement(t, "", at_setup=t[0] in "mo" and " = " in t) for t in lines))


def assert_agrees(device: polyhal.Device, text: str, mode: str = "eager", **leaves: Leaf) -> None:
    """Run a program on a device, and fail if it differs from PyTorch."""
    outcome = MODES[mode](program_of(text, **leaves), device)
    assert not outcome.refused, outcome.refused
    found = outcome.findings()
    assert not found, "\n".join(map(str, found))
