"""Bags of indices, as arguments of kernels with gather/bags.h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Argument, Strided, Tensor
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


@dataclass(frozen=True, slots=True)
class Bags:
    """Bags whose index, starts and scales are inputs 1, 2 and 3."""

    index: Spec
    step: int
    """Stride of the index, in elements."""
    starts: Spec | None
    scales: Spec | None
    length: int
    """Elements per bag if `starts` is absent."""

    @property
    def definitions(self) -> dict[str, str | int | bool]:
        starts = {} if self.starts is None else {"STARTS_DTYPE": self.starts.dtype.name}
        return {
            "INDEX_DTYPE": self.index.dtype.name,
            "STARTS": self.starts is not None,
            "SCALES": self.scales is not None,
            **starts,
        }

    def args(self, count: int, width: int, rows: int) -> dict[str, Argument]:
        """Return the arguments of `count` bags over a table of `rows` rows of `width` elements."""
        args: dict[str, Argument] = {
            "index": Strided(Tensor(1), {"step": self.step}),
            "rows": rows,
            "count": self.index.size,
            "bags": count,
            "width": width,
            "length": self.length,
            "marks": 0,
        }
        if self.starts is not None:
            args |= {"starts": Tensor(2), "marks": self.starts.shape[0]}
        scales = (
            {"scales_step": 0}
            if self.scales is None
            else {"scales": Strided(Tensor(3), {"step": self.scales.strides[0]})}
        )
        return args | scales


def bags_of(inputs: tuple[InputSpec | None, ...], params: Params) -> Bags | Declined:
    """Return the bags of an op, or the reason why the kernels do not support them."""
    _, index, starts, scales = inputs
    if not isinstance(index, Spec):
        return Declined("the index is a number")
    if isinstance(starts, Spec) and starts.strides != (1,):
        return Declined("the starts are not contiguous")
    step = flat_stride(index)
    if step is None or index.size >= 1 << 31:
        return Declined("the index is not evenly spaced, or has 2^31 elements or more")
    starts, scales = (s if isinstance(s, Spec) else None for s in (starts, scales))
    return Bags(index, step, starts, scales, params["length"])
