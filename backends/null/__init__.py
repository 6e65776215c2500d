"""The null backend: implements the contract without computing anything, to measure the framework's own overhead."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the null backend, hidden: it is listed only on request and never the default."""
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
