"""The sim backend: a simulated GPU that computes as NumPy does, with a driver, a time model and fault injection."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the simulated GPU, hidden: it is listed only on request and never the default."""
    return [
        BackendSpec(
            "sim",
            probe="polyhal.backends.sim.backend:probe",
            create="polyhal.backends.sim.backend:create",
            expand="polyhal.backends.sim.selector:expand",
            api_version=API_VERSION,
            priority=-500,
            hidden=True,
        )
    ]
