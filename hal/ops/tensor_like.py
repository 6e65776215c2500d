"""Types of the operands of ops: tensors as formulas use them, and arrays of the NumPy references.

hal contains no tensor class. The formulas of ops (decompositions, gradients, fused patterns) run on the frontend's tensors,
on tensors of captured steps and on symbols of traced formulas; all of them implement `TensorLike`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from polyhal.hal.dtypes import DType

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""An array of a NumPy reference, of any shape and dtype."""


class Numeric(Protocol):
    """An operand of arithmetic: a tensor, an array of a NumPy reference, a symbol of an update rule or a Python number.

    Formulas that run on several of them, e.g. an update rule that is also its own NumPy reference, use no other methods.
    """

    def __add__(self, other: Any, /) -> Any: ...

    def __radd__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...

    def __rsub__(self, other: Any, /) -> Any: ...

    def __mul__(self, other: Any, /) -> Any: ...

    def __rmul__(self, other: Any, /) -> Any: ...

    def __truediv__(self, other: Any, /) -> Any: ...

    def __rtruediv__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Any: ...


class TensorLike(Numeric, Protocol):
    """A tensor in the formula of an op."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""

    @property
    def spec(self) -> Any:
        """Dtype, shape and strides: a `polyhal.hal.layout.Spec`."""

    @property
    def device(self) -> Any:
        """The device that computes."""

    @property
    def real(self) -> Any:
        """Real part."""

    @property
    def imag(self) -> Any:
        """Imaginary part."""

    def detach(self) -> Any:
        """Return the tensor without its gradient."""

    def cast(self, dtype: DType, /) -> Any:
        """Return the elements in another dtype."""

    def __pow__(self, other: Any, /) -> Any: ...

    def __lt__(self, other: Any, /) -> Any: ...

    def __le__(self, other: Any, /) -> Any: ...

    def __gt__(self, other: Any, /) -> Any: ...

    def __ge__(self, other: Any, /) -> Any: ...

    def __matmul__(self, other: Any, /) -> Any: ...

    def __and__(self, other: Any, /) -> Any: ...

    def __or__(self, other: Any, /) -> Any: ...

    def __invert__(self) -> Any: ...

    def __getitem__(self, index: Any, /) -> Any: ...
