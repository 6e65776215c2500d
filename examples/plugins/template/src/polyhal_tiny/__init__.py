"""A Polyhal backend for a device that we pretend to have. Importing this package imports no driver."""

from polyhal.hal.hookspecs import BackendSpec, hookimpl


@hookimpl
def polyhal_backends() -> list[BackendSpec]:
    """The one backend of this distribution; a low priority keeps it from being anyone's default."""
    return [BackendSpec("tiny", "polyhal_tiny.backend:probe", "polyhal_tiny.backend:TinyBackend", priority=-200)]
