"""Parameters of user kernels in every language: the sizes of tensors by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyhal.hal.layout import Spec

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def sizes(specs: Mapping[str, Spec]) -> dict[str, int]:
    """Return for each tensor `x` its number of elements, `x_size`, and the lengths of its axes, `x_dim0`, ..., `x_last`."""
    found: dict[str, int] = {}
    for name, spec in specs.items():
        found[f"{name}_size"] = spec.size
        found[f"{name}_last"] = spec.shape[-1] if spec.shape else 1
        found |= {f"{name}_dim{axis}": n for axis, n in enumerate(spec.shape)}
    return found


def without_comments(source: str) -> str:
    """Replace comments by blanks, so that positions do not change."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
