"""Tiles of the products of Winograd's kernels on GPUs (shaders/opencl/conv/winograd_product.h)."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.features import KernelFeatures

GROUP = 256
"""Work-items per tile."""
ELEMENTS = 16
"""Elements of a transformed tile of pixels, 4 by 4."""
_PADDING = 16
"""Maximum elements of padding per term."""


@dataclass(frozen=True, slots=True)
class WinogradTile:
    """The results of a group: blocks of 4 x 4 per work-item, and terms per step."""

    row_quads: int
    column_quads: int
    terms: int

    @property
    def rows(self) -> int:
        return 16 * self.row_quads

    @property
    def columns(self) -> int:
        return 16 * self.column_quads

    @property
    def local_memory(self) -> int:
        """Bytes of local memory of a group, for two steps."""
        return 2 * 4 * self.terms * (ELEMENTS * (self.rows + self.columns) + _PADDING)

    def definitions(self, features: KernelFeatures) -> dict[str, int]:
        """Return the definitions of a kernel."""
        sizes = {"ROW_QUADS": self.row_quads, "COLUMN_QUADS": self.column_quads, "TERMS": self.terms}
        return {**sizes, **occupancy.definitions(features.architecture)}


TILE = WinogradTile(4, 2, 8)
"""The fastest tile on an H200, with all terms of a step unrolled: 249 registers, and half of the local memory of a unit."""


def fits(features: KernelFeatures) -> bool:
    """Return whether a device has the local memory for the tile; those with less have not been measured."""
    fits = TILE.local_memory <= features.static_local_memory and features.max_group_size >= GROUP
    return fits and features.architecture is None
