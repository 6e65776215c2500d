"""Capabilities of a device whose kernels are written in OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping

from polyhal.backends.common.codegen.offered import offered
from polyhal.backends.common.quirks import active
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.ptx import HOPPER
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, Limits
from polyhal.hal.member_names import OPTIONAL_BINARY, OPTIONAL_REDUCE, OPTIONAL_UNARY

_CACHE_LINE = 128
"""Bytes. Tensor cores are fed in whole cache lines."""


def kernel_capabilities(facts: KernelFeatures, max_allocation: int, features: Mapping[str, str]) -> Capabilities:
    """Return a device's capabilities in the form that the framework needs; `features` adds to the reported ones."""
    storage = frozenset(d for d in dtypes.ALL if facts.fp64 or d is not dtypes.float64)
    return Capabilities(
        storage=storage,
        compute=storage,
        unary=offered(OPTIONAL_UNARY),
        binary=offered(OPTIONAL_BINARY),
        reduce=OPTIONAL_REDUCE,
        unified_memory=facts.unified_memory,
        suballocation=True,
        strided_ops=frozenset({"attention", "attention_grad"}),
        channels_last=frozenset({dtypes.bfloat16, dtypes.float16} if facts.compute_capability == HOPPER else ()),
        limits=Limits(max_allocation=max_allocation, row_alignment=_CACHE_LINE if facts.tensor_cores else 1),
        features={
            "platform": facts.platform,
            "fp16": str(facts.fp16),
            "fp64": str(facts.fp64),
            "float_atomics": facts.float_atomics,
            "int64_atomics": str(facts.int64_atomics),
            "correctly_rounded_divide": str(facts.correct_divide),
            "vector_width": str(facts.vector_width),
            "subgroups": str(facts.subgroups),
            "local_memory": str(facts.local_memory),
            "max_group_size": str(facts.max_group_size),
            "compute_units": str(facts.compute_units),
            "profile": facts.profile,
            **({"matrix_units": ", ".join(u.name for u in facts.matrix_units)} if facts.matrix_units else {}),
            **features,
        },
        settings=frozenset({"precision", "deterministic"}),
        quirks=active(facts.quirks),
    )
