"""A Polyhal backend for an imaginary device. Importing this package does not import a driver."""

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> list[BackendSpec]:
    """Return the only backend of this distribution. Its negative priority ranks it behind all other devices."""
    return [BackendSpec("tiny", "polyhal_tiny.backend:probe", "polyhal_tiny.backend:TinyBackend", -200, api_version=2)]
