"""Comparison of results by PyTorch's own rule: `torch.testing.assert_close` with its tolerances for the dtype."""

from __future__ import annotations

from typing import Any

import torch

from polyhal import Tensor
from tests.pytorch.convert import DTYPES, leaves

DTYPE_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def to_torch(value: Any) -> Any:
    """A tensor of Polyhal as one of PyTorch; other values as they are."""
    if not isinstance(value, Tensor):
        return value
    values = value.detach().numpy()
    return torch.from_numpy(values.astype("float32") if value.dtype.name == "bfloat16" else values.copy()).to(
        DTYPE_NAMES[value.dtype]
    )


def difference(ours: Any, theirs: Any, *, tolerance: float = 1.0, dtypes: bool = True) -> str:
    """What differs between two results, or nothing. `tolerance` multiplies PyTorch's defaults."""
    mine, expected = [to_torch(v) for v in leaves(ours)], list(leaves(theirs))
    if len(mine) != len(expected):
        return f"{len(mine)} results, expected {len(expected)}"
    for number, (a, b) in enumerate(zip(mine, expected, strict=True)):
        problem = _difference(a, b, tolerance, dtypes)
        if problem:
            return f"result {number}: {problem}" if len(mine) > 1 else problem
    return ""


def _difference(a: Any, b: Any, tolerance: float, dtypes: bool) -> str:
    if not isinstance(b, torch.Tensor):
        return "" if a == b or (a != a and b != b) else f"{a!r}, expected {b!r}"
    if not isinstance(a, torch.Tensor):
        a = torch.as_tensor(a)
    if a.shape != b.shape:
        return f"shape {tuple(a.shape)}, expected {tuple(b.shape)}"
    if dtypes and a.dtype is not b.dtype:
        return f"dtype {a.dtype}, expected {b.dtype}"
    relative, absolute = torch.testing._comparison.default_tolerances(a, b)  # type: ignore[attr-defined]
    try:
        torch.testing.assert_close(
            a, b, rtol=relative * tolerance, atol=absolute * tolerance, equal_nan=True, check_dtype=False
        )
    except AssertionError as error:
        return "; ".join(line.strip() for line in str(error).splitlines()[2:] if line)[:200]
    return ""
