"""The ways in which the framework can run an op without a native kernel of the backend.

An op declares one or more of these strategies, and the planner takes the first that applies: a reshape is a view
where strides permit it and decomposes into a copy and a view elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, View
from polyhal.hal.ops.schema import Params, Specs
from polyhal.hal.protocol import ComputeBackend, Declined, Number, UserKernel


@dataclass(frozen=True, slots=True, eq=False)
class AsView:
    """The result is a view of the first input where `rule` finds one, and no kernel runs."""

    rule: Callable[[Spec, Params], View | None]


class CoreInput(NamedTuple):
    """How a core member takes one input: viewed as `view` (None: as it is), contiguous in `shape`, in `dtype`."""

    dtype: DType
    shape: tuple[int, ...]
    view: View | None = None
    exact: bool = False
    """The dtype must not be widened (conditions, indices)."""


class CoreCall(NamedTuple):
    """A call of a required member of the contract: `run(*inputs, out)` on contiguous refs."""

    name: str
    run: Callable[..., None]
    inputs: tuple[CoreInput | None, ...]
    """None for an input that the call does not take."""
    result: DType
    shape: tuple[int, ...]
    """The shape in which the output is passed."""
    result_exact: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CoreMember:
    """A required member of the contract, such as `reduce` or `matmul`, after copies that make its inputs contiguous."""

    rule: Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]


class OutputRegion(NamedTuple):
    """A region of the output, and the fill or copy that writes it."""

    target: View
    source: int | None = None
    """The input to copy (a tensor) or to fill with (a number); None to fill with `value`."""
    view: View | None = None
    """The part of the source to copy; None for all of it."""
    value: Number = 0
    of: Callable[[Number], Number] | None = None
    """Applied to a number of the source before it is filled in: arithmetic, which also takes and returns runtime scalars."""


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Fills and copies of regions of the output, in the order in which `rule` lists them."""

    rule: Callable[[Specs, tuple[Spec, ...], Params], Sequence[OutputRegion]]


@dataclass(frozen=True, slots=True, eq=False)
class HostConstant:
    """An array that depends only on parameters: made by NumPy and uploaded."""

    make: Callable[[Params], np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Decompose:
    """A function of other ops, which is traced and planned op by op."""

    function: Callable[..., Any]
    widen: bool = True
    """Half-precision inputs are cast to float32 first, and results rounded once, at the end."""


class DeviceProgram(NamedTuple):
    """The ops by which an op with a sequential algorithm runs on a device."""

    function: Callable[..., Any]
    """Function of the op's inputs in terms of other ops, which is traced and planned op by op. Products have full precision."""
    refuse: Callable[[np.ndarray], None] | None = None
    """Check of the last result of `function`, which then is not an output: each run reads it and raises the op's error."""
    blocked: bool = False
    """True for algorithms that divide large matrices into blocks. Processors run LAPACK instead, which does so too."""


@dataclass(frozen=True, slots=True, eq=False)
class OnDevice:
    """A program of other ops, if the device has kernels for all of them; devices without take the op's next strategy."""

    rule: Callable[[Specs, Params], DeviceProgram | Declined]


@dataclass(frozen=True, slots=True, eq=False)
class OnHost:
    """NumPy on the host, with downloads and uploads, because no kernel would be faster: for small sequential algorithms."""

    reason: str
    """Why, for `explain`."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceKernel:
    """A kernel whose source comes with the op, compiled by backends that implement `SupportsUserKernels`."""

    kernel: UserKernel
    grid: Callable[[Specs, tuple[Spec, ...], Params], tuple[int, ...]]
    """Work-items per axis, one to three."""
    group: tuple[int, ...] = ()
    """Work-items of a group per axis, for languages that do not state it in the source; empty for the default."""
    initial: Number | None = None
    """The initial value of every element of the outputs before the kernel runs; None to leave them uninitialized."""
    dtypes: tuple[DType, ...] = ()
    """Dtypes of the first tensor that the kernel is written for; empty for all."""


Strategy = AsView | CoreMember | Regions | HostConstant | Decompose | OnDevice | OnHost | SourceKernel
