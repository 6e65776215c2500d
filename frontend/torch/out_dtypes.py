"""Results of another dtype than the `out` tensors that they are written to: PyTorch's own rules decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from polyhal.torch.device import NAME

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords, Operator


def refuse(op: Operator, args: Arguments, kwargs: Keywords, results: Mapping[str, torch.Tensor]) -> None:
    """Raise PyTorch's error if it would not cast the results of an `out` overload, by name, to the tensors of the call.

    Elementwise ops cast, and most others refuse. The overload decides it on the device "meta", without computing; if it is
    not implemented there, the results are cast.
    """
    outputs = {name: _stand_in(r, kwargs[name].dtype) for name, r in results.items()}
    inputs = {k: v for k, v in kwargs.items() if k not in outputs}
    args, inputs = pytree.tree_map(_on_meta, (args, inputs))
    try:
        op(*args, **inputs, **outputs)
    except NotImplementedError:
        return


def follows_output(op: Operator, kwargs: Keywords) -> bool:
    """Return whether an overload computes in the dtype of its `out` tensor, as sums do if the call names no other one."""
    return kwargs.get("dtype") is None and any(a.name == "dtype" for a in op._schema.arguments)


def _on_meta(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return _stand_in(x, x.dtype)
    return torch.device("meta") if isinstance(x, torch.device) and x.type == NAME else x


def _stand_in(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="meta")
