"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from polyhal.backends.common.lowering import LoweringFunction
from polyhal.backends.wgpu.lowering.elementwise import group
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Launch

LOWERINGS: dict[str, LoweringFunction] = {}


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """A launch (source, target) for equal shapes of any strides and dtypes."""
    return group(runtime, "copy", (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """A launch (number, target) for any strides."""
    number = dtypes.float32 if target.dtype.kind == "float" else target.dtype
    return group(runtime, "fill", (ScalarSpec(number),), (target,), (), (0,))
