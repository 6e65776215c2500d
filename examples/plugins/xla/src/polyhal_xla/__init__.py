"""XLA for Polyhal, through JAX. Importing this package does not import JAX."""

from __future__ import annotations

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> list[BackendSpec]:
    """Return the only backend of this distribution. It never becomes the default, because it is fast in captured steps only."""
    return [
        BackendSpec(
            name="xla",
            probe="polyhal_xla.backend:probe",
            create="polyhal_xla.backend:XlaBackend",
            priority=-150,
            api_version=2,
            environment=("JAX_", "XLA_"),
        )
    ]
