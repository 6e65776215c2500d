"""NumPy arrays whose elements differ from run to run, in a step that is being recorded.

Functions of NumPy on them are recorded. Any other use of their elements ends the recording, and then they are plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.torch.steps.numbers import true_value
from polyhal.torch.steps.tree import TREE

if TYPE_CHECKING:
    from polyhal.torch.steps.host import Slot
    from polyhal.torch.steps.mid_step import MidStep

_FIXED = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"})
"""Attributes that are equal in each run, which is checked for shape and dtype."""
_METHODS = frozenset(
    ("argsort", "astype", "clip", "copy", "cumsum", "flatten", "nonzero", "ravel", "repeat", "reshape", "take")
)
"""Methods that are recorded, because they return other arrays."""


class HostArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that a function of the host returns in each run."""

    __slots__ = ("array", "mid_step", "slot")

    def __init__(self, array: np.ndarray, slot: Slot, mid_step: MidStep) -> None:
        """Represent the value of a slot, which is `array` in this call."""
        self.array = array
        self.slot = slot
        self.mid_step = mid_step

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            self._settle()
        return self.mid_step.call(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return self.mid_step.call(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.mid_step.call(getitem, (self, key), {})

    def __getattr__(self, name: str) -> Any:
        if name in _FIXED:
            return getattr(self.array, name)
        if name in _METHODS:
            method = getattr(np.ndarray, name)
            return lambda *args, **kwargs: self.mid_step.call(method, (self, *args), kwargs)
        return getattr(self._settle(), name)

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return repr(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._settle(), dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._settle()[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._settle())

    def __bool__(self) -> bool:
        return bool(self._settle())

    def __int__(self) -> int:
        return int(self._settle())

    def __float__(self) -> float:
        return float(self._settle())

    def __index__(self) -> int:
        return self._settle().__index__()

    def _settle(self) -> np.ndarray:
        """Return the array for a use that is not recorded, which ends the recording."""
        self.mid_step.refuse()
        return self.array


def plain(x: Any) -> Any:
    """Return the current value of a number or an array."""
    return x.array if type(x) is HostArray else true_value(x)


def is_host_array(x: Any) -> bool:
    """Return whether a tree contains an array whose elements differ from run to run."""
    return any(type(leaf) is HostArray for leaf in TREE.leaves(x))
