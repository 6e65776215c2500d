"""How a module was constructed: its class and arguments, so that a saved model can be made again.

Only descriptions of the module are kept. A module among the arguments is replaced by its own construction, and a tensor by its
shape and dtype, so that nothing is kept alive.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Construction:
    """A class and the arguments of its constructor."""

    of: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __reduce__(self) -> Any:
        """Pickle the class and the arguments that can be pickled; the others must not prevent pickling the module."""
        return Construction, (
            self.of,
            tuple(map(_pickled, self.args)),
            {k: _pickled(v) for k, v in self.kwargs.items()},
        )


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments. Its elements are in the state of the module."""

    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class UnknownArgument:
    """An argument that cannot be described, such as an iterator."""

    kind: str


def constructed(cls: type, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Construction:
    """Describe a call of a constructor."""
    return Construction(cls, tuple(map(_described, args)), {k: _described(v) for k, v in kwargs.items()})


def _pickled(value: Any) -> Any:
    try:
        pickle.dumps(value)
    except Exception:
        return UnknownArgument(type(value).__name__)
    return value


def _described(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, Tensor):
        return TensorArgument(value.shape, value.dtype)
    if type(value) in (list, tuple):
        return type(value)(map(_described, value))
    if isinstance(value, Mapping):
        return {k: _described(v) for k, v in value.items()}
    own = getattr(value, "_construction", None)
    if isinstance(own, Construction):
        return own
    return UnknownArgument(type(value).__name__) if hasattr(value, "__next__") else value
