"""The null backend: follows the contract and computes nothing, to measure what the framework itself costs."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    return [
        BackendSpec(
            "null",
            probe="polyhal.backends.null.backend:probe",
            create="polyhal.backends.null.backend:create",
            api_version=API_VERSION,
            priority=-1000,
            hidden=True,
        )
    ]
