"""PyTorch's memory formats. They are accepted as no-ops: passes of a captured step choose layouts."""

from __future__ import annotations

import enum


class MemoryFormat(enum.Enum):
    """Name of a memory format. Arguments called `memory_format` are no-ops, because the device chooses strides."""

    CONTIGUOUS = "contiguous_format"
    PRESERVE = "preserve_format"
    CHANNELS_LAST = "channels_last"
    CHANNELS_LAST_3D = "channels_last_3d"

    def __repr__(self) -> str:
        return f"polyhal.{self.value}"


contiguous_format = MemoryFormat.CONTIGUOUS
preserve_format = MemoryFormat.PRESERVE
channels_last = MemoryFormat.CHANNELS_LAST
channels_last_3d = MemoryFormat.CHANNELS_LAST_3D
