"""Capabilities of a CUDA device."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.hal.capabilities import Capabilities
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES


def capabilities(properties: dict[str, Any]) -> Capabilities:
    """Return the capabilities, from what CUDA reports. All dtypes are supported; half precision computes in float32."""
    unparametrized = {n for n in {*EXPRESSIONS, *OP_NAMES} if not EXPRESSIONS[OP_NAMES.get(n, n)].params}
    arity = {n: EXPRESSIONS[OP_NAMES.get(n, n)].arity for n in unparametrized}
    return Capabilities(
        unary=frozenset(n for n in unparametrized if arity[n] == 1),
        binary=frozenset(n for n in unparametrized if arity[n] == 2),
        reduce=frozenset({"min", "mean", "any", "all"}),
        unified_memory=bool(properties["integrated"]),
        features={
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "compute_units": str(properties["multiProcessorCount"]),
            "local_memory": str(properties["sharedMemPerBlock"]),
            "max_group_size": str(properties["maxThreadsPerBlock"]),
        },
    )
