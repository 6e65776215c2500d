"""Special functions under the names of torch.special, and of scipy.special where these differ."""

from typing import Any

from polyhal.hal.ops import SPECIAL

__all__ = sorted(SPECIAL)


def __getattr__(name: str) -> Any:
    if name in SPECIAL:
        return SPECIAL[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
