"""Running an op as fills and copies of regions of its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.layout import Ref, Spec, place
from polyhal.hal.ops.lowering import OutputRegion
from polyhal.hal.planning.core_member import Run
from polyhal.hal.protocol import ComputeBackend


def region_run(backend: ComputeBackend, regions: Sequence[OutputRegion], output: Spec) -> Run:
    """Fill or copy every region, none of which is empty."""
    fill, copy = backend.fill, backend.copy
    placed = [(region, place(output, region.target)) for region in regions]

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        out = outs[0]
        for region, spec in placed:
            target = Ref(out.handle, spec, out.offset + region.target.offset)
            x = region.value if region.source is None else args[region.source]
            if not isinstance(x, Ref):
                fill(x, target)
            elif region.view is None:
                copy(x, target)
            else:
                copy(Ref(x.handle, place(x.spec, region.view), x.offset + region.view.offset), target)

    return run
