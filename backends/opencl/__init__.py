"""The OpenCL backend: any GPU or CPU with an OpenCL 1.2 driver. Importing this package does not import pyopencl."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the OpenCL backend and a hidden backend for described devices, which need no hardware."""
    return [
        BackendSpec(
            name="opencl",
            probe="polyhal.backends.opencl.discovery:probe",
            create="polyhal.backends.opencl.backend:create",
            expand="polyhal.backends.opencl.sub_devices:expand",
            api_version=API_VERSION,
            priority=50,
            aliases=("cl", "ocl"),
            environment=(
                "OCL_ICD_",
                "OPENCL_",
                "PYOPENCL_",
                "POCL_",
                "RUSTICL_",
                "CUDA_VISIBLE_DEVICES",
                "ROCR_VISIBLE_DEVICES",
            ),
        ),
        BackendSpec(
            name="described",
            probe="polyhal.backends.common.described.devices:probe",
            create="polyhal.backends.common.described.devices:create",
            api_version=API_VERSION,
            priority=-1000,
            hidden=True,
        ),
    ]
