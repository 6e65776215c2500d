"""What a CUDA device can do, in the framework's terms."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.hal.capabilities import Capabilities
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES


def capabilities(properties: dict[str, Any]) -> Capabilities:
    """From CUDA's own description of the device. Every dtype is stored and computed, half precision in float32."""
    plain = {n for n in {*EXPRESSIONS, *OP_NAMES} if not EXPRESSIONS[OP_NAMES.get(n, n)].params}
    arity = {n: EXPRESSIONS[OP_NAMES.get(n, n)].arity for n in plain}
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
