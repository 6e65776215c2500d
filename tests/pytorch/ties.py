"""Positions among equal elements: PyTorch does not promise which it returns, so elements at the indices are compared."""

from __future__ import annotations

from typing import Any

import torch

from tests.pytorch.convert import leaves

_DIM_AT = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}
"""Ops that return positions, and where `dim` is among the arguments after the tensor."""


def without_positions(name: str, results: Any, sample: Any) -> Any:
    """Return the results of an op with positions replaced by the elements of the input there."""
    if name not in _DIM_AT:
        return results
    values = list(leaves(results))
    if name != "argsort" and len(values) < 2:
        return results
    at, x = _DIM_AT[name], sample.input.detach()
    dim = sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
    index = torch.from_numpy(values[-1].numpy().copy()) if not isinstance(values[-1], torch.Tensor) else values[-1]
    if x.ndim:
        index = index if index.ndim == x.ndim else index.unsqueeze(dim)
        picked = torch.take_along_dim(x, index, dim)
    else:
        picked = x
    return [*values[:-1], picked.detach().clone(), list(index.shape)]
