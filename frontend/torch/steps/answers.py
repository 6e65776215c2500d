"""Answers to libraries that query, in the middle of a step, whether it is being captured.

Libraries skip checks that read values of tensors while CUDA captures a graph or a compiler traces. Recording a step is such a
capture: the queries of `torch.cuda` and `torch.xpu` return True in the thread that records, and the checks of
`torch.distributions` and `torch._check_tensor_all` are skipped there, as under `torch.compile`, and so are the checks
of optimizers for steps that a CUDA graph cannot hold: a recording can.
`torch.compiler.is_compiling` stays False, because PyTorch's optimizers and modules take other ways for its own compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from polyhal.torch.steps import active

if TYPE_CHECKING:
    from polyhal.torch.call_types import Function


def is_recording() -> bool:
    """Return whether this thread is recording a step."""
    return active.recorded() is not None


def answer() -> None:
    """Answer the queries of threads that record as in a capture. Other threads get the answers that they had before."""
    for module in (torch.cuda, torch.xpu):
        active.replace(module, "is_current_stream_capturing", lambda original: lambda: is_recording() or original())
    active.replace(torch, "_check_tensor_all_with", _unless_recording)
    for name in ("_cuda_graph_capture_health_check", "_accelerator_graph_capture_health_check"):
        active.replace(torch.optim.Optimizer, name, _unless_recording)  # its name depends on PyTorch's version
    active.replace(torch.distributions.Distribution, "_validate_args", _Unvalidated)
    active.replace(torch, "cond", _uncompiled)


def _unless_recording(original: Function) -> Function:
    """Return a check that is a no-op while a step is recorded."""

    def check(*args: object, **kwargs: object) -> Any:
        return None if is_recording() else original(*args, **kwargs)

    return check


def _uncompiled(original: Function) -> Function:
    """Return `torch.cond` without PyTorch's compiler, which could not compile it later after a call under modes."""

    def cond(pred: object, true_fn: Function, false_fn: Function, operands: object = ()) -> Any:
        if active.innermost() is None:
            return original(pred, true_fn, false_fn, operands)
        return torch.ops.higher_order.cond(pred, true_fn, false_fn, operands)

    return cond


class _Unvalidated:
    """Default of `validate_args`: False while a step is recorded. An object's own `validate_args` takes precedence."""

    def __init__(self, original: bool) -> None:
        self._original = original

    def __get__(self, instance: object, owner: type) -> bool:
        return False if is_recording() else self._original
