"""The NumPy backend: the reference that needs no driver, and restricted variants of it for tests."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION


@hookimpl
def polyhal_backends() -> Sequence[BackendSpec]:
    """Return the NumPy backend. Its low priority makes it the default only if no other device is found."""
    return [
        BackendSpec(
            "numpy",
            probe="polyhal.backends.numpy.backend:probe",
            create="polyhal.backends.numpy.backend:create",
            api_version=API_VERSION,
            priority=-100,
            aliases=("np",),
        )
    ]
