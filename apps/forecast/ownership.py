"""Bytes of parameters on the busiest device if each parameter has one owner, as in the optimizer step of `DataParallel`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence


def largest_share(sizes: Sequence[int], owners: int, bucket: float) -> int:
    """Return the bytes of the owner with the most parameters. `sizes` are the parameters' sizes in the order of the model.

    The assignment is that of `parallel.replication`: bucket by bucket, the largest parameter first, to the least loaded owner.
    """
    load = [(0, i) for i in range(min(owners, len(sizes)))]
    for run in _runs(sizes, bucket):
        for size in sorted(run, reverse=True):
            least, owner = load[0]
            heapq.heapreplace(load, (least + size, owner))
    return max(load)[0] if load else 0


def _runs(sizes: Sequence[int], bucket: float) -> Iterator[list[int]]:
    run: list[int] = []
    for size in sizes:
        if run and sum(run) + size > bucket:
            yield run
            run = []
        run.append(size)
    if run:
        yield run
