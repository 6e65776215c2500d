"""Graph texts before and after a pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.device import Device

from .rich_device import rich_device


def check(step: Callable[[Graph], Graph], before: str, after: str, device: Device | None = None) -> None:
    """Run a pass on the graph `before`, remove dead code, and compare the text with `after`."""
    target = rich_device() if device is None else device
    graph = parse(textwrap.dedent(before), target)
    place = str(target)
    found = str(remove_dead_code(step(graph))).replace(f"on {place}\n", "on it\n")
    assert found == textwrap.dedent(after).strip()
