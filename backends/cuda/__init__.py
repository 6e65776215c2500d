"""The CUDA backend: NVIDIA's GPUs by the driver alone, with the kernels in OpenCL C. Importing this package opens no driver."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the CUDA backend."""
    return [
        BackendSpec(
            name="cuda",
            probe="polyhal.backends.cuda.discovery:probe",
            create="polyhal.backends.cuda.backend:create",
            api_version=API_VERSION,
            priority=60,
            environment=("CUDA_", "NVIDIA_"),
        )
    ]
