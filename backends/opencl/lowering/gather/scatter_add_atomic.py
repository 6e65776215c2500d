"""Adding rows by index on GPUs with atomics: one work-item per element. Floats are added in no fixed order."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.opencl.lowering.gather.problem import RowScatter, atomic_definitions
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch


def build(runtime: Runtime, p: RowScatter) -> Launch:
    """Build the launch. Raises KernelBuildError."""
    definitions = atomic_definitions(p.index.dtype, p.out.dtype, runtime.features.float_atomics)
    return runtime.launch(
        "gather/scatter_add_atomic", definitions,
        {
            **p.index.args(), **p.source.args(), "out": Tensor(p.out.place), "count": p.index.count, "width": p.source.width,
            "rows": p.out.rows,
        },
        (p.index.count * p.source.width,), (runtime.features.group_size,),
    )  # fmt: skip
