"""Runs programs for WebGPU through wgpu's Python package, as a page does: without this library's runtime."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from polyhal.export.operations import OPERATIONS
from polyhal.export.program import (
    BufferUse,
    NamedNumber,
    NumberReference,
    ProgramCopy,
    ProgramLaunch,
    ProgramTensor,
    StepProgram,
    StreamNumber,
    ValueBytes,
)
from polyhal.hal.dtypes import as_dtype

_SLOT = 256
_FORMATS = {"int": ("<I", 32), "uint": ("<I", 32), "long": ("<Q", 64), "ulong": ("<Q", 64)}


class Player:
    """One program on one adapter, with WebGPU's default limits and only the features that the program needs."""

    def __init__(self, program: StepProgram, adapter: Any) -> None:
        import wgpu

        self._program = program
        self._device = adapter.request_device_sync(required_features=list(program.features), required_limits={})
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self._buffers = [self._device.create_buffer(size=b.nbytes, usage=usage) for b in program.buffers]
        for buffer, entry in zip(self._buffers, program.buffers, strict=True):
            if entry.content:
                self._device.queue.write_buffer(buffer, 0, entry.content + bytes(-len(entry.content) % 4))
        self._named = {n.name: n.value for n in program.numbers if isinstance(n, NamedNumber)}
        self._offsets = [s.offset for s in program.streams]
        self._pipelines: dict[int, Any] = {}

    def run(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Run once, and return the outputs by name."""
        for tensor in self._program.inputs:
            array = np.ascontiguousarray(inputs[tensor.name], as_dtype(tensor.dtype).numpy)
            self._device.queue.write_buffer(self._buffers[tensor.buffer], tensor.offset, array.tobytes())
        values = self._values()
        for command in self._program.commands:
            encoder = self._device.create_command_encoder()
            if isinstance(command, ProgramCopy):
                source, target = self._buffers[command.source], self._buffers[command.target]
                encoder.copy_buffer_to_buffer(
                    source, command.source_offset, target, command.target_offset, command.nbytes
                )
            else:
                self._launch(encoder, command, values)
            self._device.queue.submit([encoder.finish()])
        return {t.name: self.read(t) for t in self._program.outputs}

    def read(self, tensor: ProgramTensor) -> np.ndarray:
        """Return the elements of a contiguous tensor."""
        start, end = tensor.span()
        data = bytes(self._device.queue.read_buffer(self._buffers[tensor.buffer], start, -(-(end - start) // 4) * 4))
        return np.frombuffer(data[: end - start], as_dtype(tensor.dtype).numpy).reshape(tensor.shape)

    def _values(self) -> list[Any]:
        """Return the numbers of the next run."""
        values: list[Any] = []
        starts = list(self._offsets)
        self._offsets = [o + s.blocks for o, s in zip(starts, self._program.streams, strict=True)]
        for n in self._program.numbers:
            if isinstance(n, NamedNumber):
                self._named[n.name] += n.grows
                values.append(self._named[n.name])
            elif isinstance(n, StreamNumber):
                stream = self._program.streams[n.stream]
                values.append(stream.seed if n.start is None else starts[n.stream] + n.start)
            else:
                operands = [values[x.number] if isinstance(x, NumberReference) else x.value for x in n.operands]
                values.append(OPERATIONS[n.operation](*operands))
        return values

    def _launch(self, encoder: Any, launch: ProgramLaunch, values: list[Any]) -> None:
        import wgpu

        uses = [a for a in launch.arguments if isinstance(a, BufferUse)]
        data = next((_packed(a, values) for a in launch.arguments if isinstance(a, ValueBytes)), b"")
        pipeline = self._pipelines.get(launch.kernel)
        if pipeline is None:
            kernel = self._program.kernels[launch.kernel]
            module = self._device.create_shader_module(label=kernel.name, code=kernel.source)
            compute = {"module": module, "entry_point": kernel.entry}
            pipeline = self._pipelines[launch.kernel] = self._device.create_compute_pipeline(
                layout="auto", compute=compute
            )
        entries = [
            {
                "binding": u.binding,
                "resource": {"buffer": self._buffers[u.buffer], "offset": u.offset, "size": u.nbytes},
            }
            for u in uses
        ]
        commands = encoder.begin_compute_pass()
        commands.set_pipeline(pipeline)
        commands.set_bind_group(
            0, self._device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        )
        if data:
            uniform = self._device.create_buffer_with_data(
                data=data + bytes(-len(data) % _SLOT), usage=wgpu.BufferUsage.UNIFORM
            )
            resource = {"buffer": uniform, "offset": 0, "size": uniform.size}
            layout = pipeline.get_bind_group_layout(1)
            commands.set_bind_group(
                1, self._device.create_bind_group(layout=layout, entries=[{"binding": 0, "resource": resource}])
            )
        commands.dispatch_workgroups(*launch.grid)
        commands.end()


def _packed(argument: ValueBytes, values: list[Any]) -> bytes:
    data = bytearray(argument.data)
    for place in argument.numbers:
        value = values[place.number]
        if place.type == "float":
            struct.pack_into("<f", data, place.offset, float(value))
        else:
            code, bits = _FORMATS[place.type]
            struct.pack_into(code, data, place.offset, int(value) % (1 << bits))
    return bytes(data)
