"""Capabilities of a CUDA device."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.codegen.offered import offered
from polyhal.hal.capabilities import Capabilities
from polyhal.hal.member_names import OPTIONAL_BINARY, OPTIONAL_REDUCE, OPTIONAL_UNARY


def capabilities(properties: dict[str, Any]) -> Capabilities:
    """Return the capabilities from the properties reported by CUDA.

    All dtypes are supported; half precision computes in float32.
    """
    return Capabilities(
        unary=offered(OPTIONAL_UNARY),
        binary=offered(OPTIONAL_BINARY),
        reduce=OPTIONAL_REDUCE,
        unified_memory=bool(properties["integrated"]),
        features={
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "compute_units": str(properties["multiProcessorCount"]),
            "local_memory": str(properties["sharedMemPerBlock"]),
            "max_group_size": str(properties["maxThreadsPerBlock"]),
        },
    )
