"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.opencl.lowering.elementwise import group
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """A launch (source, target) for equal shapes of any strides and dtypes."""
    return group(runtime, "copy", (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """A launch (number, target) for any strides."""
    return group(runtime, "fill", (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def number_dtype(dtype: DType) -> DType:
    """The dtype in which a Python number reaches a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype
