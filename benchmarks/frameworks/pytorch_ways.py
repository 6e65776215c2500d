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
TRACED = "PyTorch, traced"
"""PyTorch's compiler traces the model and its gradients, and the graphs run eagerly: the least time of a first compiled
step."""


def traced(graph: Any, inputs: Any) -> Any:
    """Trace a Dynamo graph and its gradient by AOTAutograd and leave them uncompiled: a backend of `torch.compile`."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    def uncompiled(traced_graph: Any, inputs: Any) -> Any:
        return make_boxed_func(traced_graph.forward)

    return aot_autograd(fw_compiler=uncompiled, partition_fn=min_cut_rematerialization_partition)(graph, inputs)


def best_ms(who: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the milliseconds of the fastest way of PyTorch in a row; None if the row has none."""
    return min((who[way]["ms"] for way in PEERS if way in who), default=None)
