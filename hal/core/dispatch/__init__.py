"""The hot path from an op call to a launch: per-thread executors, eager execution, operands, writes in place."""

from polyhal.hal.core.dispatch.complex_calls import apply_complex, is_complex, is_complex_call
from polyhal.hal.core.dispatch.eager import EAGER, EagerExecutor
from polyhal.hal.core.dispatch.inplace import OVERLAPPING, SEPARATE
from polyhal.hal.core.dispatch.operands import (
    admitted,
    freeze,
    infer,
    inference_spec,
    input_spec,
    scalar_dtype,
    target_device,
    unsupported_dtype,
)
from polyhal.hal.core.dispatch.plans import make_plan, plan_key
from polyhal.hal.core.execution.executor import (
    Array,
    CheckpointRegion,
    Executor,
    PartitionTimer,
    RandomSource,
    WorkerTimer,
    apply,
    apply_into,
    default_device,
    enabled_grad,
    executing,
    on_replay,
    require_execution,
    runtime_scalar,
    set_default_executor,
    static_bound,
    structure,
    thread,
)
from polyhal.hal.core.execution.forwarding import ForwardingExecutor
from polyhal.hal.core.execution.frontend import frontend

__all__ = [
    "EAGER",
    "OVERLAPPING",
    "SEPARATE",
    "Array",
    "CheckpointRegion",
    "EagerExecutor",
    "Executor",
    "ForwardingExecutor",
    "PartitionTimer",
    "RandomSource",
    "WorkerTimer",
    "admitted",
    "apply",
    "apply_complex",
    "apply_into",
    "default_device",
    "enabled_grad",
    "executing",
    "freeze",
    "frontend",
    "infer",
    "inference_spec",
    "input_spec",
    "is_complex",
    "is_complex_call",
    "make_plan",
    "on_replay",
    "plan_key",
    "require_execution",
    "runtime_scalar",
    "scalar_dtype",
    "set_default_executor",
    "static_bound",
    "structure",
    "target_device",
    "thread",
    "unsupported_dtype",
]
