"""The data loader: shuffled batches, prefetched in the background, resumable at the exact position."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from typing import Any

import numpy as np

from polyhal.data.combining import IterableDataset
from polyhal.data.dataset import Dataset, collate
from polyhal.data.delivery import Direct, Prefetched
from polyhal.data.division import BatchDivision, divided_slot_factory
from polyhal.data.loader_arguments import check_counts, check_order
from polyhal.data.reading import BatchReader, BatchRequest, StreamEnd
from polyhal.data.samplers import BatchSampler
from polyhal.data.transfer import BatchSlot, slot_factory
from polyhal.data.workers import LoaderWorkers
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.random import Generator, default_generator

Collate = Callable[[Any], Any]
_DRAWN_AHEAD = 2**20
"""Maximum number of indices that are drawn at the start of an epoch."""
_UNKNOWN = sys.maxsize
"""Number of batches of a stream."""


class DataLoader:
    """Iterates over batches of `dataset` as tensors on `device`.

    The order of each epoch depends only on `seed` (by default drawn from `generator`) and the number of the epoch. A
    background thread prefetches `prefetch` batches and copies them to devices that can overlap copies with computation; with
    0, batches are read on demand. `state_dict` contains the position, so that training resumes with the next batch.

    `sampler` provides the order of samples instead, `batch_sampler` whole batches of indices. `collate_fn` makes a batch of a
    list of samples; by default they are stacked. With `batch_size` None there are no batches: `collate_fn` receives single
    samples.

    Each of `num_workers` processes reads `prefetch_factor` batches ahead. They are spawned, so that dataset and functions
    must be at the top level of a module, and a script must start under `if __name__ == "__main__":`. `worker_init_fn(id)`
    runs in each; `persistent_workers` keeps them between epochs; `timeout` is in seconds. `pin_memory` has no effect: the
    loader uses page-locked memory where it is faster.

    With a `parallel.DataParallel` model as `parallel`, batches contain `Shards` in place of tensors: the rows of each of its
    devices, copied directly to it. All arrays of a batch must then have the same number of rows. Raises ValueError for
    arguments that exclude each other.

    >>> data = polyhal.data.TensorDataset(polyhal.arange(5))
    >>> [batch.tolist() for (batch,) in polyhal.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset | IterableDataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        seed: int | None = None,
        device: Device | str | None = None,
        parallel: BatchDivision | None = None,
        prefetch: int = 2,
    ) -> None:
        streams = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        check_counts(batch_size, prefetch, num_workers, timeout, prefetch_factor, persistent_workers)
        check_order(streams, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset: Any = dataset
        self.batch_size = None if batch_sampler is not None else batch_size
        self.shuffle = bool(shuffle)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor or 2
        self.persistent_workers = persistent_workers
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        if parallel is not None and device is not None:
            problem = f"got device {device} and a parallel model, which has devices"
            raise ValueError(message("DataLoader", problem, fix="pass one of them"))
        self.parallel = parallel
        self.device = dispatch.target_device(device) if parallel is None else parallel.devices[0]
        self.prefetch = prefetch
        if seed is None:
            high, low = (generator or default_generator).words(2) if shuffle else (0, 0)
            seed = (int(high) << 31 | int(low) >> 1) & (2**63 - 1)
        self.seed = seed
        self.epoch = 0
        """Number of the current or next epoch."""
        self.position = 0
        """Number of batches of this epoch that were delivered."""
        self._started = False
        self._streams = streams
        self._pool: LoaderWorkers | None = None
        self._end_pool: Callable[[], Any] | None = None
        self._idle: tuple[Device, list[BatchSlot]] = (self.device, [])
        """Slots of the last epoch, and their device: page-locked memory is expensive to allocate."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch. Raises TypeError for streams and samplers without a length."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        samples = len(self.dataset if self.sampler is None else self.sampler)  # type: ignore[arg-type]
        if self.batch_size is None:
            return samples
        full, rest = divmod(samples, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def order(self, epoch: int) -> np.ndarray:
        """Return the sample indices of an epoch, in order; not used with a sampler."""
        n = len(self.dataset)
        if not self.shuffle:
            return np.arange(n)
        generator = Generator(self.seed)
        # Every epoch has a separate section of the stream: a permutation of n takes 2 n words, n / 2 blocks.
        generator.set_state({"seed": self.seed, "offset": epoch * n})
        return generator.permutation(n)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one epoch, from the loaded position if there is one. An abandoned epoch counts as complete."""
        if self._started:
            self.epoch, self.position = self.epoch + 1, 0
        self._started = True
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        pending, count = self._requests()
        threaded = self.prefetch and count
        produce = Prefetched(self, pending, count) if threaded else Direct(self, pending)
        try:  # threads and processes start in the loop
            for batch in produce:
                self.position += 1
                yield batch
            self.epoch, self.position, self._started = self.epoch + 1, 0, False
        finally:
            produce.close()

    def _requests(self) -> tuple[Iterable[BatchRequest], int]:
        """Return the remaining requests of this epoch, and their maximum number."""
        batches: Iterable[Any]
        if self._streams:
            # Streams cannot skip: batches before the position are read, and not delivered.
            return (self._request(i, None) for i in range(_UNKNOWN)), _UNKNOWN
        if self.batch_sampler is not None:
            batches = self.batch_sampler
        elif self.sampler is not None:
            batches = (
                self.sampler if self.batch_size is None else BatchSampler(self.sampler, self.batch_size, self.drop_last)
            )
        else:
            order, size = self.order(self.epoch), self.batch_size
            batches = order.tolist() if size is None else (order[i * size : (i + 1) * size] for i in range(len(self)))
        if self.sampler is not None or self.batch_sampler is not None:
            batches = _drawn(batches)
        left = islice(enumerate(batches), self.position, None)
        requests: Iterable[BatchRequest] = (self._request(i, indices) for i, indices in left)
        try:
            count = max(len(self) - self.position, 0)
        except TypeError:
            count = _UNKNOWN
        return requests, count

    def _request(self, number: int, indices: Any) -> BatchRequest:
        return BatchRequest(number, indices, (self.seed, self.epoch, number))

    def host_batches(self, pending: Iterable[BatchRequest], gathers: bool) -> Iterator[Any]:
        """Yield collated batches on the host; with `gathers`, arrays may be `LazyRows`, which are read later."""
        batches = self._from_workers(pending) if self.num_workers else self._from_here(pending, gathers)
        return islice(batches, self.position, None) if self._streams else batches

    def _from_here(self, pending: Iterable[BatchRequest], gathers: bool) -> Iterator[Any]:
        reader = self._reader()
        for request in pending:
            try:
                batch = reader.read(request, gathers)
            except StreamEnd:
                return
            yield batch

    def _from_workers(self, pending: Iterable[BatchRequest]) -> Iterator[Any]:
        seed = (self.seed + self.epoch * 0x9E3779B97F4A7C15) % 2**63
        pool = self._pool
        if pool is None:
            pool = LoaderWorkers(
                self.num_workers,
                self._reader(),
                self.worker_init_fn,
                seed,
                self.timeout,
                self.prefetch_factor,
                self.multiprocessing_context,
            )
            self._pool = pool
            self._end_pool = weakref.finalize(self, pool.close)
        return pool.batches(pending, seed)

    def _reader(self) -> BatchReader:
        single = self.batch_size is None and self.batch_sampler is None
        size = None if single else self.batch_size or 1
        return BatchReader(self.dataset, size, self.collate_fn, self.drop_last, self._streams)

    def read(self, indices: Any) -> Any:
        """Read and collate samples on the host, in this process."""
        return self._reader().read(BatchRequest(0, indices, (self.seed, self.epoch, 0)))

    def stop_reading(self) -> None:
        """Stop waiting for workers."""
        if self._pool is not None:
            self._pool.stopping = True

    def end_reading(self) -> None:
        """End worker processes after an epoch, unless they are persistent."""
        if self._pool is not None and not self.persistent_workers:
            self._pool = None
            if self._end_pool is not None:
                self._end_pool()

    def take_slots(self, batches: int) -> list[BatchSlot]:
        """Return the slots for an epoch of `batches` batches."""
        (device, slots), self._idle = self._idle, (self.device, [])
        make = slot_factory(self.device) if self.parallel is None else divided_slot_factory(self.parallel)
        if not slots or device is not self.device:
            slots = [make()]
        count = min(self.prefetch + slots[0].retained, batches)
        return [*slots[:count], *(make() for _ in range(count - len(slots)))]

    def give_slots(self, device: Device, slots: list[BatchSlot]) -> None:
        """Keep the slots of a device for the next epoch, without device memory."""
        for slot in slots:
            slot.release_memory()
        self._idle = device, slots

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the settings on which it depends."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the next epoch at a position of `state_dict`.

        Raises IncompatibleFileError for other data or settings.
        """
        wrong = [f"{k} was {state.get(k)}, here {v}" for k, v in self._identity().items() if state.get(k) != v]
        if wrong:
            raise IncompatibleFileError(
                message("DataLoader", "the saved position belongs to another loader: " + ", ".join(wrong))
            )
        self.seed, self.epoch, self.position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._started = False

    def _identity(self) -> dict[str, Any]:
        return {
            "samples": None if self._streams else len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }


def _drawn(batches: Iterable[Any]) -> Iterable[Any]:
    """Draw from a sampler now, before the program draws other random numbers.

    Draws on demand from a sampler of unknown length or of more than `_DRAWN_AHEAD` indices, and beyond the length of a
    sampler.
    """
    sampler: Any = getattr(batches, "sampler", batches)
    if not (isinstance(batches, Sized) and hasattr(sampler, "__len__")) or len(sampler) > _DRAWN_AHEAD:
        return batches
    drawn = iter(batches)
    return chain(list(islice(drawn, len(batches))), drawn)


__all__ = ["DataLoader", "collate"]
