"""The command encoder: launches are recorded and submitted in batches, one command buffer per flush.

Within a compute pass the API itself orders dispatches that touch the same memory, so recorded launches behave like those in an
in-order queue.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from polyhal.backends.wgpu.error_mapping import AdapterErrors
from polyhal.backends.wgpu.native import Dispatch, encoding, recorder
from polyhal.backends.wgpu.parameter_ring import ParameterRing
from polyhal.backends.wgpu.profiling import Timestamps
from polyhal.backends.wgpu.shader import ComputePipeline
from polyhal.hal.errors import PolyhalError

MAX_DISPATCHES = 32
"""Dispatches per submission, so that the device starts while later ones are recorded.

A step of 247 dispatches on an H200: 2.27 ms with 32 per submission, 2.42 with 64, 3.1 with 256, 3.99 with 16.
"""


class CommandEncoder:
    """The native encoder being recorded, and its queue."""

    def __init__(self, device: Any, errors: AdapterErrors) -> None:
        self._device = device
        self._errors = errors
        self.ring = ParameterRing(device, MAX_DISPATCHES)
        self._record_all = recorder(self.ring)
        self._encoding = encoding(device)
        self._encoder: Any = None
        self._pass: Any = None
        self._last: Any = None
        self._recorded: list[Dispatch] = []
        self.lock = threading.RLock()
        self.timestamps: Timestamps | None = None
        """Timestamps while profiling. Every dispatch is then a separate compute pass."""
        self.submissions = 0
        self.last_submission: int | None = None
        """The library's number of the last submission; None without one, and if the package does not report it."""

    def dispatch(self, pipeline: ComputePipeline, group: Any, parameters: bytes, x: int, y: int) -> None:
        """Record one dispatch of x * y groups."""
        dispatch = (pipeline, group, parameters, x, y)
        with self.lock:
            commands = self._pass
            if commands is None or self.timestamps is not None:
                commands = self._begin_pass(pipeline.name)
            self._record_all(commands, (dispatch,), self._last)
            self._last = pipeline
            self._recorded.append(dispatch)
            if len(self._recorded) >= MAX_DISPATCHES:
                self.flush()

    def dispatch_all(self, dispatches: Sequence[Dispatch]) -> None:
        """Record many dispatches."""
        with self.lock:
            if self.timestamps is not None:
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

    def encode(self, dispatches: Sequence[Dispatch]) -> Any:
        """Return a command buffer of dispatches, all with immediates, for one submission."""
        encoder = self._encoding.create()
        commands = self._encoding.begin(encoder)
        self._record_all(commands, dispatches, None)
        commands.end()
        return self._encoding.finish(encoder)

    def submit(self, buffer: Any) -> None:
        """Submit all recorded work, then a command buffer."""
        import wgpu

        with self.lock:
            self.flush()
            try:
                self.last_submission = self._encoding.submit(buffer)
                self.submissions += 1
            except (wgpu.GPUError, RuntimeError) as error:
                raise self._errors.translate(error, None, "submitting a recording") from error

    def _begin_pass(self, name: str) -> Any:
        """Begin a compute pass, which is timed under `name` while profiling."""
        if self._encoder is None:
            self._encoder = self._encoding.create()
        if self._pass is not None:
            self._pass.end()
        if self.timestamps is None:
            self._pass = self._encoding.begin(self._encoder)
        else:
            self._pass = self._encoder.begin_compute_pass(**self.timestamps.next(name))
        self._last = None
        return self._pass

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        """Record a copy between buffers. Offsets and size are multiples of 4."""
        with self.lock:
            if self._encoder is None:
                self._encoder = self._encoding.create()
            if self._pass is not None:
                self._pass.end()
                self._pass = None
            self._encoding.copy(self._encoder, source, source_offset, target, target_offset, nbytes)

    def flush(self) -> None:
        """Submit all recorded work. Raises the typed error of the first launch that the API rejects."""
        import wgpu

        with self.lock:
            if self._encoder is None:
                return
            encoder, commands, recorded = self._encoder, self._pass, self._recorded
            self._encoder = self._pass = self._last = None
            self._recorded = []
            try:
                if commands is not None:
                    commands.end()
                self.ring.upload()
                self.last_submission = self._encoding.submit(self._encoding.finish(encoder))
                self.submissions += 1
            except (wgpu.GPUError, RuntimeError) as error:
                raise self._error_of_culprit(recorded, error) from error

    def _error_of_culprit(self, recorded: list[Dispatch], error: Exception) -> PolyhalError:
        """Return the error of the first launch that fails when submitted by itself; validation covers whole submissions."""
        import wgpu

        for dispatch in recorded:
            encoder = self._device.create_command_encoder()
            commands = encoder.begin_compute_pass()
            try:
                self._record_all(commands, (dispatch,), None)
                self.ring.upload()
                commands.end()
                encoder.finish()
            except (wgpu.GPUError, RuntimeError) as culprit:
                pipeline, _, _, x, y = dispatch
                return self._errors.translate(culprit, pipeline.name, f"launching {x} x {y} groups")
        return self._errors.translate(error, None, f"submitting {len(recorded)} launches")
