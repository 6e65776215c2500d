"""Choice of the kernel of a matrix product.

All kernels support operands of any strides, so a transposed view is never copied; see `operand_copies` for the exceptions.

- `few_rows`: few rows or columns and a large matrix in aligned lines, on GPUs; bound by one read of the matrix.
- `gemv`: other products of few rows or columns; bound by the memory traffic of the matrix.
- `strided`: tiny products, dtypes without a faster kernel, GPUs without memory on the chip; reads operands directly
  from global memory.
- CPU: `cpu_panels`, packed panels and register tiles.
- GPU: `small_matrices` for batches of small products, `sliced_k` for products that fill few tiles, tensor cores or a
  `matrix_unit` if one is in use, else `tiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from polyhal.backends.common.problems import fused_gemm, gemm, joined_gemm
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import (
    cpu_panels,
    few_rows,
    gemv,
    joined,
    matrix_unit,
    sliced_k,
    small_matrices,
    strided,
    tensor_cores,
    tiles,
)
from polyhal.backends.opencl_c.lowering.gemm.operand_copies import with_contiguous_lines
from polyhal.backends.opencl_c.lowering.quantized import dispatch as quantized
from polyhal.backends.opencl_c.lowering.support.candidates import first_that_builds
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined, Launch

_SMALL = 1 << 15
"""Multiply-adds below which packing or tiling costs more than it saves."""
_NARROW = 16
"""Rows or columns below which a tile of tensor cores is mostly padding."""


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the fastest launch for a product that the driver takes. Raises KernelBuildError."""
    if p.dtype.kind == "bool":
        return strided.build(runtime, p)
    return with_contiguous_lines(runtime, p, _build)


def _build(runtime: Runtime, p: Product) -> Launch:
    choice = few_rows.choose(runtime, p) if few_rows.suits(runtime, p) else None
    if choice is None:
        return _build_other(runtime, p)
    return first_that_builds([partial(few_rows.multiply, runtime, p, choice), partial(_build_other, runtime, p)])


def _build_other(runtime: Runtime, p: Product) -> Launch:
    """Build the fastest launch for a product other than `few_rows`. Raises KernelBuildError."""
    vector = gemv.build(runtime, p)
    if vector is not None:
        return vector
    if p.count * p.m * p.n * p.k <= _SMALL:
        return strided.build(runtime, p)
    if runtime.features.cpu:
        return cpu_panels.build(runtime, p)
    if runtime.features.max_group_size < tiles.GROUP or not runtime.features.local_memory_is_real:
        return strided.build(runtime, p)
    return first_that_builds([*_in_tiles(runtime, p), partial(strided.build, runtime, p)])


def _in_tiles(runtime: Runtime, p: Product) -> list[Callable[[], Launch]]:
    """Return the builders of a product with tiles in local memory, fastest first."""
    sliced, tiled = partial(sliced_k.build, runtime, p), partial(tiles.build, runtime, p)
    if small_matrices.suits(runtime, p):
        return [partial(small_matrices.build, runtime, p), tiled]
    if _prefers_sliced_k(runtime, p):
        return [sliced]
    if _is_narrow(p):
        return [tiled]
    matrix_units = [*tensor_cores.candidates(runtime, p), *matrix_unit.candidates(runtime, p)]
    return [*matrix_units, sliced if sliced_k.suits(runtime, p) else tiled]


def _is_narrow(p: Product) -> bool:
    return min(p.m, p.n) < _NARROW


def _prefers_sliced_k(runtime: Runtime, p: Product) -> bool:
    """Return whether sliced-K beats tensor cores, which would need more launches to split float32 and to reduce."""
    return (_is_narrow(p) or p.dtype is dtypes.float32) and sliced_k.suits(runtime, p)


def _with_row_sums(runtime: Runtime, p: Product) -> Launch | Declined:
    """Build the launch for a product that also computes the row sums of its left operand."""
    if runtime.features.cpu:
        if min(p.m, p.n) > 1 and p.m * p.n * p.k > _SMALL and cpu_panels.supports_row_sums(p):
            return cpu_panels.build(runtime, p)
    elif _prefers_sliced_k(runtime, p):
        return sliced_k.build(runtime, p)
    elif tensor_cores.supports_row_sums(runtime, p):
        return tensor_cores.candidates(runtime, p)[0]()
    return Declined("the kernel for this product computes no row sums")


def _joined(runtime: Runtime, p: Product) -> Launch | Declined:
    """Build the launch for a product with several matrices, or a norm before it."""
    assert p.joined is not None
    if p.count > 1 or len(p.joined.places) >= joined.MAX_MATRICES or p.sum_class != "float":
        return Declined(
            f"{p.count} products, {1 + len(p.joined.places)} matrices; the kernels take 1 and {joined.MAX_MATRICES}"
        )
    if p.joined.norm is not None and runtime.features.cpu:
        return Declined("every group would compute the norm again, which takes as long as a launch on processors")
    if few_rows.suits(runtime, p) and runtime.features.tensor_cores:
        choice = few_rows.choose_joined(runtime, p)
        return (
            Declined("the matrices are not whole groups") if choice is None else few_rows.multiply(runtime, p, choice)
        )
    return gemv.build(runtime, p) or Declined("many rows, or matrices that are not whole groups")


batched = partial(gemm.batched, build)


def _unfused_activations(runtime: Runtime) -> Collection[str]:
    """Return the activations that run as a separate launch.

    On CPUs the register tile leaves no registers for the longest formulas: with `gelu_grad` in the epilogue a product
    took 500 us on two cores with AVX-512, in two launches 440 us.
    """
    return ("gelu_grad", "silu_grad") if runtime.features.cpu else ()


LOWERINGS = {
    **gemm.lowerings(build, wide=True, epilogues=True),
    **fused_gemm.lowerings(build, _unfused_activations, wide=True),
    "linear_weight_grad": gemm.weight_grad(_with_row_sums),
    "joined_linear": joined_gemm.lowering(_joined, quantized.build),
}
