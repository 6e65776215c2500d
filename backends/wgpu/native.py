"""Direct calls of the native library for features that wgpu's Python package lacks or slows down.

- Shader modules without run-time checks. The checks bound every index and count the iterations of every loop, to
  sandbox web pages; they halve the speed of a matrix product.
- Recording a dispatch with four plain calls. The package's own methods check and convert each argument and poll for
  errors after each call, which takes four times as long. An encoder reports its errors when it is finished anyway.
- Bind groups, command encoders and submissions, for the same reason.
- Waiting for submitted work, and mapping buffers. The package waits through a mapped buffer, an empty submission and a
  thread that polls; while a thread waits in a poll, the library accepts no submission of another thread.

All calls use the package's own binding. If a release changes it, the public methods are used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from polyhal.backends.wgpu.parameter_ring import ParameterRing
    from polyhal.backends.wgpu.shader import ComputePipeline

_CHECKS = 0
"""WGPUShaderRuntimeChecks_None"""

Dispatch = tuple["ComputePipeline", Any, bytes, int, int]
"""Pipeline, bind group, parameters, groups along x and along y."""
RecordAll = Callable[[Any, Sequence[Dispatch], "ComputePipeline | None"], None]
"""(pass, dispatches, current pipeline of the pass)"""


def binding(*names: str) -> Any:
    """Return the package's binding; None if this release lacks one of `names`."""
    try:
        from wgpu.backends.wgpu_native import _api as api
    except ImportError:
        return None
    return api if all(hasattr(api, name) for name in names) else None


def limit_apis(apis: Sequence[str]) -> None:
    """Restrict wgpu to the graphics APIs in `apis`. No-op after adapters were listed, because wgpu caches the first list."""
    try:
        from wgpu.backends.wgpu_native import _helpers, extras
    except ImportError:  # a release with another binding
        return
    if getattr(_helpers, "_the_instance", None) is None:
        extras.set_instance_extras(backends=apis)


def compile_module(device: Any, text: str, label: str, *, checked: bool = False) -> Any:
    """Return a shader module of WGSL `text`. Raises wgpu.GPUError if it does not compile."""
    api = None if checked else binding("new_struct_p", "to_c_string_view", "ffi", "lib", "libf", "GPUShaderModule")
    create = getattr(api.libf, "wgpuDeviceCreateShaderModuleTrusted", None) if api else None
    if api is None or create is None:
        return device.create_shader_module(label=label, code=text)
    source = api.new_struct_p("WGPUShaderSourceWGSL *", code=api.to_c_string_view(text))
    source[0].chain.next = api.ffi.NULL
    source[0].chain.sType = api.lib.WGPUSType_ShaderSourceWGSL
    descriptor = api.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        nextInChain=api.ffi.cast("WGPUChainedStruct *", source),
        label=api.to_c_string_view(label),
    )
    return api.GPUShaderModule(label, create(device._internal, descriptor, _CHECKS), device)


def recorder(ring: ParameterRing) -> RecordAll:
    """Return the fastest function that records dispatches. Parameters that are not immediates are added to `ring`."""
    api = binding("ffi", "lib")
    try:
        set_pipeline = api.lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = api.lib.wgpuComputePassEncoderSetBindGroup
        set_immediates = api.lib.wgpuComputePassEncoderSetImmediates
        dispatch = api.lib.wgpuComputePassEncoderDispatchWorkgroups
        none = api.ffi.NULL
    except AttributeError:
        return partial(record_all, ring)
    add, parameter_group = ring.add, ring.group._internal

    def record_all_natively(commands: Any, dispatches: Sequence[Dispatch], last: ComputePipeline | None) -> None:
        handle, bound = commands._internal, None
        for pipeline, group, parameters, x, y in dispatches:
            if pipeline is not last:
                last = pipeline
                set_pipeline(handle, pipeline.native._internal)
            if group is not bound:
                bound = group
                set_bind_group(handle, 0, group._internal, 0, none)
            if pipeline.has_immediates:
                set_immediates(handle, 0, parameters, len(parameters))
            elif parameters:
                set_bind_group(handle, 1, parameter_group, 1, [add(parameters)])
            dispatch(handle, x, y, 1)

    return record_all_natively


