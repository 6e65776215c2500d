"""Sums of gradients that are exchanged in half precision, with error feedback to the next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal.distributed.half_sums import narrow, widened
from polyhal.distributed.job import process_group
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import divided
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


def rounded_with_feedback(x: Tensor, dtype: Any, error: Tensor | None) -> tuple[Tensor, Tensor]:
    """Round `x + error`, of one shape (...) and dtype, to `dtype`. Returns the result and the rounding error."""
    exact = x if error is None else x + error
    rounded = exact.to(dtype)
    return rounded, exact - rounded.to(exact.dtype)


class CompressedSum:
    """All-reduces tensors, of any shape and floating dtype, in `dtype` (bfloat16 or float16): half the bytes of float32.

    Sums are accumulated in float32. With `error_feedback`, the rounding errors of a tensor and of its sum are added to the
    next call's values, so that no part of a gradient is lost over many steps (Seide et al., Interspeech 2014). Raises
    UnsupportedDTypeError for other dtypes.

    >>> _ = polyhal.distributed.init()
    >>> compressed = polyhal.distributed.CompressedSum("bfloat16", error_feedback=True)
    >>> sum(compressed(polyhal.full((3,), 1 + 2**-10), key="w")[0].item() for _ in range(8))
    8.0078125
    >>> polyhal.distributed.leave()
    """

    def __init__(self, dtype: Any = "bfloat16", *, error_feedback: bool = False) -> None:
        self.dtype = as_dtype(dtype)
        if self.dtype not in (dtypes.bfloat16, dtypes.float16):
            raise UnsupportedDTypeError(message("CompressedSum", f"dtype {self.dtype}", expected="bfloat16 or float16"))
        self.error_feedback = error_feedback
        self._given: dict[Any, Tensor] = {}
        """Rounding errors of this rank's tensors, by key."""
        self._summed: dict[Any, np.ndarray] = {}
        """Rounding errors of this rank's part of the sums, by key."""

    def __call__(self, tensor: Tensor, op: str = "sum", key: Any = None) -> Tensor:
        """Replace `tensor` by the sum or mean over all ranks and return it; `key` identifies it across calls.

        Raises ValueError for another `op`, and for error feedback without a key; ProcessGroupError if a rank is gone.
        """
        if self.error_feedback and key is None:
            raise ValueError(
                message("CompressedSum", "error feedback requires a key that identifies the tensor", fix="pass key")
            )
        if op not in ("sum", "mean"):
            raise ValueError(message("CompressedSum", f"unknown reduction {op!r}", expected="sum or mean"))
        with no_grad():
            exact = tensor.detach()
            if self.error_feedback:
                rounded, self._given[key] = rounded_with_feedback(exact, self.dtype, self._given.get(key))
            else:
                rounded = exact.to(self.dtype)
            host = np.array(rounded.numpy()).reshape(-1)
            self._reduce(process_group(), host, op, key)
            tensor.copy_(Tensor(host.reshape(tensor.shape), device=tensor.device).to(tensor.dtype))
        return tensor

    def _reduce(self, group: ProcessGroup, host: np.ndarray, op: str, key: Any) -> None:
        """Exchange parts so that every rank sums one part of all vectors, in the order of the ranks; gather the sums."""
        counts = divided(host.size, group.size)
        rows = np.empty((group.size, counts[group.rank]), host.dtype)
        start = 0
        for root, count in enumerate(counts):
            target = rows.reshape(-1) if root == group.rank else None
            group.gather(host[start : start + count], target, [count] * group.size, root)
            start += count
        total = np.zeros(rows.shape[1], np.float32)
        for row in rows:
            total += widened(row)
        if op == "mean":
            total /= group.size
        if self.error_feedback and key in self._summed:
            total += self._summed[key]
        own = np.empty_like(rows[0])
        narrow(total.copy(), own)
        if self.error_feedback:
            self._summed[key] = total - widened(own)
        group.all_gather(own, host, counts)

    def state_dict(self) -> dict[str, Any]:
        """Return the rounding errors, as tensors and arrays by key, for a checkpoint of this rank."""
        return {"given": dict(self._given), "summed": dict(self._summed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the rounding errors from a `state_dict` of the same rank of a job of the same size."""
        self._given, self._summed = dict(state["given"]), dict(state["summed"])
