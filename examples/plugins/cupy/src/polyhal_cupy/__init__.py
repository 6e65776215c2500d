"""CUDA devices for Polyhal, through CuPy. Importing this package does not import CuPy."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the only backend of this distribution. On a card that OpenCL also supports, this backend is preferred."""
    return [
        BackendSpec(
            name="cuda",
            probe="polyhal_cupy.discovery:probe",
            create="polyhal_cupy.backend:create",
            api_version=2,
            priority=60,
            aliases=("cupy",),
            environment=("CUDA_", "CUPY_", "NVIDIA_VISIBLE_DEVICES"),
        )
    ]
