"""Common parts of the attention kernels: template variables, and the arguments for lengths and strides of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.attention import AttentionShape, merge_batch_axes
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined

VECTOR = 4
"""Features per vector."""
_MAX_FEATURES = 128


@dataclass(frozen=True, slots=True)
class Strategy:
    """The kernel file of both directions (`_grad` is appended for gradients), its variables, and the rows of a workgroup."""

    kernel: str
    definitions: Mapping[str, Any]
    rows: int


@dataclass(frozen=True, slots=True)
class Call:
    """Properties of a call, for both directions."""

    shape: AttentionShape
    definitions: Mapping[str, Any]
    axes: int
    """Batch axes that remain after merging: 1 to 3."""
    mask_strides: Mapping[str, int]
    """Strides of the mask by kernel argument; empty without a mask."""

    @property
    def quads(self) -> int:
        """Vectors per query or key."""
        return ceil_div(self.shape.d, VECTOR)

    @property
    def value_quads(self) -> int:
        """Vectors per value."""
        return ceil_div(self.shape.e, VECTOR)

    def scalars(self, scale: float, operands: Mapping[str, Spec]) -> dict[str, float]:
        """Return the scalar arguments: lengths, scale, batch lengths, and the strides of operands and mask.

        `operands` are the operands passed to `describe`, by name.
        """
        s = self.shape
        args: dict[str, float] = {"t": s.t, "s": s.s, "d": s.d, "e": s.e, "scale": scale, "heads": s.count}
        args |= {f"batch{i}": n for i, n in enumerate(s.batch[4 - self.axes :], 1)}
        for (name, spec), strides in zip(operands.items(), s.batch_strides, strict=False):
            args |= {**_batch_strides(name, strides[3 - self.axes :]), f"{name}_row": spec.strides[-2]}
        return {**args, **self.mask_strides}


def _batch_strides(name: str, strides: Sequence[int]) -> dict[str, int]:
    return {f"{name}_batch{axis}": stride for axis, stride in enumerate(strides)}


def describe(operands: Sequence[Spec], mask: Spec | None, results: Sequence[Spec], causal: bool) -> Call | Declined:
    """Describe a call. `operands` end with q, k, v; all of them, and `results`, have features as their last axis."""
    q, _, v = operands[-3:]
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    if max(d, e) > _MAX_FEATURES:
        return Declined(f"heads of {max(d, e)} features; the kernel supports at most {_MAX_FEATURES}")
    if any(o.strides[-1] != 1 and o.shape[-1] > 1 for o in operands):
        return Declined("the features of a head are not contiguous")
    shape = merge_batch_axes(operands, mask, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    axes = next(n for n in (1, 2, 3) if all(b == 1 for b in shape.batch[: 3 - n]))
    vectors = all(
        o.aligned and o.strides[-2] % VECTOR == 0 and all(b % VECTOR == 0 for b in steps)
        for o, steps in zip(operands, shape.batch_strides, strict=False)
    ) and all(r.aligned for r in results)
    tail = bool(d % VECTOR or e % VECTOR)
    mask_strides: dict[str, int] = {}
    if mask is not None:
        broadcast = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], t, s))
        mask_strides = {
            **_batch_strides("mask", shape.batch_strides[-1][3 - axes :]),
            "mask_row": broadcast[-2],
            "mask_column": broadcast[-1],
        }
    definitions = {
        "DTYPE": q.dtype.name,
        "WIDTH": VECTOR if vectors and not tail else 1,
        "TAIL": tail,
        "CAUSAL": causal,
        "AXES": axes,
        "MASK_DTYPE": mask.dtype.name if mask is not None else "",
        "QUADS": ceil_div(d, VECTOR),
        "VALUE_QUADS": ceil_div(e, VECTOR),
    }
    return Call(shape, definitions, axes, mask_strides)
