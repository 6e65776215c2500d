"""Prompts: tokens that are added to the sequences of a cache many at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

import polyhal as ph
from polyhal import Device, Tensor, jit
from polyhal.generation.model import GeneratingModel
from polyhal.hal.capabilities import DeviceType
from polyhal.nn import KVCache

CHUNK = 512
"""Maximum tokens of a step, so that a long prompt does not hold up the sequences that are decoding."""
_SPARE = 8
"""Rows of padding that take less time than a further step, whatever their share."""
_EAGER = 2
"""Steps of a kind before it is recorded, which takes the time of several."""
_LEAST_CAPACITY = 4 * CHUNK
_MOST_GRAPHS = 32


class PromptReader:
    """Adds tokens to the sequences of a cache, in steps of few sizes: powers of two up to `CHUNK`.

    The last step is padded, and keys and values of padding are overwritten later. The place in the cache is an argument of
    a step, and the number of filled positions is in device memory, so that one recorded step of a size serves all prompts.
    On processors, where products take much longer than their launches, steps are not recorded.
    """

    def __init__(self, model: GeneratingModel, cache: KVCache, captured: bool = True) -> None:
        self._model, self._cache = model, cache
        self.captured = captured and _gains_from_recording(model.device)
        """True if steps are recorded, after few of their kind."""
        self._room = min(cache.capacity, model.context_length)
        self._memories: dict[tuple[int, int], Sequence[Sequence[Tensor]]] = {}
        """The cache's memory of sequences, by index and capacity."""
        self._current: dict[int, KVCache] = {}
        """The sequence of the present step, by its capacity."""
        self._step = jit(self._extend, warm_up=False, max_graphs=_MOST_GRAPHS)
        self._uses: Counter[tuple[int, int, bool]] = Counter()

    def read(self, index: int, ids: Sequence[int], filled: int, last_only: bool = True) -> Tensor:
        """Add one or more tokens to sequence `index` after its first `filled` ones, and return their logits (1, T, V).

        With `last_only` only the last token has logits (1, 1, V).
        """
        found, at = [], 0
        for size, count in _steps(len(ids), self._room - filled):
            found.append(self._run(index, ids[at : at + count], size, filled + at, last_only))
            at += count
        return found[-1] if last_only or len(found) == 1 else ph.cat(found, 1)

    def _run(self, index: int, ids: Sequence[int], size: int, filled: int, last_only: bool) -> Tensor:
        """Add tokens in one step, padded to `size`."""
        count, capacity = len(ids), self._capacity(filled + size)
        row = np.zeros((1, size + 2), np.int32)
        row[0, :count], row[0, size:] = ids, (filled, count - 1)
        memory = self._memories.get((index, capacity))
        if memory is None:
            memory = self._memories[index, capacity] = self._cache.memory_of(index, capacity)
        if capacity not in self._current:
            self._current[capacity] = self._cache.sequence(0, capacity)
        self._current[capacity].length = filled
        use = size, capacity, last_only
        self._uses[use] += 1
        run = self._step if self.captured and self._uses[use] > _EAGER else self._extend
        logits = run(Tensor(row, device=self._model.device), memory, last_only)
        return logits if last_only or count == size else logits[:, :count]

    def _extend(self, row: Tensor, memory: Sequence[Sequence[Tensor]], last_only: bool) -> Tensor:
        """Process a row of tokens, the number of filled positions, and the place of the last token; a captured step."""
        size, cache = row.shape[1] - 2, self._current[memory[0][0].shape[2]]
        cache.use(memory, row[0, size : size + 1])
        last: bool | Tensor = row[0, size + 1 :] if last_only else False
        logits: Tensor = self._model(row[:, :size], cache, last_only=last)
        cache.use((), self._cache.lengths)  # lets go of the row
        return logits

    def _capacity(self, length: int) -> int:
        """Return how many positions a step may read; some devices read all of them."""
        capacity = _LEAST_CAPACITY
        while capacity < length:
            capacity *= 4
        return min(capacity, self._cache.capacity)


def _gains_from_recording(device: Device) -> bool:
    return device.type is not DeviceType.CPU


def _steps(count: int, room: int) -> Iterator[tuple[int, int]]:
    """Yield the sizes of steps for `count` tokens, where `room` positions are free, and how many of the tokens they have."""
    while count > 0:
        size = min(1 << (count - 1).bit_length(), CHUNK)
        if size > room or size - count > max(size // 4, _SPARE):
            size //= 2
        yield size, min(size, count)
        count, room = count - size, room - size
