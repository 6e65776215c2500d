"""Run a program compiled, and eagerly on the CPU, and compare results and all changes of state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree


@torch.library.custom_op("polyhal_tests::cubed", mutates_args=(), device_types="cpu")
def cubed(x: torch.Tensor) -> torch.Tensor:
    """Custom op with a kernel only for the CPU."""
    return x * x * x


@cubed.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


cubed.register_autograd(
    lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)

ON_DEVICE = pytest.mark.parametrize("place", ["polyhal"])
ON_CPU = pytest.mark.parametrize("place", ["cpu"])
"""Mark for slow tests that do not depend on the device of the tensors."""


def moved(tree: Any, place: str) -> Any:
    """Copy all tensors to a device, with their layouts, as leaves with the originals' `requires_grad`."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        whole = x.detach().as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        copied = whole.clone().to(place).as_strided(x.shape, x.stride(), x.storage_offset())
        return copied.detach().requires_grad_(x.requires_grad)

    return pytree.tree_map(move, tree)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error, relative to the largest element."""
    expected, found = expected.detach().double(), found.detach().cpu().double()
    assert found.shape == expected.shape
    if not expected.numel():
        return 0.0
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-6))


def check(found: Any, expected: Any, place: str, limit: float = 1e-5) -> None:
    """Assert that two trees of results agree in device, dtype, strides and values."""
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.device.type == place
        assert (a.dtype, tuple(a.shape), a.requires_grad) == (b.dtype, tuple(b.shape), b.requires_grad)
        assert all(n == 1 or s == t for n, s, t in zip(b.shape, a.stride(), b.stride(), strict=True)) or not b.numel()
        if b.dtype.is_floating_point:
            assert relative_error(a, b) <= limit
        else:
            assert torch.equal(a.detach().cpu(), b.detach())


def differentiate(results: Any, inputs: Any) -> list[Any]:
    """Return the gradients of the inputs for a sum of squares of all results."""
    roots = [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    if roots:
        sum(r.float().square().sum() for r in roots).backward()  # type: ignore[union-attr]
    return [x.grad for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]


def compare(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], place: str, limit: float = 1e-5, **options: Any
) -> None:
    """Assert that a compiled function equals the eager one on the CPU: results, changes of arguments, gradients."""
    compiled = torch.compile(function, backend="polyhal", **options)
    for call in calls:
        theirs, ours = moved(call, "cpu"), moved(call, place)
        expected, found = function(*theirs), compiled(*ours)
        check(found, expected, place, limit)
        check(differentiate(found, ours), differentiate(expected, theirs), place, limit)
        check([x.detach() for x in _tensors(ours)], [x.detach() for x in _tensors(theirs)], place, limit)


def train(
    model: nn.Module,
    loss: Callable[..., torch.Tensor],
    batches: Sequence[tuple[Any, ...]],
    place: str,
    limit: float = 1e-5,
) -> None:
    """Assert that a compiled model trains like the eager one on the CPU: losses, gradients, parameters and buffers."""
    torch.manual_seed(0)
    expected, found = copy.deepcopy(model), copy.deepcopy(model).to(place)
    compiled = torch.compile(found, backend="polyhal")
    runs = [(expected, expected, "cpu"), (found, compiled, place)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m, _, _ in runs]
    for batch in batches:
        losses = []
        for (_, called, where), optimizer in zip(runs, optimizers, strict=True):
            value = loss(called, *moved(batch, where))
            optimizer.zero_grad()
            value.backward()
            losses.append(value)
        check(losses[1], losses[0], place, limit)
        check([p.grad for p in found.parameters()], [p.grad for p in expected.parameters()], place, limit)
        for optimizer in optimizers:
            optimizer.step()
        check(list(found.buffers()), list(expected.buffers()), place, limit)
    expected.eval()
    found.eval()
    with torch.no_grad():
        check(loss(compiled, *moved(batches[0], place)), loss(expected, *moved(batches[0], "cpu")), place, limit)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def cross_entropy(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)
