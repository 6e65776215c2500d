"""Copies of operands whose features are not whole aligned vectors, such as gradients that a sum broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, Launch

_MIN_QUERIES = 32
"""Minimum number of queries for which copies are faster: each query reads all keys and values."""


def with_vectors(
    runtime: Runtime, call: AttentionCall, elements: int, build: Callable[[AttentionCall], Launch | Declined]
) -> Launch | Declined:
    """Build the launch of a call after copies that let it read all operands in aligned vectors of `elements`.

    Heads along which an operand is broadcast remain broadcast in its copy. Rows do not: groups that all read one line of memory
    would wait for each other.
    """
    places: list[Tensor | Workspace] = [call.place(i) for i in range(len(call.names))]
    specs, strides = list(call.specs), list(call.shape.batch_strides)
    steps: list[Launch] = []
    workspace: list[int] = []
    for i, spec in enumerate(call.specs):
        rows, features = spec.shape[-2:]
        if call.shape.t < _MIN_QUERIES or features % elements or call.operand_aligned(i, elements):
            continue
        axes = (*strides[i], *spec.strides[-2:])
        kept = (*(n if step else 1 for n, step in zip(call.shape.batch, strides[i], strict=True)), rows, features)
        target = contiguous(spec.dtype, kept)
        at = call.first_workspace + len(steps)
        steps.append(copy.to_workspace(runtime, Spec(spec.dtype, kept, axes, spec.aligned), i, target, at))
        workspace.append(target.nbytes)
        batch0, batch1, batch2 = (new if step else 0 for new, step in zip(target.strides[:3], strides[i], strict=True))
        places[i], strides[i] = Workspace(at), (batch0, batch1, batch2)
        specs[i] = Spec(spec.dtype, spec.shape, (*(0,) * (spec.ndim - 2), features, 1), True)
    if not steps:
        return build(call)
    shape = replace(call.shape, batch_strides=tuple(strides))
    launch = build(replace(call, specs=tuple(specs), shape=shape, memory=tuple(places), copies=len(steps)))
    return launch if isinstance(launch, Declined) else LaunchSequence((*steps, launch), (*workspace, *launch.workspace))
