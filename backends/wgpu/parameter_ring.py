"""Parameters of dispatches in a uniform buffer, for devices without immediates and kernels with more than fit into them."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import round_up

MAX_PARAMETER_WORDS = 256
"""Maximum parameters of a launch, in 32-bit words."""
_BINDING = 4 * MAX_PARAMETER_WORDS
_ALIGNMENT = 256
"""Largest alignment of dynamic offsets on any device, in bytes."""


class ParameterRing:
    """The parameters of one submission, written before it. Kernels bind them as group 1, with a dynamic offset."""

    def __init__(self, device: Any, dispatches: int) -> None:
        """Create the buffer for the parameters of at most `dispatches` dispatches."""
        import wgpu

        self._queue = device.queue
        self._bytes = bytearray()
        self.layout = device.create_bind_group_layout(
            label="parameters",
            entries=[
                {
                    "binding": 0,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": "uniform", "has_dynamic_offset": True},
                }
            ],
        )
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        self._buffer = device.create_buffer(label="parameters", size=dispatches * _BINDING, usage=usage)
        self.group = device.create_bind_group(
            layout=self.layout,
            entries=[{"binding": 0, "resource": {"buffer": self._buffer, "offset": 0, "size": _BINDING}}],
        )

    def add(self, parameters: bytes) -> int:
        """Store the parameters of a dispatch. Returns their offset."""
        offset = len(self._bytes)
        self._bytes += parameters.ljust(round_up(len(parameters), _ALIGNMENT), b"\0")
        return offset

    def upload(self) -> None:
        """Write the stored parameters, before the submission of their dispatches."""
        if self._bytes:
            self._queue.write_buffer(self._buffer, 0, self._bytes)
            self._bytes = bytearray()
