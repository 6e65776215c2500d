"""Collectives as ops in the graph of a captured step. `Executor.communicate` applies them."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.collectives.collective import Collective, Kind, Reduction
from polyhal.hal.ops.declare import REQUIRED, Output, Schema, Specs, Trait, declare

_REDUCE = {Reduction.SUM: np.add, Reduction.MAX: np.maximum, Reduction.MIN: np.minimum}


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    return [(params["dtype"], (size,)) for _, size in params["communicator"].targets(params["collective"])]


def _collective(xs: Any, *, collective: Any, communicator: Any, dtype: Any) -> Any:
    """Vectors of several devices, combined or exchanged; one result per receiving participant of this process."""
    return tuple(expected(collective, xs))


def expected(collective: Collective, sources: Any) -> list[np.ndarray]:
    """Return the receive buffers of a collective for these send buffers."""
    whole = sources[0]
    if collective.kind in (Kind.GATHER, Kind.ALL_GATHER):
        whole = np.concatenate(sources)
    elif collective.kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER):
        for x in sources[1:]:
            whole = _REDUCE[collective.reduction](whole, x)
    results = []
    for member, (start, count) in enumerate(zip(collective.starts, collective.counts, strict=True)):
        size = collective.target_size(member)
        if size is not None:
            takes_part = collective.kind in (Kind.SCATTER, Kind.REDUCE_SCATTER)
            results.append(whole[start : start + count] if takes_part else whole)
    return results


collective = declare(
    _collective,
    name="collective",
    family="transfer",
    schema=Schema(
        ("xs",),
        variadic=True,
        params={"collective": REQUIRED, "communicator": REQUIRED, "dtype": REQUIRED},
        variadic_outputs=True,
    ),
    infer=_infer,
    lowering=(),  # the scheduler runs it, because only the scheduler has all devices
    traits=Trait.CROSS_DEVICE | Trait.COLLECTIVE,
    public=False,
)
