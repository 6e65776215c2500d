"""The wgpu backend: GPUs through Vulkan, Metal, DirectX 12 or OpenGL. Importing this package does not import wgpu."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the only backend of this package."""
    return [
        BackendSpec(
            name="wgpu",
            probe="polyhal.backends.wgpu.discovery:probe",
            create="polyhal.backends.wgpu.backend:create",
            api_version=API_VERSION,
            priority=40,
            aliases=("webgpu", "vulkan", "metal", "dx12"),
            environment=("WGPU_", "VK_"),
        )
    ]
