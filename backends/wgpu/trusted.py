"""Shader modules without the run-time checks that web pages need.

The checks bound every index and count the turns of every loop, which costs a matrix product about half its speed. The
native library can leave them out, but wgpu's Python package does not pass that on, so that this one function is called
through the package's own binding. Where a release hides it, modules are compiled the ordinary, checked way.
"""

from __future__ import annotations

from typing import Any

_CHECKS = 0
"""WGPUShaderRuntimeChecks_None"""


def compile_module(device: Any, text: str, label: str, *, checked: bool = False) -> Any:
    """A shader module of WGSL `text`. Raises wgpu.GPUError when it does not compile."""
    native = None if checked else _native()
    if native is None:
        return device.create_shader_module(label=label, code=text)
    api, create = native
    source = api.new_struct_p("WGPUShaderSourceWGSL *", code=api.to_c_string_view(text))
    source[0].chain.next = api.ffi.NULL
    source[0].chain.sType = api.lib.WGPUSType_ShaderSourceWGSL
    descriptor = api.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        nextInChain=api.ffi.cast("WGPUChainedStruct *", source),
        label=api.to_c_string_view(label),
    )
    module = create(device._internal, descriptor, _CHECKS)
    if module == api.ffi.NULL:
        return device.create_shader_module(label=label, code=text)
    return api.GPUShaderModule(label, module, device)


def _native() -> tuple[Any, Any] | None:
    """The binding's module and the function, or None where this release of wgpu lacks something of it."""
    try:
        from wgpu.backends.wgpu_native import _api as api

        for name in ("new_struct_p", "to_c_string_view", "ffi", "lib", "GPUShaderModule"):
            getattr(api, name)
        return api, api.libf.wgpuDeviceCreateShaderModuleTrusted
    except (ImportError, AttributeError):
        return None
