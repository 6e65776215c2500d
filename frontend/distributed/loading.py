"""A data loader for ranks: each reads its part of every batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.data import DataLoader, Dataset
from polyhal.data.reading import BatchRequest
from polyhal.distributed.job import is_initialized, process_group
from polyhal.hal.collectives.collective import divided
from polyhal.hal.errors import message


class ShardedLoader(DataLoader):
    """A `DataLoader` over batches that are divided among the ranks, in an order that does not depend on the number of ranks.

    `batch_size` is the number of samples on all ranks. No sample is read twice or left out, and `state_dict` can be resumed
    with another number of ranks.

    `rank` and `ranks` default to the job's. Without `seed`, rank 0 draws one for all. Other options are those of
    `DataLoader`, for datasets with a length. Raises ValueError for a batch with fewer samples than ranks, because a rank
    without samples would have no loss.

    >>> data = polyhal.data.TensorDataset(polyhal.arange(5))
    >>> [[b.tolist() for (b,) in polyhal.distributed.ShardedLoader(data, 3, rank=r, ranks=2)] for r in range(2)]
    [[[0, 1], [3]], [[2], [4]]]
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, *, rank: int | None = None, ranks: int | None = None, **options: Any
    ) -> None:
        joined = process_group() if is_initialized() else None
        self.rank: int = rank if rank is not None else joined.rank if joined else 0
        self.ranks: int = ranks if ranks is not None else joined.size if joined else 1
        if not 0 <= self.rank < self.ranks:
            raise ValueError(message("ShardedLoader", f"rank {self.rank} of {self.ranks}", expected="0 to ranks - 1"))
        super().__init__(dataset, batch_size, **options)
        if self._streams or self.batch_size is None:
            problem = "a stream, or a loader without batches, cannot be divided among ranks"
            raise ValueError(message("ShardedLoader", problem, fix="pass a dataset with a length, and a batch_size"))
        if joined is not None and ranks is None and options.get("seed") is None:
            seed = np.array([self.seed], np.int64)
            joined.broadcast(seed)
            self.seed = int(seed[0])

    def part(self, indices: Any) -> Any:
        """Return this rank's part of the samples (B,) of a batch. Raises ValueError if there are fewer samples than ranks."""
        counts = divided(len(indices), self.ranks)
        if not counts[-1]:
            raise ValueError(
                message(
                    "ShardedLoader",
                    f"a batch of {len(indices)} samples for {self.ranks} ranks",
                    expected="at least one per rank",
                    fix="use a larger batch_size, drop_last=True or fewer ranks",
                )
            )
        start = sum(counts[: self.rank])
        return indices[start : start + counts[self.rank]]

    @property
    def total(self) -> int:
        """Number of samples in the last batch, on all ranks."""
        samples = len(self.dataset if self.sampler is None else self.sampler)  # type: ignore[arg-type]
        size = self.batch_size or 1
        return min(size, samples - (max(self.position, 1) - 1) * size)

    def weight(self, rows: int, total: int | None = None) -> float:
        """Return the weight of this rank's `rows` in a batch of `total` samples, by default the last batch.

        Means of losses, multiplied by the weights and summed over the ranks, are the mean over the whole batch.
        """
        return rows / (self.total if total is None else total)

    def _request(self, number: int, indices: Any) -> BatchRequest:
        return super()._request(number, self.part(indices))
