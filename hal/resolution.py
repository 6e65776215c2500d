"""How an op came to run the way it does: what `explain` prints."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Resolution:
    """How one op runs: the step that was taken, what was passed over and why, and the parts of a decomposition."""

    op: str
    specs: str
    how: str
    skipped: list[str] = field(default_factory=list)
    parts: list[Resolution] = field(default_factory=list)

    @property
    def uses_host(self) -> bool:
        return self.how.startswith("host") or any(p.uses_host for p in self.parts)

    def lines(self, indent: int = 0, told: frozenset[str] = frozenset()) -> list[str]:
        """One line per op, then why earlier steps were passed over and the parts. Reasons already `told` are not repeated."""
        pad = "  " * indent
        out = [f"{pad}{self.op}({self.specs}): {self.how}"]
        out += [f"{pad}  passed over {reason}" for reason in self.skipped if reason not in told]
        told |= frozenset(self.skipped)
        counts: dict[tuple[str, ...], int] = {}
        for part in self.parts:
            text = tuple(part.lines(indent + 1, told))
            counts[text] = counts.get(text, 0) + 1
        for text, count in counts.items():
            out += [text[0] + (f"  ({count} times)" if count > 1 else ""), *text[1:]]
        return out

    def __str__(self) -> str:
        return "\n".join(self.lines())