def record_all(
    ring: ParameterRing, commands: Any, dispatches: Sequence[Dispatch], last: ComputePipeline | None
) -> None:
    """Record dispatches through the package's public methods."""
    for pipeline, group, parameters, x, y in dispatches:
        if pipeline is not last:
            last = pipeline
            commands.set_pipeline(pipeline.native)
        commands.set_bind_group(0, group)
        if pipeline.has_immediates:
            commands.set_immediates(0, parameters, 0, len(parameters))
        elif parameters:
            commands.set_bind_group(1, ring.group, [ring.add(parameters)])
        commands.dispatch_workgroups(x, y)


class Encoding(NamedTuple):
    """Functions for command buffers."""

    create: Callable[[], Any]
    """Create a command encoder."""
    begin: Callable[[Any], Any]
    """Begin a compute pass."""
    copy: Callable[[Any, Any, int, Any, int, int], None]
    """(encoder, source, its offset, target, its offset, bytes)"""
    finish: Callable[[Any], Any]
    """Finish an encoder."""
    submit: Callable[[Any], Any]
    """Submit a command buffer. Returns the number of the submission; None if the package does not report it."""


def encoding(device: Any) -> Encoding:
    """Return the fastest functions for command buffers."""
    api = binding("ffi", "libf", "GPUCommandEncoder", "GPUComputePassEncoder", "GPUCommandBuffer")
    try:
        create = api.libf.wgpuDeviceCreateCommandEncoder
        begin = api.libf.wgpuCommandEncoderBeginComputePass
        finish = api.libf.wgpuCommandEncoderFinish
        copy = api.libf.wgpuCommandEncoderCopyBufferToBuffer
        submit = api.libf.wgpuQueueSubmitForIndex
        none, one = api.ffi.NULL, "WGPUCommandBuffer[1]"
    except AttributeError:
        return Encoding(
            device.create_command_encoder,
            lambda encoder: encoder.begin_compute_pass(),
            lambda encoder, *regions: encoder.copy_buffer_to_buffer(*regions),
            lambda encoder: encoder.finish(),
            lambda buffer: device.queue.submit([buffer]),
        )
    return Encoding(
        lambda: api.GPUCommandEncoder("", create(device._internal, none), device),
        lambda encoder: api.GPUComputePassEncoder("", begin(encoder._internal, none), device),
        lambda encoder, source, start, target, to, nbytes: copy(
            encoder._internal, source._internal, start, target._internal, to, nbytes
        ),
        lambda encoder: api.GPUCommandBuffer("", finish(encoder._internal, none), device),
        lambda buffer: submit(device.queue._internal, 1, api.ffi.new(one, [buffer._internal])),
    )


def waiter(device: Any) -> Callable[[], None] | None:
    """Return a function that waits for all submitted work; None if this release of the package has none."""
    api = binding("ffi", "libf")
    poll = getattr(api.libf, "wgpuDevicePoll", None) if api else None
    return None if poll is None else lambda: poll(device._internal, True, api.ffi.NULL)


Binding = tuple[Any, int, int]
"""(buffer, offset, size) in bytes"""


def binder(device: Any) -> Callable[[str, Any, Sequence[Binding]], Any]:
    """Return the fastest function (label, layout, bindings) that creates a bind group of buffers."""
    api = binding("ffi", "libf", "GPUBindGroup")
    if api is None:
        return lambda label, layout, bindings: bind(device, label, layout, bindings)
    new, create, group = api.ffi.new, api.libf.wgpuDeviceCreateBindGroup, api.GPUBindGroup

    def bind_natively(label: str, layout: Any, bindings: Sequence[Binding]) -> Any:
        entries = new("WGPUBindGroupEntry[]", len(bindings))
        for i, (buffer, offset, size) in enumerate(bindings):
            entry = entries[i]
            entry.binding = i
            entry.buffer = buffer._internal
            entry.offset = offset
            entry.size = size
        descriptor = new("WGPUBindGroupDescriptor *")
        descriptor.layout = layout._internal
        descriptor.entries = entries
        descriptor.entryCount = len(bindings)
        return group(label, create(device._internal, descriptor), device)

    return bind_natively


def bind(device: Any, label: str, layout: Any, bindings: Sequence[Binding]) -> Any:
    """Create a bind group through the package's public methods."""
    entries = [
        {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
        for i, (buffer, offset, size) in enumerate(bindings)
    ]
    return device.create_bind_group(label=label, layout=layout, entries=entries)
