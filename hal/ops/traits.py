"""Facts about ops that passes, the scheduler, the planner and autocast ask for, in place of lists of names.

A trait states a property of the op itself, not a permission of one client, so that a new op takes part in every
optimization whose condition it meets. Compare MLIR's operation traits.
"""

from __future__ import annotations

import enum


class Trait(enum.Flag):
    """Properties of an op. Family constructors set those that a whole family shares."""

    NONE = 0
    POINTWISE = enum.auto()
    """Each element of the result depends only on the elements at the same index of the broadcast inputs: may be fused."""
    CHEAP = enum.auto()
    """Costs a few instructions per element, so that computing it again is cheaper than a round trip through memory."""
    FUSIBLE_REDUCTION = enum.auto()
    """Reduction over `axis` with `keepdims` that may end a group of fused pointwise ops."""
    LAYOUT_TRANSPARENT = enum.auto()
    """Reads its operand by index and computes equal elements for any strides of the operand."""
    JOINS_OPERANDS = enum.auto()
    """The result consists of its operands, copied: each may be computed directly in its region of the result."""
    INPLACE = enum.auto()
    """An output may be written over the input that it replaces: each element is read before it is written."""
    COMMUTATIVE = enum.auto()
    """The two operands may be exchanged."""
    CREATION = enum.auto()
    """Takes no tensor: the caller names the device."""
    ALONG_AXIS = enum.auto()
    """Acts along one `axis`; a tensor without axes counts as a vector, which native kernels need not handle."""
    VARYING = enum.auto()
    """Depends on Python numbers that change between runs of a captured step, such as a random generator's offset."""
    UNDEFINED = enum.auto()
    """The elements of the result are uninitialized, so that they cannot be compared, folded or shared."""
    NONDETERMINISTIC = enum.auto()
    """May sum in a different order at each run, unless the setting `deterministic` forbids it."""
    CROSS_DEVICE = enum.auto()
    """Waits for another device."""
    COLLECTIVE = enum.auto()
    """Reads and writes vectors on several devices, which its parameter `communicator` names."""
    POINTWISE_ON_EACH = enum.auto()
    """Decomposes to one pointwise op on each of a list of tensors, which may be fused with its neighbors."""
    PER_CHANNEL = enum.auto()
    """Treats all axes of its first tensors and results but the second one, the channels, as one; other operands are vectors."""
    STORES_NUMBERS = enum.auto()
    """Requires Python numbers among its inputs to fit the dtype; sums and products wrap them instead."""

    UNREPEATABLE = NONDETERMINISTIC | CROSS_DEVICE | UNDEFINED
    """A second run may give different bits or wait again: such an op is never rematerialized."""
    UNFOLDABLE = VARYING | CROSS_DEVICE | UNDEFINED
    """Constant operands do not make a constant result: such an op is never folded."""


class Autocast(enum.Enum):
    """Treatment of an op's floating-point inputs by `polyhal.amp.autocast`."""

    INHERIT = "inherit"
    """Leave them as they are."""
    HALF = "half"
    """Cast them to the block's half dtype: products, whose sums are float32 in any case."""
    FLOAT32 = "float32"
    """Cast them to float32: steep functions, and sums of many terms whose results are used further."""
