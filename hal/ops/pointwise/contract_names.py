"""The names under which `unary` and `binary` of the contract know the elementwise ops, where the two differ."""

from __future__ import annotations

MEMBER_NAMES: dict[str, str] = {
    "negative": "neg",
    "logical_not": "not",
    "bitwise_invert": "not",
    "subtract": "sub",
    "multiply": "mul",
    "truncating_divide": "div",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
    "less": "lt",
    "equal": "eq",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
    "logical_xor": "xor",
    "bitwise_xor": "xor",
    "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
    "modulus": "hypot",
    "hypot": "hypot",
}
"""Op to member name. Where several ops share a member, the last one's formula holds for every dtype of the member."""

OP_NAMES: dict[str, str] = {member: op for op, member in MEMBER_NAMES.items()}
"""Member name to the op whose formula a backend may use for it."""
