"""The hot path from an op call to a launch: per-thread executors, eager execution, operands, writes in place."""

from polyhal.hal.dispatch.eager import eager, make_plan, plan_key
from polyhal.hal.dispatch.executor import (
    Array,
    Executor,
    apply,
    capturing,
    default_device,
    executing,
    frontend,
    structure,
    thread,
)
from polyhal.hal.dispatch.inplace import OVERLAPPING, SEPARATE, apply_into, overwrite
from polyhal.hal.dispatch.operands import admitted, freeze, infer, input_spec, scalar_dtype, unsupported_dtype

__all__ = [
    "OVERLAPPING",
    "SEPARATE",
    "Array",
    "Executor",
    "admitted",
    "apply",
    "apply_into",
    "capturing",
    "default_device",
    "eager",
    "executing",
    "freeze",
    "frontend",
    "infer",
    "input_spec",
    "make_plan",
    "overwrite",
    "plan_key",
    "scalar_dtype",
    "structure",
    "thread",
    "unsupported_dtype",
]
