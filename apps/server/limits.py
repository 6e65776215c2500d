"""Limits of a server."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.errors import message


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Maximum sizes. A request beyond one is refused before the model computes anything."""

    body: int = 8 << 20
    """Bytes of a request."""
    body_seconds: int = 60
    """Seconds in which a request must arrive."""
    prompt: int | None = None
    """Tokens of a prompt; None for the model's context."""
    waiting: int = 64
    """Sequences that wait for a place in the batch."""
    choices: int = 16
    """Sequences of one request: prompts times `n`."""

    def __post_init__(self) -> None:
        for name in ("body", "body_seconds", "prompt", "waiting", "choices"):
            value = getattr(self, name)
            least = 0 if name == "waiting" else 1
            if value is not None and value < least:
                raise ValueError(message("serve", f"the limit {name} is {value}", expected=f"{least} or more"))
