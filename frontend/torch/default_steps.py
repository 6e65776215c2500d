"""Default steps of Adam, AdamW and SGD as one op over lists of tensors, with the results of PyTorch's dozen ops.

For small models the launches of a dozen ops take longer than their work. The steps here are PyTorch's, op by op, so that
results are equal to the last bit; recorded steps are fused by passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyhal.hal.core import dispatch
from polyhal.torch import private
from polyhal.torch.failures import as_pytorch
from polyhal.torch.foreach import ListCalls

Step = Callable[..., bool]
"""Function that runs a step as one op; False, before it changes anything, if it cannot."""


_COUNTED = (torch.float32, torch.float64)
"""Dtypes of step counters."""


def install() -> None:
    """Replace the default steps of optimizers. A second call is a no-op."""
    private.replace_list_step("adam", functools.partial(_chosen, as_pytorch(_adam)))
    private.replace_list_step("sgd", functools.partial(_chosen, as_pytorch(_sgd)))


def _chosen(one_op: Step, step: Callable[..., None]) -> Callable[..., None]:
    """Return a step that is one op, or PyTorch's `step` where that raises errors or is watched op by op."""

    @functools.wraps(step)
    def run(*lists: Any, **options: Any) -> None:
        if torch.compiler.is_compiling() or not (_is_plain(options) and one_op(*lists, **options)):
            step(*lists, **options)

    return run


def _is_plain(options: dict[str, Any]) -> bool:
    """Return whether ops may be replaced: outside of recordings and modes, with numbers as settings."""
    if dispatch.thread.executor.fuses_later or torch.is_grad_enabled() or private.is_watched():
        return False
    special = any(options.get(name) for name in ("capturable", "differentiable", "has_complex", "has_sparse_grad"))
    return not special and all(type(x) in (int, float, bool, type(None)) for x in options.values())


def _adam(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    averages: Sequence[torch.Tensor],
    squares: Sequence[torch.Tensor],
    maxima: Sequence[torch.Tensor],
    steps: list[torch.Tensor],
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    decoupled_weight_decay: bool,
    **others: Any,
) -> bool:
    call = ListCalls.over(params, grads, averages, squares, *([maxima] if amsgrad else []))
    if call is None or not all(step.is_cpu and step.dtype in _COUNTED for step in steps):
        return False
    p, g, average, square = map(call.list, range(4))
    if maximize:
        g = call("neg.default", g)
    if weight_decay != 0:
        if decoupled_weight_decay:
            p = call("mul.Scalar", p, 1 - lr * weight_decay)
        else:
            g = call("add.List", g, p, alpha=weight_decay)
    average = call("lerp.Scalar", average, g, 1 - beta1)
    square = call("mul.Scalar", square, beta2)
    square = call("addcmul.Scalar", square, g, g, 1 - beta2)
    results = {2: average, 3: square}
    if amsgrad:
        results[4] = call("maximum.List", call.list(4), square)
    counters = call.counters(steps)
    counts = [count + 1 for count in counters.numbers()]
    root = call("sqrt.default", results.get(4, square))
    root = call("div.ScalarList", root, [(1 - beta2**n) ** 0.5 for n in counts])
    root = call("add.Scalar", root, eps)
    results[0] = call("addcdiv.ScalarList", p, average, root, [(lr / (1 - beta1**n)) * -1 for n in counts])
    if not call.write(results):
        return False
    counters.advance()
    return True


def _sgd(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    buffers: Sequence[torch.Tensor | None],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    **others: Any,
) -> bool:
    moved = [x for x in buffers if x is not None] if momentum != 0 else []
    if momentum != 0 and len(moved) < len(params):  # PyTorch allocates them
        return False
    call = ListCalls.over(params, grads, *([moved] if moved else []))
    if call is None:
        return False
    p, g = map(call.list, range(2))
    results = {}
    if maximize:
        g = call("neg.default", g)
    if weight_decay != 0:
        g = call("add.List", g, p, alpha=weight_decay)
    if moved:
        results[2] = call("mul.Scalar", call.list(2), momentum)
        results[2] = call("add.List", results[2], g, alpha=1 - dampening)
        if nesterov:
            is_gradient = g == call.list(1)
            g = call("add.List", g, results[2], alpha=momentum)
            if is_gradient:  # PyTorch overwrites it
                results[1] = g
        else:
            g = results[2]
    results[0] = call("add.List", p, g, alpha=-lr)
    return call.write(results)
