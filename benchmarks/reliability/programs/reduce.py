"""Makes a failing program smaller while it fails in the same way: statements, operands, gradients, shapes, values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.reliability.programs.execute import run
from benchmarks.reliability.programs.libraries import PyTorch
from benchmarks.reliability.programs.program import Leaf, Program, Statement, closed

_CHECKPOINT = re.compile(r"torch\.utils\.checkpoint\.checkpoint\(lambda ([^:]*): (.*), \1, use_reentrant=False\)")
Fails = Callable[[Program], bool]
"""Tells a program that still fails in the way that is looked for."""


def reduced(program: Program, fails: Fails, tries: int = 600) -> Program:
    """Return the smallest program found by so many tries."""
    budget = iter(range(tries))
    before = None
    while before is not program:
        before = program
        for pass_ in (_fewer_statements, _values_for_statements, _one_line_less, _simpler_leaves, _shorter_axes):
            program = _applied(program, pass_, fails, budget)
    return program.without_unused_leaves()


def _applied(
    program: Program, candidates: Callable[[Program], Iterator[Program]], fails: Fails, budget: Iterator[int]
) -> Program:
    """Take candidates that fail, each the start of further ones, until none does."""
    found = True
    while found:
        found = False
        for candidate in candidates(program):
            if next(budget, None) is None:
                return program
            if _fails(candidate, fails):
                program, found = candidate, True
                break
    return program


def _fails(candidate: Program, fails: Fails) -> bool:
    try:
        return fails(candidate)
    except Exception:  # a candidate without sense
        return False


def _fewer_statements(program: Program) -> Iterator[Program]:
    """Drop a stretch of statements, long ones first, and the statements that needed them."""
    size = len(program.statements) // 2
    while size:
        for begin in range(len(program.statements) - size, -1, -size):
            kept = program.statements[:begin] + program.statements[begin + size :]
            yield replace(program, statements=closed(kept, program.leaves)).without_unused_leaves()
        size //= 2


def _values_for_statements(program: Program) -> Iterator[Program]:
    """Replace a statement that makes a tensor by a leaf."""
    library = PyTorch()
    values = run(program, library)[0].values
    for position in range(len(program.statements) - 1, -1, -1):
        s = program.statements[position]
        if s.at_setup or not s.targets or any(t not in values for t in s.targets):
            continue
        made = [values[t] for t in s.targets]
        for gradient in (False, True):
            leaves = tuple(
                Leaf(t, v.dtype, v.array, gradient and "float" in v.dtype) for t, v in zip(s.targets, made, strict=True)
            )
            rest = program.statements[:position] + program.statements[position + 1 :]
            yield replace(program, leaves=program.leaves + leaves, statements=rest).without_unused_leaves()


def _one_line_less(program: Program) -> Iterator[Program]:
    """Drop the checkpoint or the `no_grad` around a statement, or terms of a sum of results."""
    for position, s in enumerate(program.statements):
        for text in _simpler_texts(s.text):
            changed = (
                *program.statements[:position],
                Statement(text, s.op, s.at_setup),
                *program.statements[position + 1 :],
            )
            yield replace(program, statements=closed(changed, program.leaves)).without_unused_leaves()


def _simpler_texts(text: str) -> Iterator[str]:
    head, _, rest = text.partition("\n")
    if head.startswith("with torch.no_grad"):
        yield rest.strip()
    target, equals, expression = head.partition(" = ")
    terms = expression.split(" + ")
    if equals and len(terms) > 1 and all(t.count("(") == t.count(")") for t in terms):
        yield from ("\n".join([f"{target} = {t}", *([rest] if rest else [])]) for t in terms)
    if _CHECKPOINT.search(head):
        yield _CHECKPOINT.sub(r"(\2)", head)


def _simpler_leaves(program: Program) -> Iterator[Program]:
    """Make all floats float32, or a leaf one that needs no gradient or has plainer values."""
    if any(leaf.dtype in ("float16", "bfloat16", "float64") for leaf in program.leaves):
        yield replace(
            program,
            leaves=tuple(replace(x, dtype="float32") if "float" in x.dtype else x for x in program.leaves),
        )
    for position, leaf in enumerate(program.leaves):
        for simpler in _simpler(leaf):
            yield replace(program, leaves=(*program.leaves[:position], simpler, *program.leaves[position + 1 :]))


def _simpler(leaf: Leaf) -> Iterator[Leaf]:
    if leaf.requires_grad:
        yield replace(leaf, requires_grad=False)
    ones = np.ones_like(leaf.values)
    counted = (np.arange(leaf.values.size).reshape(leaf.values.shape) + 1).astype(leaf.values.dtype)
    for plain in (ones, counted, np.round(leaf.values.astype(float)).astype(leaf.values.dtype)):
        if (ones != leaf.values).any() and (counted != leaf.values).any() and (plain != leaf.values).any():
            yield replace(leaf, values=plain)


def _shorter_axes(program: Program) -> Iterator[Program]:
    """Cut all axes of one length to a shorter one."""
    lengths = sorted({n for leaf in program.leaves for n in leaf.values.shape if n > 1}, reverse=True)
    for length in lengths:
        for shorter in (1, 2):
            if shorter < length:
                yield replace(program, leaves=tuple(_cut(leaf, length, shorter) for leaf in program.leaves))


def _cut(leaf: Leaf, length: int, shorter: int) -> Leaf:
    place = tuple(slice(0, shorter if n == length else n) for n in leaf.values.shape)
    return replace(leaf, values=leaf.values[place])


def as_test(program: Program, name: str = "") -> str:
    """Return a test of the program, to be pasted."""
    lines = [f"def test_{name or f'the_program_of_seed_{program.seed}'}(device: Device) -> None:", "    assert_agrees("]
    lines.append("        device,")
    lines.append('        """')
    lines += [f"        {line}" for s in program.statements for line in s.text.split("\n")]
    lines.append('        """,')
    for leaf in program.leaves:
        gradient = ", requires_grad=True" if leaf.requires_grad else ""
        lines.append(
            f"        {leaf.name}=leaf({leaf.values.tolist()}, {leaf.dtype!r}{gradient}),".replace("nan", "NAN")
        )
    return "\n".join([*lines, "    )"])
