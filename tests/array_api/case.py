"""A case of the Array API: a name, and strategies for the arguments of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
from hypothesis import strategies as st

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = (*INTEGERS, "float32", "float64")
FLOATS = ("float32", "float64", "complex64", "complex128")
NUMBERS = (*INTEGERS, *FLOATS)
ALL = ("bool", *NUMBERS)
Call = tuple[tuple[Any, ...], dict[str, Any]]


class DTypeName(str):
    """Name of a dtype among the arguments of a call."""

    __slots__ = ()


class Case(NamedTuple):
    """One function, operator or attribute, and a strategy for calls, given the dtypes that a device stores.

    Functions may be below `linalg` or `fft`; operators begin with `__`, and attributes with `array.`.
    """

    name: str
    calls: Callable[[Callable[..., Any]], st.SearchStrategy[Call]]
    form: Callable[[Any, Any], Any] = lambda namespace, result: result
    """Form of a result in which it is compared, such as the product of factors."""


def _elements(dtype: str) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        return st.integers(-5 if kind == "i" else 0, 5)
    # Quarters: sums and products are exact, so that the order of additions does not matter.
    quarters = st.integers(-32, 32).map(lambda n: n / 4)
    return quarters if kind == "f" else st.builds(complex, quarters, quarters)


def arrays(dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
    """Arrays of one dtype with the shapes."""

    def of(dtype: str) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
        return st.tuples(*(numpy_strategies.arrays(dtype, s, elements=_elements(dtype)) for s in shapes))

    return st.sampled_from(dtypes).flatmap(of)
