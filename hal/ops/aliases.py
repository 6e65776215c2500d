"""Second names of ops, as in PyTorch and NumPy. Each means the same as the Array API's name in every respect."""

from __future__ import annotations

ALIASES: dict[str, str] = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "broadcast_arrays": "broadcast_tensors",
    "bitwise_not": "bitwise_invert",
    "cat": "concat",
    "clamp": "clip",
    "concatenate": "concat",
    "eq": "equal",
    "fix": "trunc",
    "ge": "greater_equal",
    "ger": "outer",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "movedim": "moveaxis",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "sgn": "sign",
    "row_stack": "vstack",
    "swapdims": "swapaxes",
    "trapz": "trapezoid",
    "true_divide": "divide",
}
"""Alias and the name it stands for."""
