"""Products of few rows with quantised weights on GPUs: codes times integers of 16 bits, on tensor cores of NVIDIA's devices."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import early
from polyhal.backends.common.problems.quantized import QuantizedProduct
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch
from polyhal.hal.quantization.tiles import TILE

MAX_ROWS = 16
_WARP = 32
_SET = 4
"""Rows of x that an instruction of tensor cores multiplies."""
_MANY_TILES = 256
_LOCAL_MEMORY = 32 << 10
"""Maximum bytes of local memory of a group."""


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Work of a group: `warps` warps, `across` tiles, and `warps / across` along the terms."""

    warps: int
    across: int
    unroll: int
    """Blocks of a warp in flight at a time."""


def _allowed(features: KernelFeatures, choice: QuantizedRows) -> bool:
    return choice.across <= choice.warps and choice.warps * _WARP <= features.max_group_size


FAMILY = Family[QuantizedRows](
    "quantized_rows", {"warps": (4, 8, 16, 32), "across": (1, 2, 4, 8), "unroll": (1, 2, 4)}, _allowed
)


def suits(features: KernelFeatures) -> bool:
    """Return whether a GPU has groups and local memory for the kernel."""
    return (
        features.local_memory_is_real
        and features.max_group_size >= 8 * _WARP
        and max(features.local_memory, features.static_local_memory) >= _LOCAL_MEMORY
    )


def choose(runtime: Runtime, p: QuantizedProduct) -> QuantizedRows:
    """Return the division of a product among groups and warps."""
    kind = f"{size_class(p.m, p.n, p.k)} of {p.form.name}"
    return runtime.tuning.choose(FAMILY, kind, default(runtime.features, p))


def default(features: KernelFeatures, p: QuantizedProduct) -> QuantizedRows:
    """Return the division that was fastest on an H200: many rows of x are prepared once for several tiles."""
    tiles, large = p.n // TILE, p.form.block > _WARP
    most = features.max_group_size // _WARP
    if p.m <= _SET and tiles <= features.compute_units and most >= 16:
        return QuantizedRows(16, 1, 1)
    if p.m == 1:
        return QuantizedRows(8, 4 if tiles >= 8 * features.compute_units else 1, 1 if large else 4)
    if p.m <= _SET:
        return QuantizedRows(32, 4, 1) if most >= 32 else QuantizedRows(8, 2, 1)
    return QuantizedRows(16 if most >= 16 else 8, 4 if tiles >= _MANY_TILES else 2, 1 if large else 2)


def build(runtime: Runtime, p: QuantizedProduct, choice: QuantizedRows) -> Launch:
    """Build the launch for this division. Raises KernelBuildError."""
    rows = 1 if p.m == 1 else max(4, min(MAX_ROWS, 1 << (p.m - 1).bit_length()))
    items, args = _WARP * choice.warps, p.args()
    return runtime.launch(
        "quantized/mma_rows",
        {
            "FORMAT": p.form.name,
            "DTYPE": p.dtype.name,
            "ROWS": rows,
            "WARPS": choice.warps,
            "ACROSS": choice.across,
            "UNROLL": choice.unroll,
            "TENSOR_CORES": runtime.features.tensor_cores,
        },
        {**args, "blocks": early(args["blocks"])},
        (ceil_div(p.n, TILE * choice.across) * items, ceil_div(p.m, rows)),
        (items, 1),
    )
