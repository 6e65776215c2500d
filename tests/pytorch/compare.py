"""Comparison of results by PyTorch's own rule: `torch.testing.assert_close` with its tolerances for the dtype."""

from __future__ import annotations

from typing import Any

import torch

from polyhal import Tensor
from tests.pytorch.convert import DTYPES, leaves

DTYPE_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def to_torch(value: Any) -> Any:
    """Return a tensor of Polyhal as one of PyTorch; other values as they are."""
    if not isinstance(value, Tensor):
        return value
    values = value.detach().numpy()
    return torch.from_numpy(values.astype("float32") if value.dtype.name == "bfloat16" else values.copy()).to(
        DTYPE_NAMES[value.dtype]
    )


def difference(ours: Any, theirs: Any, *, tolerance: float = 1.0, dtypes: bool = True, units: int = 0) -> str:
    """Describe the difference of two results. `tolerance` multiplies PyTorch's defaults; integers may differ by `units`."""
    mine, expected = list(leaves(ours)), list(leaves(theirs))
    if len(mine) != len(expected):
        return f"{len(mine)} results, expected {len(expected)}"
    for number, (a, b) in enumerate(zip(mine, expected, strict=True)):
        problem = _difference(*_by_array_api(a, b), tolerance, dtypes, units)
        if problem:
            return f"result {number}: {problem}" if len(mine) > 1 else problem
    return ""


def _by_array_api(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both results as values of PyTorch, Polyhal's in PyTorch's dtype where the Array API has another."""
    if not isinstance(a, Tensor):
        return a, b
    a = to_torch(a)
    if isinstance(b, torch.Tensor):
        if a.dtype is torch.uint64 and b.dtype is torch.int64:
            a = a.to(torch.int64)  # sums of unsigned integers are unsigned
        if a.dtype is torch.bool and b.dtype is torch.uint8:
            b = b.bool()  # `any` and `all` are bool
    return a, b


def _difference(a: Any, b: Any, tolerance: float, dtypes: bool, units: int) -> str:
    if not isinstance(b, torch.Tensor):
        return "" if a == b or (a != a and b != b) else f"{a!r}, expected {b!r}"
    if not isinstance(a, torch.Tensor):
        a = torch.as_tensor(a)
    if a.shape != b.shape:
        return f"shape {tuple(a.shape)}, expected {tuple(b.shape)}"
    if dtypes and a.dtype is not b.dtype:
        return f"dtype {a.dtype}, expected {b.dtype}"
    if units and not a.is_floating_point():
        return "" if not a.numel() or (a.long() - b.long()).abs().max() <= units else f"more than {units} off"
    relative, absolute = torch.testing._comparison.default_tolerances(a, b)  # type: ignore[attr-defined]
    try:
        torch.testing.assert_close(
            a, b, rtol=relative * tolerance, atol=absolute * tolerance, equal_nan=True, check_dtype=False
        )
    except AssertionError as error:
        return "; ".join(line.strip() for line in str(error).splitlines()[2:] if line)[:200]
    return ""


def in_double(value: Any) -> Any:
    """A nest of tensors of PyTorch with floating-point and complex ones in double precision, leaves again where they were."""
    if isinstance(value, torch.Tensor):
        if not (value.is_floating_point() or value.is_complex()):
            return value
        double = torch.complex128 if value.is_complex() else torch.float64
        return value.detach().to(double).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {k: in_double(v) for k, v in value.items()}
    return type(value)(in_double(v) for v in value) if type(value) in (list, tuple) else value


def is_no_farther(ours: Any, theirs: Any, truth: Any) -> bool:
    """Return whether each floating-point result is at least as near to the truth, in float64, as PyTorch's."""
    triples = zip(leaves(ours), leaves(theirs), leaves(truth), strict=True)
    return all(_is_no_farther(*_by_array_api(a, b), c) for a, b, c in triples)


def _is_no_farther(a: Any, b: Any, truth: Any) -> bool:
    if not isinstance(truth, torch.Tensor) or not (truth.is_floating_point() or truth.is_complex()):
        return not _difference(a, b, 1.0, True, 0)
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    finite = torch.isfinite(truth) & torch.isfinite(b)
    if not torch.isfinite(a[finite]).all():
        return False
    errors = [
        (x.to(truth.dtype) - truth)[finite].abs().max().item() if finite.any() else 0.0
        for x in (a.detach(), b.detach())
    ]
    # Where PyTorch happens to be exact, a few roundings of the largest element are no defect.
    size = truth[finite].abs().max().item() if finite.any() else 0.0
    return bool(errors[0] <= max(errors[1], 4 * torch.finfo(b.dtype).eps * size))
