"""Adding rows by index on GPUs with atomics: one work-item per element. Floats are added in no fixed order."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.opencl_c.lowering.gather.problem import RowScatter, atomic_definitions
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_QUAD = 4
"""Floats that one instruction adds."""


def adds_quads(runtime: Runtime, p: RowScatter) -> bool:
    """Return whether one instruction adds four floats."""
    source = p.source
    return (
        runtime.features.quad_atomics
        and p.out.dtype is dtypes.float32
        and source.aligned
        and p.out.aligned
        and source.column == 1
        and source.width % _QUAD == 0
        and source.row % _QUAD == 0
    )


def build(runtime: Runtime, p: RowScatter) -> Launch:
    """Build the launch that adds to the elements of the result, which are initialized. Raises KernelBuildError."""
    definitions = atomic_definitions(p.index.dtype, p.out.dtype, runtime.features.float_atomics)
    quads = adds_quads(runtime, p)
    return runtime.launch(
        "gather/scatter_add_atomic",
        definitions | {"QUAD_ATOMICS": quads},
        {
            **p.index.args(),
            **p.source.args(),
            "out": Tensor(p.out.place),
            "count": p.index.count,
            "width": p.source.width,
            "rows": p.out.rows,
        },
        (p.index.count * p.source.width // (_QUAD if quads else 1),),
        (runtime.features.group_size,),
    )
