"""Sums of gradients that travel in half precision, with the rounding errors kept for the next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal.autograd import no_grad
from polyhal.distributed.half_sums import narrow, widened
from polyhal.distributed.job import process_group
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import divided
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.tensor import Tensor


def rounded_with_feedback(x: Tensor, dtype: Any, error: Tensor | None) -> tuple[Tensor, Tensor]:
    """Round `x` and `error`, of one shape (...) and dtype, together to `dtype`. Returns the result and what rounding took."""
    exact = x if error is None else x + error
    rounded = exact.to(dtype)
    return rounded, exact - rounded.to(exact.dtype)


class CompressedSum:
    """All-reduces tensors, of any shape and floating dtype, in `dtype` (bfloat16 or float16): half the bytes of float32.

    Sums are made in float32. With `error_feedback`, what rounding takes from a tensor or from its sum in one call is added to
    it in the next, so that no part of a gradient is lost over many steps (Seide et al., Interspeech 2014). Raises
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
        """What rounding took from this rank's tensors."""
        self._summed: dict[Any, np.ndarray] = {}
        """What rounding took from this rank's part of the sums."""

    def __call__(self, tensor: Tensor, op: str = "sum", key: Any = None) -> Tensor:
        """Replace `tensor` by the sum or mean over all ranks and return it; `key` names it from call to call.

        Raises ValueError for another `op`, and for error feedback without a key; ProcessGroupError if a rank is gone.
        """
        if self.error_feedback and key is None:
            raise ValueError(
                message("CompressedSum", "error feedback needs to know which tensor this is", fix="pass key")
            )
        if op not in ("sum", "mean"):
            raise ValueError(message("CompressedSum", f"there is no reduction {op!r}", expected="sum or mean"))
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
        """Every rank sums its part of all vectors, in the order of the ranks."""
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
        """Return the errors that are kept, as tensors and arrays by key, for a checkpoint of this rank."""
        return {"given": dict(self._given), "summed": dict(self._summed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the errors, tensors and arrays, of a `state_dict` of the same rank of as many."""
        self._given, self._summed = dict(state["given"]), dict(state["summed"])
