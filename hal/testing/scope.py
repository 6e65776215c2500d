"""How much of the kit runs."""

from __future__ import annotations

from dataclasses import dataclass

_SMALL = 128
"""Elements: what a kernel interpreter such as Oclgrind gets through in milliseconds."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`small` keeps the calls with few elements; `full` tries every arrangement on every sample instead of rotating."""

    small: bool = False
    full: bool = False

    def accepts(self, elements: int) -> bool:
        """Whether a call on so many elements is part of the run."""
        return not self.small or elements <= _SMALL
