"""The table of losses and PEFT's losses in docs/language-models.md, from the results of tests/adapters/compare_with_peft.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = "docs/language-models.md"
_RESULTS = "tests/adapters/peft_losses.json"
_BEGIN = "<!-- `make generate` writes the table -->"
_END = "<!-- end of the table -->"
_EVERY = 10
"""Steps between rows."""


def with_table(root: Path) -> str:
    """Return the page with the table of the results. Raises ValueError if the page has no place for it."""
    page = (root / PAGE).read_text(encoding="utf-8")
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE} has no {_BEGIN} and {_END}")
    found = json.loads((root / _RESULTS).read_text(encoding="utf-8"))
    return "".join([before, begin, "\n", *(line + "\n" for line in _lines(found)), end, after])


def _lines(found: dict[str, Any]) -> list[str]:
    curves = found["curves"]
    steps = len(next(iter(curves.values()))["peft"])
    lines = [
        f"| step | {' | '.join(f'{title}: PEFT | Polyhal' for title in curves)} |",
        f"|---|{'---:|' * 2 * len(curves)}",
    ]
    for step in sorted({1, *range(_EVERY, steps, _EVERY), steps}):
        values = (f"{row[name][step - 1]:.4f}" for row in curves.values() for name in ("peft", "polyhal"))
        lines.append(f"| {step} | {' | '.join(values)} |")
    losses = max(abs(b / a - 1) for row in curves.values() for a, b in zip(row["peft"], row["polyhal"], strict=True))
    logits = max(row["logits"] for row in curves.values())
    versions = found["versions"]
    measured = f"device {found['device']}, PEFT {versions['peft']}, PyTorch {versions['torch']}"
    differences = (
        f"Losses differ by at most {losses:.1e} of their value, and logits of exchanged adapters by {logits:.1e} of the"
    )
    return [*lines, "", differences, f"largest ({measured})."]
