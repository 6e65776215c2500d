"""Docstrings of ops' public functions after the first line: shapes, dtypes and errors, from the declaration.

One place writes these sentences for all ops, so that they are true of every op and change with its declaration.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.ops.examples import EXAMPLES
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.returns import with_sentence
from polyhal.hal.ops.schema import Promotion

_DTYPES: dict[Promotion, str] = {
    "any": "computes in {common}",
    "float": "computes in {common}, or in float32 for integers and bool",
    "numeric": "computes in {common}",
    "number": "computes in {common}, where bool counts as int64",
    "integral": "computes in {common}",
    "integer": "computes in {common}",
    "bool": "takes each element for its truth",
    "cast": "takes every dtype",
}
_REFUSED: dict[Promotion, tuple[str, ...]] = {
    "numeric": ("bool",),
    "integral": ("floating-point tensors",),
    "integer": ("floating-point tensors", "bool"),
}
"""Dtypes that `operand_dtype` refuses."""
_FAMILIES = {
    "reduction": "Takes a tensor of any shape; the axes that are reduced are left out of the result, or have length 1 with"
    " `keepdims`. Raises ShapeError for an axis that is out of range or named twice.",
    "scan": "Takes a tensor of any shape and returns one of that shape. Raises ShapeError for an axis that is out of range.",
    "triangle": "Takes matrices (..., m, n). Raises ShapeError for fewer than two axes.",
}
"""Shapes and errors of families with a common shape rule."""
_PATTERN = frozenset("\\^$*+?{}|()[]")


def docstring(op: OpDef) -> str:
    """The docstring of the public function of `op`: what is declared, then shapes, dtypes and errors, and an example."""
    facts = [*_shapes(op), *_errors(op)]
    text = with_sentence(f"{op.doc}\n\n{' '.join(facts)}" if facts else op.doc, op.returns)
    call, result = EXAMPLES.get(op.name, ("", ""))
    return f"{text}\n\n>>> {call}\n{result}" if call else text


def _shapes(op: OpDef) -> Iterator[str]:
    if op.promotion is None:
        if op.family in _FAMILIES:
            yield _FAMILIES[op.family]
    elif len(op.schema.inputs) > 1:
        yield f"Broadcasts its inputs and {_DTYPES[op.promotion].format(common='their promoted dtype')}."
    else:
        yield f"Takes a tensor of any shape and {_DTYPES[op.promotion].format(common='its dtype')}."


def _errors(op: OpDef) -> Iterator[str]:
    refused = [*_REFUSED.get(op.promotion, ())] if op.promotion else []
    if op.complex is None and not op.creates:
        refused.append("complex numbers")
    if refused:
        yield f"Raises UnsupportedDTypeError for {' and '.join(filter(None, (', '.join(refused[:-1]), refused[-1])))}."
    if op.promotion is not None and len(op.schema.inputs) > 1:
        yield "Raises ShapeError if the shapes do not broadcast and DeviceMismatchError if the devices differ."
    if op.family not in _FAMILIES:
        yield from _sampled_errors(op)


def _sampled_errors(op: OpDef) -> Iterator[str]:
    """Yield sentences about the messages of the declaration's error samples, which are calls that must fail."""
    for kind, name in ((UnsupportedDTypeError, "UnsupportedDTypeError"), (ValueError, "ShapeError")):
        messages = [f'"{e.match}"' for e in op.tests.errors if e.error is kind and _PATTERN.isdisjoint(e.match)]
        if messages:
            yield f"Raises {name} for arguments that do not fit: {', '.join(messages)}."


__all__ = ["docstring"]
