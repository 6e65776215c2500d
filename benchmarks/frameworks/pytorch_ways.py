"""PyTorch's own ways to run a step: eagerly, compiled, and both as a CUDA graph. Tables compare with the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PEER, INDUCTOR = "PyTorch", "PyTorch compiled"
GRAPH, INDUCTOR_GRAPH = "PyTorch, CUDA graph", "PyTorch compiled, CUDA graph"
GRAPHS = (GRAPH, INDUCTOR_GRAPH)
"""Whole steps as CUDA graphs: on CUDA only."""
COMPILED = (INDUCTOR, INDUCTOR_GRAPH)
"""Ways whose model TorchInductor compiles."""
PEERS = (PEER, INDUCTOR, *GRAPHS)


def best_ms(who: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the milliseconds of the fastest way of PyTorch in a row; None if the row has none."""
    return min((who[way]["ms"] for way in PEERS if way in who), default=None)
