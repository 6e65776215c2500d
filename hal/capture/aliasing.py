"""What a capture knows of the memory that a step uses: which value of the graph each part of a buffer holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.hal.capture.user_line import user_line
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.layout import Ref, Spec, extent


class BufferContents:
    """What is known of one buffer: the values its parts hold, by the way they are seen."""

    __slots__ = ("buffer", "changed", "roots", "values", "version")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.version = buffer.version
        """What it was before the capture."""
        self.roots: list[AliasRoot] = []
        self.values: dict[tuple[Spec, int], int] = {}
        self.changed = False

    def covering(self, ref: Ref) -> AliasRoot | None:
        """The part that holds all of `ref`."""
        return next((root for root in self.roots if root.covers(ref)), None)

    def seen_as(self, ref: Ref) -> AliasRoot | None:
        """The part that is laid out exactly as `ref`."""
        return next((r for r in self.roots if r.ref.spec == ref.spec and r.ref.offset == ref.offset), None)

    def replaced(self) -> list[AliasRoot]:
        """Parts that were there before, and hold something else now."""
        return [r for r in self.roots if r.source is not None and r.slot != r.source]


@dataclass(slots=True)
class AliasRoot:
    """A contiguous part of a buffer that is one value: `slot` now, input `source` at first (None if a node made it)."""

    ref: Ref
    slot: int
    source: int | None

    def covers(self, ref: Ref) -> bool:
        low, high = extent(ref.shape, ref.strides)
        start = ref.offset - self.ref.offset
        return self.ref.is_contiguous and start + low >= 0 and start + high < self.ref.size

    def overlaps(self, ref: Ref) -> bool:
        low, high = extent(ref.shape, ref.strides)
        own_low, own_high = extent(self.ref.shape, self.ref.strides)
        return ref.offset + low <= self.ref.offset + own_high and self.ref.offset + own_low <= ref.offset + high


def entangled(x: Any) -> CaptureError:
    """The error for a tensor whose memory is changed by way of another one."""
    return CaptureError(
        message(
            None,
            f"a tensor of shape {x.ref.shape} is changed in place, and another one that overlaps it in memory is used, "
            f"at {user_line()}",
            expected="tensors that are changed in place to be seen through their own views only",
            fix="change a clone",
        )
    )


def reading(spec: Spec, line: str) -> CaptureError:
    """The error for a value that is wanted on the host at a line of the user's."""
    return CaptureError(
        message(
            None,
            f"the value of a {spec} is read while it is only being recorded, at {line}",
            expected="ops on tensors: a captured step takes the same path at each run",
            fix="use polyhal.where, or return the tensor and read it outside",
        )
    )
