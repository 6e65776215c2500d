"""What a CUDA device can do, in the framework's terms."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.codegen.expressions import CONTRACT_NAMES, EXPRESSIONS
from polyhal.hal.capabilities import Capabilities


def capabilities(properties: dict[str, Any]) -> Capabilities:
    """From CUDA's own description of the device. Every dtype is stored and computed, half precision in float32."""
    plain = {n for n in {*EXPRESSIONS, *CONTRACT_NAMES} if not EXPRESSIONS[CONTRACT_NAMES.get(n, n)].params}
    arity = {n: EXPRESSIONS[CONTRACT_NAMES.get(n, n)].arity for n in plain}
    return Capabilities(
        unary=frozenset(n for n in plain if arity[n] == 1),
        binary=frozenset(n for n in plain if arity[n] == 2),
        reduce=frozenset({"min", "mean", "any", "all"}),
        unified_memory=bool(properties["integrated"]),
        features={
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "compute_units": str(properties["multiProcessorCount"]),
            "local_memory": str(properties["sharedMemPerBlock"]),
            "max_group_size": str(properties["maxThreadsPerBlock"]),
        },
    )
