"""What the attention kernels share: template variables, strides and lengths of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.common.problems.attention import AttentionShape, merge_batch_axes
from polyhal.backends.wgpu.launch import Parameter
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined

VECTOR = 4
"""Features of a vector."""
_MAX_FEATURES = 128


@dataclass(frozen=True, slots=True)
class Strategy:
    """The kernel file of both directions (`_grad` is appended for gradients), its variables, and the rows of a workgroup."""

    kernel: str
    definitions: Mapping[str, Any]
    rows: int


@dataclass(frozen=True, slots=True)
class Call:
    """What both directions need to know of a call."""

    shape: AttentionShape
    definitions: Mapping[str, Any]
    axes: int
    """Batch axes that remain after merging: 1 to 3."""
    mask_strides: tuple[int, ...]

    @property
    def quads(self) -> int:
        """Vectors of a query or key."""
        return ceil_div(self.shape.d, VECTOR)

    @property
    def value_quads(self) -> int:
        """Vectors of a value."""
        return ceil_div(self.shape.e, VECTOR)

    def numbers(self, scale: float, operands: Sequence[Spec]) -> list[Parameter]:
        """Return the scalar parameters: lengths, scale, batch lengths, and the strides of operands and mask."""
        s = self.shape
        strides = [
            n for i, spec in enumerate(operands) for n in (*s.batch_strides[i][3 - self.axes :], spec.strides[-2])
        ]
        return [
            *_uints(s.t, s.s, s.d, s.e), Constant(scale, "float"), *_uints(s.count, *s.batch[4 - self.axes :]),
            *_uints(*strides, *self.mask_strides),
        ]  # fmt: skip


def _uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


def describe(operands: Sequence[Spec], mask: Spec | None, results: Sequence[Spec], causal: bool) -> Call | Declined:
    """Describe a call. `operands` end with q, k, v; all of them, and `results`, have features as their last axis."""
    q, _, v = operands[-3:]
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    if max(d, e) > _MAX_FEATURES:
        return Declined(f"heads of {max(d, e)} features; the kernel takes {_MAX_FEATURES}")
    if any(o.strides[-1] != 1 and o.shape[-1] > 1 for o in operands):
        return Declined("features of a head do not lie next to each other")
    shape = merge_batch_axes(operands, mask, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    axes = next(n for n in (1, 2, 3) if all(b == 1 for b in shape.batch[: 3 - n]))
    vectors = all(
        o.aligned and o.strides[-2] % VECTOR == 0 and all(b % VECTOR == 0 for b in steps)
        for o, steps in zip(operands, shape.batch_strides, strict=False)
    ) and all(r.aligned for r in results)
    tail = bool(d % VECTOR or e % VECTOR)
    mask_strides: tuple[int, ...] = ()
    if mask is not None:
        broadcast = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], t, s))
        mask_strides = (*shape.batch_strides[-1][3 - axes :], *broadcast[-2:])
    definitions = {
        "DTYPE": q.dtype.name, "WIDTH": VECTOR if vectors and not tail else 1, "TAIL": tail, "CAUSAL": causal, "AXES": axes,
        "MASK_DTYPE": mask.dtype.name if mask is not None else "", "QUADS": ceil_div(d, VECTOR),
        "VALUE_QUADS": ceil_div(e, VECTOR),
    }  # fmt: skip
    return Call(shape, definitions, axes, mask_strides)
