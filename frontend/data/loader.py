"""Batches of a dataset, shuffled, prepared in the background, and resumable at the exact position."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from polyhal.data.dataset import Dataset, collate, read_batch
from polyhal.data.transfer import PlainSlot, Slot, make_slot
from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.random import Generator, default_generator

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Iterates over batches of `dataset` as tensors on `device`.

    The order of each epoch follows from `seed` (or one drawn from `generator`) and the epoch's number alone.
    `prefetch` batches are read by a background thread ahead of time, through page-locked memory where the device has
    it; 0 reads when asked. `state_dict` holds the position, so that training resumes with the batch that comes next.

    `collate_fn` makes a batch of a list of samples; by default they are stacked.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        seed: int | None = None,
        generator: Generator | None = None,
        device: Device | str | None = None,
        prefetch: int = 2,
    ) -> None:
        if batch_size < 1:
            raise ValueError(message("DataLoader", f"batch_size is {batch_size}", expected="1 or more"))
        if prefetch < 0:
            raise ValueError(message("DataLoader", f"prefetch is {prefetch}", expected="0 or more"))
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.device = Device(device)
        self.prefetch = prefetch
        if seed is None:
            high, low = (generator or default_generator).words(2) if shuffle else (0, 0)
            seed = (int(high) << 31 | int(low) >> 1) & (2**63 - 1)
        self.seed = seed
        self.epoch = 0
        """The number of the pass that is under way, or comes next."""
        self.position = 0
        """Batches of this pass already handed out."""
        self._started = False

    def __len__(self) -> int:
        """Batches in a whole pass."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def order(self, epoch: int) -> np.ndarray:
        """The sample numbers of a pass, in order."""
        n = len(self.dataset)
        if not self.shuffle:
            return np.arange(n)
        generator = Generator(self.seed)
        # Every pass has a stretch of the stream to itself: a permutation of n takes 2 n words, n / 2 blocks.
        generator.set_state({"seed": self.seed, "offset": epoch * n})
        return generator.permutation(n)

    def __iter__(self) -> Iterator[Any]:
        """A pass over the data: from the loaded position if one was loaded, else from the start.

        A pass that is abandoned counts as done.
        """
        if self._started:
            self.epoch, self.position = self.epoch + 1, 0
        self._started = True
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        order, size = self.order(self.epoch), self.batch_size
        pending = [order[i * size : (i + 1) * size] for i in range(self.position, len(self))]
        produce = _Prefetched(self, pending) if self.prefetch and pending else _Direct(self, pending)
        try:
            for batch in produce:
                self.position += 1
                yield batch
            self.epoch, self.position, self._started = self.epoch + 1, 0, False
        finally:
            produce.close()

    def read(self, indices: np.ndarray) -> Any:
        """The samples with these numbers, collated, on the host."""
        if self.collate_fn is None:
            return read_batch(self.dataset, indices)
        return _to_arrays(self.collate_fn([self.dataset[int(i)] for i in indices]))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, and what that depends on."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass continue where `state_dict` was called.

        Raises IncompatibleFileError for other data or settings.
        """
        wrong = [f"{k} was {state.get(k)}, here {v}" for k, v in self._identity().items() if state.get(k) != v]
        if wrong:
            raise IncompatibleFileError(
                message("DataLoader", "the saved position is of another loader: " + ", ".join(wrong))
            )
        self.seed, self.epoch, self.position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._started = False

    def _identity(self) -> dict[str, Any]:
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }


def _to_arrays(batch: Any) -> Any:
    """What a user's collate function returned, with tensors and lists of numbers as arrays."""
    if isinstance(batch, dict):
        return {k: _to_arrays(v) for k, v in batch.items()}
    if isinstance(batch, tuple):
        parts = [_to_arrays(v) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if hasattr(batch, "__array__"):
        return np.asarray(batch)
    return batch


class _Direct:
    """Reads each batch when it is asked for."""

    def __init__(self, loader: DataLoader, pending: list[np.ndarray]) -> None:
        self._loader = loader
        self._pending = pending
        self._slot = PlainSlot(loader.device)

    def __iter__(self) -> Iterator[Any]:
        for indices in self._pending:
            yield self._slot.upload(self._loader.read(indices))

    def close(self) -> None:
        """Nothing is running."""


class _Prefetched:
    """Reads batches in a thread of its own, a bounded number ahead.

    Slots go round: the thread takes a free one, fills it and queues it; the consumer uploads from it and frees it.
    """

    def __init__(self, loader: DataLoader, pending: list[np.ndarray]) -> None:
        self._loader = loader
        self._pending = pending
        self._free: queue.SimpleQueue[Slot | PlainSlot | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[Slot | PlainSlot | None, Any]] = queue.SimpleQueue()
        self._closed = False
        for _ in range(min(loader.prefetch, len(pending))):
            self._free.put(make_slot(loader.device))
        self._thread = threading.Thread(target=self._work, name="polyhal-data", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for indices in self._pending:
                slot = self._free.get()
                if slot is None:
                    return
                self._ready.put((slot, slot.stage(self._loader.read(indices))))
        except BaseException as error:  # handed to the consumer, which raises it
            self._ready.put((None, error))

    def __iter__(self) -> Iterator[Any]:
        for _ in self._pending:
            slot, staged = self._ready.get()
            if slot is None:
                raise staged
            batch = slot.upload(staged)
            self._free.put(slot)
            yield batch

    def close(self) -> None:
        """Stop the thread and wait for it and for copies under way.

        Called on exhaustion, on errors and on early exit alike.
        """
        if self._closed:
            return
        self._closed = True
        while not self._free.empty():
            self._free.get_nowait().wait()  # type: ignore[union-attr]
        self._free.put(None)
        if not sys.is_finalizing():  # the interpreter has stopped daemon threads by then, and joining would hang
            self._thread.join()


__all__ = ["DataLoader", "collate"]
