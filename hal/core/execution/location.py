"""Source locations: the line of the user's program, and the module, that an op belongs to.

As in MLIR, a location says where an op comes from and takes no part in comparisons: two recordings of one step are the same
step wherever it was called from.
"""

from __future__ import annotations

from polyhal.hal.core.execution.user_line import line_text, user_position


class SourceLocation:
    """Where the user's program called an op. All locations are equal."""

    __slots__ = ("file", "gradient_of", "line", "module", "part_of")

    def __init__(
        self, file: str = "", line: int = 0, module: str = "", gradient_of: str = "", part_of: str = ""
    ) -> None:
        """`gradient_of` names the op whose gradient is computed; file and line are then those of that op.

        `part_of` names the op that was called if a pass has replaced it by its parts.
        """
        self.file = file
        self.line = line
        self.module = module
        self.gradient_of = gradient_of
        self.part_of = part_of

    @classmethod
    def current(cls, module: str = "") -> SourceLocation:
        """The innermost line outside of this library."""
        return cls(*user_position(), module)

    def in_gradient(self, op: str) -> SourceLocation:
        """The location of the ops that compute the gradient of `op`, which was called here."""
        return SourceLocation(self.file, self.line, self.module, op)

    def within(self, op: str) -> SourceLocation:
        """The location of a part of `op`, which was called here."""
        return SourceLocation(self.file, self.line, self.module, self.gradient_of, self.part_of or op)

    @property
    def text(self) -> str:
        """The line, as "file:line: source"; empty if it is not known."""
        return line_text(self.file, self.line) if self.file else ""

    @property
    def facts(self) -> dict[str, str]:
        """The other known facts by name: `gradient of`, `part of` and `module`."""
        named = {"gradient of": self.gradient_of, "part of": self.part_of, "module": self.module}
        return {name: fact for name, fact in named.items() if fact}

    @property
    def notes(self) -> list[str]:
        """The facts as text, as in "gradient of softmax"."""
        return [f"{name} {fact}" for name, fact in self.facts.items()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceLocation)

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        if self.gradient_of:
            at = f" at {self.text}" if self.text else ""
            where = f"in the gradient of {self.gradient_of}{at}"
        else:
            where = f"at {self.text or 'an unknown line'}"
        if self.part_of:
            where = f"as part of {self.part_of} {where}"
        return f"{where} (module {self.module})" if self.module else where

    def __repr__(self) -> str:
        """Return one text for all, so that nodes that compare equal have equal texts."""
        return "SourceLocation(...)"


UNKNOWN = SourceLocation()
"""The location of an op that nobody noted."""
