"""Programs in other forms: with the backward pass outside of their function, with leaves that are made once."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from benchmarks.reliability.programs.execute import AFTERWARDS, run
from benchmarks.reliability.programs.libraries import PyTorch
from benchmarks.reliability.programs.program import Program, Statement, closed

_INSIDE = frozenset({"backward", "grad", "read a gradient", "hook", "optimizer", "mistake", "setup of an optimizer"})
"""Statements of training steps."""


def forward_only(program: Program) -> Program:
    """Replace backward passes and optimizers of a program by one backward pass from its results at its end."""
    kept = [s for s in program.statements if s.op not in _INSIDE and ".grad" not in s.text]
    forward = replace(program, statements=closed(kept, program.leaves)).without_unused_leaves()
    seen = run(forward, PyTorch())[0]
    if seen.raised:
        return forward
    roots = [
        n
        for n, v in seen.values.items()
        if v.requires_grad
        and n[0] == "v"
        and v.array.size
        and np.isfinite(v.array).all()
        and v.dtype.startswith("float")
    ]
    for chosen in (roots[-6:], roots[-1:], roots[:1]):
        total = " + ".join(f"torch.tanh({n}).sum().to(torch.float32)" for n in chosen)
        whole = replace(forward, statements=(*forward.statements, Statement(f"({total}).backward()", AFTERWARDS)))
        if chosen and not run(whole, PyTorch())[0].raised:
            return whole
    return forward


def with_parameters(program: Program) -> Program:
    """Replace arguments of a program that need gradients by parameters."""
    renamed = {x.name: f"p{x.name[1:]}" for x in program.leaves if x.requires_grad and not x.is_parameter}
    if not renamed:
        return program
    pattern = re.compile(rf"\b({'|'.join(renamed)})\b")

    def text(s: Statement) -> Statement:
        return replace(s, text=pattern.sub(lambda m: renamed[m[0]], s.text))

    leaves = tuple(replace(x, name=renamed.get(x.name, x.name)) for x in program.leaves)
    return Program(program.seed, leaves, tuple(text(s) for s in program.statements))
