"""The command encoder: launches are recorded and submitted in batches, one command buffer per flush.

Within a compute pass the API itself orders dispatches that touch the same memory, so recorded launches behave like those in an
in-order queue.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.error_mapping import AdapterErrors
from polyhal.backends.wgpu.native import encoding, record, recorder
from polyhal.backends.wgpu.profiling import Timestamps
from polyhal.backends.wgpu.shader import ComputePipeline
from polyhal.hal.errors import PolyhalError

MAX_DISPATCHES = 256
"""Dispatches per submission, so that the device starts while later ones are recorded."""
_SLOT = 256
"""Bytes of the uniform ring per dispatch: the largest alignment of dynamic offsets on any device."""
_RING = 512 * _SLOT

Dispatch = tuple[ComputePipeline, Any, bytes, int, int]
"""Pipeline, bind group, parameters, groups along x and along y."""


class CommandEncoder:
    """The native encoder being recorded, and its queue."""

    def __init__(self, device: Any, features: WGPUFeatures, errors: AdapterErrors) -> None:
        self._device = device
        self._queue = device.queue
        self._errors = errors
        self._immediates = features.immediates > 0
        self._record, self._record_all = recorder()
        self._create, self._begin, self._submit = encoding(device)
        self._encoder: Any = None
        self._pass: Any = None
        self._last: Any = None
        self._recorded: list[Dispatch] = []
        self.lock = threading.RLock()
        self.timestamps: Timestamps | None = None
        """Timestamps while profiling. Every dispatch is then a separate compute pass."""
        self.submissions = 0
        self.parameter_layout: Any = None
        """Layout of the bind group with the uniform ring; None if parameters are immediates."""
        self._ring: Any = None
        self._ring_group: Any = None
        self._ring_bytes = bytearray()
        if not self._immediates:
            self._create_ring()

    def _create_ring(self) -> None:
        """Create the uniform buffer for parameters on devices without immediates."""
        import wgpu

        self.parameter_layout = self._device.create_bind_group_layout(
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
        self._ring = self._device.create_buffer(label="parameters", size=_RING, usage=usage)
        self._ring_group = self._device.create_bind_group(
            layout=self.parameter_layout,
            entries=[{"binding": 0, "resource": {"buffer": self._ring, "offset": 0, "size": _SLOT}}],
        )

    def dispatch(self, pipeline: ComputePipeline, group: Any, parameters: bytes, x: int, y: int) -> None:
        """Record one dispatch of x * y groups."""
        with self.lock:
            commands = self._pass
            if commands is None or self.timestamps is not None:
                commands = self._begin_pass(pipeline.name)
            native = None if self._last is pipeline else pipeline.native
            self._last = pipeline
            if self._immediates:
                self._record(commands, native, group, parameters, x, y)
            else:
                self._record_with_ring(commands, native, group, parameters, x, y)
            recorded = self._recorded
            recorded.append((pipeline, group, parameters, x, y))
            if len(recorded) >= MAX_DISPATCHES:
                self.flush()

    def dispatch_all(self, dispatches: Sequence[Dispatch]) -> None:
        """Record many dispatches."""
        with self.lock:
            if self.timestamps is not None or not self._immediates:
                for d in dispatches:
                    self.dispatch(*d)
                return
            done = 0
            while done < len(dispatches):
                commands = self._pass or self._begin_pass("")
                batch = dispatches[done : done + MAX_DISPATCHES - len(self._recorded)]
                self._record_all(commands, batch, self._last)
                self._last = batch[-1][0]
                self._recorded += batch
                done += len(batch)
                if len(self._recorded) >= MAX_DISPATCHES:
                    self.flush()

    def _record_with_ring(self, commands: Any, native: Any, group: Any, parameters: bytes, x: int, y: int) -> None:
        commands.set_bind_group(1, self._ring_group, [len(self._ring_bytes)])
        self._ring_bytes += parameters.ljust(_SLOT, b"\0")
        record(commands, native, group, b"", x, y)

    def _begin_pass(self, name: str) -> Any:
        """Begin a compute pass, which is timed under `name` while profiling."""
        if self._encoder is None:
            self._encoder = self._create()
        if self._pass is not None:
            self._pass.end()
        if self.timestamps is None:
            self._pass = self._begin(self._encoder)
        else:
            self._pass = self._encoder.begin_compute_pass(**self.timestamps.next(name))
        self._last = None
        return self._pass

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        """Record a copy between buffers. Offsets and size are multiples of 4."""
        with self.lock:
            if self._encoder is None:
                self._encoder = self._create()
            if self._pass is not None:
                self._pass.end()
                self._pass = None
            self._encoder.copy_buffer_to_buffer(source, source_offset, target, target_offset, nbytes)

    def flush(self) -> None:
        """Submit all recorded work. Raises the typed error of the first launch that the API rejects."""
        import wgpu

        with self.lock:
            if self._encoder is None:
                return
            encoder, commands, recorded = self._encoder, self._pass, self._recorded
            self._encoder = self._pass = self._last = None
            self._recorded = []
            parameters, self._ring_bytes = self._ring_bytes, bytearray()
            try:
                if commands is not None:
                    commands.end()
                if parameters:
                    self._queue.write_buffer(self._ring, 0, parameters)
                self._submit(encoder)
                self.submissions += 1
            except (wgpu.GPUError, RuntimeError) as error:
                raise self._error_of_culprit(recorded, error) from error

    def _error_of_culprit(self, recorded: list[Dispatch], error: Exception) -> PolyhalError:
        """Return the error of the first launch that fails when submitted by itself; validation covers whole submissions."""
        import wgpu

        for pipeline, group, parameters, x, y in recorded:
            encoder = self._device.create_command_encoder()
            commands = encoder.begin_compute_pass()
            try:
                if not self._immediates:
                    commands.set_bind_group(1, self._ring_group, [0])
                record(commands, pipeline.native, group, parameters if self._immediates else b"", x, y)
                commands.end()
                encoder.finish()
            except (wgpu.GPUError, RuntimeError) as culprit:
                return self._errors.translate(culprit, pipeline.name, f"launching {x} x {y} groups")
        return self._errors.translate(error, None, f"submitting {len(recorded)} launches")
