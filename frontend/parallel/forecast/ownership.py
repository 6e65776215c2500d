"""What the busiest device owns if each parameter belongs to one device, as the optimizer of `DataParallel` divides its work."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence


def largest_share(sizes: Sequence[int], owners: int, bucket: float) -> int:
    """Bytes of the owner that has the most. `sizes` are those of parameters in the order of the model.

    As `parallel.replication` does it: bucket after bucket, the largest first, to the owner with the least so far.
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
