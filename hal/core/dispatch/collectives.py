"""Collectives that are carried out when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.core.execution.frontend import frontend
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.settings.log import logger
from polyhal.hal.layout import Ref, contiguous

if TYPE_CHECKING:
    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.core.execution.executor import Array
    from polyhal.hal.dtypes import DType

_LOG = logger("collectives")


def run_collective(
    collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
) -> tuple[Any, ...]:
    """Carry out a collective with new memory for its results. See `Executor.communicate`."""
    members = range(len(communicator.devices))
    given: list[Ref | None] = [None for _ in members]
    for (i, _), x in zip(communicator.sources(collective), sources, strict=True):
        given[i] = x.ref
    got: list[Ref | None] = [None for _ in members]
    results = []
    for i, size in communicator.targets(collective):
        device = communicator.devices[i]
        spec = contiguous(dtype, (size,))
        buffer = device.pool.take(bucket(spec.nbytes))
        ref = got[i] = Ref(buffer.handle, spec, 0)
        results.append(frontend.wrap(device, buffer, ref))
    _LOG.debug("%s of %d bytes, %d members", collective.kind, sum(x.ref.spec.nbytes for x in sources), len(members))
    communicator.run(collective, given, got)
    return tuple(results)
