"""CUDA devices for Polyhal, through CuPy. Importing this package does not import CuPy."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the only backend of this distribution. It is preferred to OpenCL on the same card, but not to `cuda`."""
    return [
        BackendSpec(
            name="cupy",
            probe="polyhal_cupy.discovery:probe",
            create="polyhal_cupy.backend:create",
            api_version=2,
            priority=55,
            environment=("CUDA_", "CUPY_", "NVIDIA_VISIBLE_DEVICES"),
        )
    ]
