"""Coordination of the ranks of a training run: shared values and joint decisions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from polyhal import Tensor, distributed, no_grad
from polyhal.distributed import ProcessGroup, SoloGroup
from polyhal.nn import Module


class Ranks:
    """The processes that train one model; one by default. All ranks call every method, in the same order.

    Methods raise ProcessGroupError if a rank is gone.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self.group: ProcessGroup = SoloGroup() if group is None else group

    @classmethod
    def joined(cls) -> Ranks:
        """Return the ranks of this process's job; only this process without a job."""
        return cls(distributed.init()) if distributed.is_initialized() or distributed.started_by_mpi() else cls()

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self.group.rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.group.size

    @property
    def first(self) -> bool:
        """True if this is rank 0, which prints and writes shared results."""
        return self.group.rank == 0

    def agree(self, value: Any) -> Any:
        """Return the value of rank 0, plain data."""
        if self.size == 1:
            return value
        text = np.frombuffer(json.dumps(value if self.first else None).encode(), np.uint8)
        length = np.array([text.size], np.int64)
        self.group.broadcast(length)
        content = text.copy() if self.first else np.empty(int(length[0]), np.uint8)
        self.group.broadcast(content)
        return json.loads(content.tobytes())

    def collect(self, value: Any) -> list[Any]:
        """Return the values of all ranks, plain data."""
        if self.size == 1:
            return [value]
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = np.zeros(self.size, np.int64)
        self.group.all_gather(np.array([text.size], np.int64), lengths, [1] * self.size)
        content = np.empty(int(lengths.sum()), np.uint8)
        self.group.all_gather(text, content, lengths.tolist())
        ends = np.cumsum(lengths)
        return [json.loads(content[end - n : end].tobytes()) for end, n in zip(ends, lengths, strict=True)]

    def any(self, flag: bool) -> bool:
        """Return whether any rank has the flag set."""
        return bool(self.largest(float(flag)))

    def largest(self, number: float) -> float:
        """Return the largest of the ranks' numbers."""
        return self._reduced(number, "max")

    def total(self, number: float) -> float:
        """Return the sum of the ranks' numbers."""
        return self._reduced(number, "sum")

    def _reduced(self, number: float, reduction: str) -> float:
        numbers = np.array([number], np.float64)
        self.group.all_reduce(numbers, reduction)
        return float(numbers[0])

    def copy_weights(self, model: Module) -> None:
        """Copy the parameters and buffers of rank 0 to all ranks: devices differ in the rounding of initial values."""
        if self.size == 1:
            return
        with no_grad():
            for _, x in sorted(model.state_dict().items()):
                values = np.ascontiguousarray(x.numpy()).reshape(-1).copy()
                self.group.broadcast(values)
                if not self.first:
                    x.copy_(Tensor(values.reshape(x.shape), device=x.device))
