"""PyTorch's memory formats. They are accepted as no-ops: passes of a captured step choose layouts."""

from __future__ import annotations

import enum

from polyhal.hal.ops.top_level import top_level


class MemoryFormat(enum.Enum):
    """Name of a memory format. Arguments called `memory_format` are no-ops, because the device chooses strides."""

    CONTIGUOUS = "contiguous_format"
    PRESERVE = "preserve_format"
    CHANNELS_LAST = "channels_last"
    CHANNELS_LAST_3D = "channels_last_3d"

    def __repr__(self) -> str:
        return f"polyhal.{self.value}"


contiguous_format = top_level(MemoryFormat.CONTIGUOUS)
preserve_format = top_level(MemoryFormat.PRESERVE)
channels_last = top_level(MemoryFormat.CHANNELS_LAST)
channels_last_3d = top_level(MemoryFormat.CHANNELS_LAST_3D)
