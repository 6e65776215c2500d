"""OpenVINO for Polyhal. Neither importing this package nor listing its devices imports OpenVINO."""

from __future__ import annotations

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> list[BackendSpec]:
    """Return the only backend of this distribution. It is never the default device, since only captured steps are fast."""
    return [
        BackendSpec(
            name="openvino",
            probe="polyhal_openvino.devices:probe",
            create="polyhal_openvino.devices:create",
            priority=-140,
            api_version=2,
            environment=("OPENVINO_", "OV_"),
        )
    ]
