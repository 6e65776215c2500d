"""Ops for Polyhal: `swiglu` and `softcap`. Importing this package does not declare them yet."""

from typing import Any

from polyhal.hal.hookspecs import OpSpec, hookimpl

NAMES = ("softcap", "swiglu")


@hookimpl
def polyhal_ops() -> list[OpSpec]:
    """Return the ops of this distribution, each with the module that declares it."""
    return [OpSpec(name, f"polyhal_gates.declarations:{name}") for name in NAMES]


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from polyhal_gates import declarations

    return getattr(declarations, name)
