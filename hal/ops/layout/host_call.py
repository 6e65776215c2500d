"""Calls of Python functions as ops in the graph of a captured step. `polyhal.host_call` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal.dtypes import DType
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.declare import REQUIRED, Output, Schema, Specs, Trait, declare
from polyhal.hal.ops.opdef import OPS

HostFunction = Callable[..., Any]
"""Function of NumPy arrays. Returns an array for each result, or the only array."""
Results = Sequence[tuple[DType, tuple[int, ...]]]
"""Dtype and shape of each result."""


def name_of(function: HostFunction) -> str:
    """Return the name of a function, or of the class of a callable object."""
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def called(function: HostFunction, results: Results, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the results of a function in their declared dtypes. Raises its errors, and ShapeError for other results."""
    made = function(*arrays)
    found = [np.asarray(x) for x in (made if isinstance(made, (tuple, list)) else (made,))]
    fits = len(found) == len(results) and all(
        x.shape == tuple(shape) and (x.dtype == dtype.numpy or np.can_cast(x.dtype, dtype.numpy, "same_kind"))
        for x, (dtype, shape) in zip(found, results, strict=True)
    )
    if not fits:
        raise ShapeError(
            message(
                "host_call",
                f"{name_of(function)} returned {_described([(x.dtype.name, x.shape) for x in found])}",
                expected=_described([(dtype.name, shape) for dtype, shape in results]),
                fix="declare the dtypes and shapes that the function returns, which must be the same in each run",
            )
        )
    return tuple(np.ascontiguousarray(x, dtype.numpy) for x, (dtype, _) in zip(found, results, strict=True))


def _described(results: Sequence[tuple[str, Sequence[int]]]) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in results) or "nothing"


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    return [(dtype, tuple(shape)) for dtype, shape in params["results"]]


def _host_call(*xs: Any, function: HostFunction, results: Results) -> Any:
    """Results of a Python function of the elements of tensors, computed on the host."""
    return called(function, results, xs)


host_call = declare(
    _host_call,
    name="host_call",
    family="transfer",
    schema=Schema(("xs",), variadic=True, params={"function": REQUIRED, "results": REQUIRED}, variadic_outputs=True),
    infer=_infer,
    lowering=(),  # the scheduler runs it, because a run calls the function at each run
    traits=Trait.VARYING | Trait.NONDETERMINISTIC,
    public=False,
)
HOST_CALL = OPS["host_call"]
