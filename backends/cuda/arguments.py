"""Arguments of launches, packed into blocks of C memory with an array of pointers to them, which the driver reads.

Arguments that change from call to call come first in a block, so that one packing writes them all. The others are written once.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import CodeType
from typing import Any

from polyhal.backends.common.cuda_driver import NULL, ffi
from polyhal.backends.common.launching.kernel_arguments import Number
from polyhal.backends.common.launching.launch import ScalarType, Tensor, Workspace
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS

WORD = 8
"""Bytes of the smallest place of an argument in a block."""
ADDRESS = "Q"
"""Format of an address or an offset."""
FORMATS: dict[ScalarType, str] = {
    "int": "i4x",
    "uint": "I4x",
    "long": "q",
    "ulong": "Q",
    "float": "f4x",
    "double": "d",
}
"""Formats of scalars, in the terms of the module `struct`: eight bytes each."""
_TENSOR = struct.Struct("<" + 2 * ADDRESS)
"""The address and the offset of a tensor, which are next to each other in a block."""
_CONVERTERS = {f"to_{kind}": convert for kind, convert in CONVERTERS.items()}
Variable = Tensor | Workspace | Number
"""Binding of a parameter whose value is in the argument list of each call."""


class BlockLayout:
    """The places of a kernel's arguments in a block."""

    __slots__ = ("fields", "size", "starts", "variable")

    def __init__(self, formats: Sequence[str], variable: Sequence[int]) -> None:
        """`formats` has the format of each argument, `variable` the indices of those that change from call to call."""
        self.fields = tuple(struct.Struct("<" + f) for f in formats)
        """Each argument alone."""
        self.variable = struct.Struct("<" + "".join(formats[i] for i in variable))
        """The arguments at the start of a block."""
        order = [*variable, *(i for i in range(len(formats)) if i not in set(variable))]
        *starts, self.size = accumulate((self.fields[i].size for i in order), initial=0)
        self.starts = tuple(starts[order.index(i)] for i in range(len(formats)))
        """First byte of each argument."""


class ArgumentBlock:
    """C memory with the arguments of one launch, and the pointers to them that the driver takes."""

    __slots__ = ("_buffer", "_layout", "_memory", "pointers", "write")

    def __init__(self, layout: BlockLayout, values: Sequence[Any]) -> None:
        """`values` has all arguments in the kernel's order. Raises struct.error for a number that does not fit its type."""
        self._layout = layout
        self._memory = ffi.new("char[]", max(layout.size, 1))
        self._buffer = ffi.buffer(self._memory)
        self.pointers = ffi.new("void *[]", [self._memory + start for start in layout.starts] or [NULL])
        self.write = functools.partial(layout.variable.pack_into, self._buffer, 0)
        """Sets the variable arguments. Raises struct.error for a number that does not fit its type."""
        for i, value in enumerate(values):
            self.set(i, value)

    def setter(self, argument: int) -> Callable[[int, int], None]:
        """Return a function that sets the address and the offset of a tensor, whose address is an argument."""
        return functools.partial(_TENSOR.pack_into, self._buffer, self._layout.starts[argument])

    def set(self, argument: int, value: Any) -> None:
        """Set one argument. Raises struct.error for a number that does not fit its type."""
        self._layout.fields[argument].pack_into(self._buffer, self._layout.starts[argument], value)


Writer = Callable[[Callable[..., None], Sequence[Any]], None]
"""Function that passes the variable arguments of a call, found in its argument list, to `ArgumentBlock.write`."""


def writer(parameters: Sequence[Variable]) -> Writer:
    """Return the writer of some parameters, compiled from one expression: it is a large part of a launch's cost."""
    terms = []
    for p in parameters:
        value = f"a[{p.index}]"
        if isinstance(p, Tensor):
            terms += [f"{value}.handle.address", f"{value}.offset" + (f" + {p.start}" if p.start else "")]
        elif isinstance(p, Workspace):
            terms.append(f"{value}.address")
        else:
            terms.append(f"to_{p.type}({value})")
    made: Writer = eval(_compiled(f"lambda write, a: write({', '.join(terms)})"), _CONVERTERS)
    return made


@functools.cache
def _compiled(expression: str) -> CodeType:
    """Return the code of a writer, which many launches share."""
    return compile(expression, "<arguments>", "eval")
