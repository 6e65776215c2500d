"""Samples of cases: one of several neighbours, selected by a seed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence


def sample(cases: Sequence[tuple[str, str]], one_in: int, seed: str) -> set[str]:
    """Return the names of the selected cases among (group, name).

    One of each `one_in` consecutive names of a group is selected, and one of the remaining names: neighbours often test the
    same op. Equal seeds select equal cases in all processes. Another seed, such as the next commit, selects others.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for group, name in cases:
        groups[group].append(name)
    blocks = (names[start : start + one_in] for names in groups.values() for start in range(0, len(names), one_in))
    return {min(block, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()) for block in blocks}
