"""Running an op as fills and copies of the parts of its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.layout import Ref, Spec, place
from polyhal.hal.ops.opdef import Piece, Value
from polyhal.hal.planning.core_member import Run
from polyhal.hal.protocol import ComputeBackend


def assembly_run(backend: ComputeBackend, pieces: Sequence[Piece], output: Spec) -> Run:
    """Fill or copy every piece, none of which is empty, into its place in the output."""
    fill, copy = backend.fill, backend.copy
    placed = [(p, place(output, p.target)) for p in pieces]

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        out = outs[0]
        for piece, spec in placed:
            target = Ref(out.handle, spec, out.offset + piece.target.offset)
            if piece.source is None:
                fill(args[piece.value.index] if isinstance(piece.value, Value) else piece.value, target)
                continue
            x = args[piece.source]
            if not isinstance(x, Ref):
                fill(x, target)
            elif piece.view is None:
                copy(x, target)
            else:
                copy(Ref(x.handle, place(x.spec, piece.view), x.offset + piece.view.offset), target)

    return run
