"""The data loader: shuffled batches, prefetched in the background, resumable at the exact position."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from polyhal.data.dataset import Dataset, collate, read_batch, read_lazily
from polyhal.data.transfer import BatchSlot, UploadSlot, slot_factory
from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.random import Generator, default_generator

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Iterates over batches of `dataset` as tensors on `device`.

    The order of each epoch depends on `seed` (by default drawn from `generator`) and the number of the epoch alone. A
    background thread prefetches `prefetch` batches and copies them to devices that can overlap copies with computation; with
    0, batches are read on demand. `state_dict` has the position, so that training resumes with the next batch.

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
        """The number of the current or next epoch."""
        self.position = 0
        """Batches of this epoch that were delivered."""
        self._started = False
        self._idle: tuple[Device, list[BatchSlot]] = (self.device, [])
        """The slots of the last epoch, and their device: page-locked memory is expensive to allocate."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def order(self, epoch: int) -> np.ndarray:
        """The sample indices of an epoch, in order."""
        n = len(self.dataset)
        if not self.shuffle:
            return np.arange(n)
        generator = Generator(self.seed)
        # Every epoch has its own part of the stream: a permutation of n takes 2 n words, n / 2 blocks.
        generator.set_state({"seed": self.seed, "offset": epoch * n})
        return generator.permutation(n)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one epoch, from the loaded position if there is one. An epoch that is abandoned counts as done."""
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

    def read(self, indices: np.ndarray, *, gathers: bool = False) -> Any:
        """Read and collate samples on the host; with `gathers`, arrays may be `LazyRows` that are not read yet."""
        if self.collate_fn is None:
            return (read_lazily if gathers else read_batch)(self.dataset, indices)
        return _to_arrays(self.collate_fn([self.dataset[int(i)] for i in indices]))

    def take_slots(self, batches: int) -> list[BatchSlot]:
        """The slots for an epoch of that many batches."""
        (device, slots), self._idle = self._idle, (self.device, [])
        make = slot_factory(self.device)
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
        """Return the position, and the settings that it depends on."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next epoch continue at a position of `state_dict`.

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
    """The result of a user's collate function with tensors as arrays."""
    if isinstance(batch, dict):
        return {k: _to_arrays(v) for k, v in batch.items()}
    if isinstance(batch, tuple):
        parts = [_to_arrays(v) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if hasattr(batch, "__array__"):
        return np.asarray(batch)
    return batch


class _Direct:
    """Reads each batch on demand."""

    def __init__(self, loader: DataLoader, pending: list[np.ndarray]) -> None:
        self._loader = loader
        self._pending = pending
        self._slot = UploadSlot(loader.device)

    def __iter__(self) -> Iterator[Any]:
        for indices in self._pending:
            self._slot.load(self._loader.read(indices))
            yield self._slot.deliver()

    def close(self) -> None:
        """Nothing is running."""


class _Prefetched:
    """Prefetches a bounded number of batches in a thread.

    Slots circulate: the thread loads a free one and queues it; the consumer delivers its batch and frees it, at once or when
    the program is done with the batch.
    """

    def __init__(self, loader: DataLoader, pending: list[np.ndarray]) -> None:
        self._loader = loader
        self._pending = pending
        self._free: queue.SimpleQueue[BatchSlot | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[BatchSlot | BaseException] = queue.SimpleQueue()
        self._delivered: deque[BatchSlot] = deque()
        self._closed = False
        self._device = loader.device
        self._slots = loader.take_slots(len(pending))
        for slot in self._slots:
            self._free.put(slot)
        self._thread = threading.Thread(target=self._work, name="polyhal-data", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for indices in self._pending:
                slot = self._free.get()
                if slot is None:
                    return
                slot.load(self._loader.read(indices, gathers=slot.gathers))
                self._ready.put(slot)
        except BaseException as error:  # the consumer raises it
            self._ready.put(error)

    def __iter__(self) -> Iterator[Any]:
        retained = self._slots[0].retained
        for _ in self._pending:
            self._release(max(retained - 1, 0))
            slot = self._ready.get()
            if isinstance(slot, BaseException):
                raise slot
            batch = slot.deliver()
            self._delivered.append(slot)
            self._release(retained)
            yield batch

    def _release(self, keep: int) -> None:
        """Free all delivered slots but the last `keep`."""
        while len(self._delivered) > keep:
            slot = self._delivered.popleft()
            slot.release()
            self._free.put(slot)

    def close(self) -> None:
        """Stop the thread, and wait for it and for copies in flight. Called at the end, on errors and on early exit."""
        if self._closed:
            return
        self._closed = True
        while not self._free.empty():
            self._free.get_nowait()
        self._free.put(None)
        if not sys.is_finalizing():  # the interpreter has stopped daemon threads by then, and joining would hang
            self._thread.join()
            for slot in self._slots:
                slot.wait()
            self._loader.give_slots(self._device, self._slots)


__all__ = ["DataLoader", "collate"]
