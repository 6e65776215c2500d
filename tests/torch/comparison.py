"""Run equal PyTorch code on the CPU and on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import polyhal


def moved(tree: Any, device: str) -> Any:
    """Move all tensors to a device, as leaves with the originals' `requires_grad`; one that occurs twice stays one.

    Views of larger memory stay views of such memory.
    """
    done: dict[int, torch.Tensor] = {}

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in done:
            done[id(x)] = _moved(x.detach(), device).requires_grad_(x.requires_grad)
        return done[id(x)]

    return pytree.tree_map(move, tree)


def _moved(x: torch.Tensor, device: str) -> torch.Tensor:
    if x.layout is not torch.strided or x.untyped_storage().nbytes() == x.nbytes or x.is_conj() or x.is_neg():
        return x.to(device)
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return memory.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the results of a function, and the gradients of its arguments."""
    results = pytree.tree_leaves(function(*args))
    roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = []
    if roots and leaves:
        torch.autograd.backward([r.float().square().sum() for r in roots])
        grads = [x.grad for x in leaves]
    return results, grads


def agree(function: Callable[..., Any], *args: Any, device: str, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Assert that results and gradients on the device equal the CPU's in value, shape and dtype."""
    expected, expected_grads = outcome(function, moved(args, "cpu"))
    found, found_grads = outcome(function, moved(args, device))
    assert len(found) == len(expected)
    for a, b in zip([*found, *found_grads], [*expected, *expected_grads], strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.device.type == device
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=rtol, atol=atol, equal_nan=True)


def launches_of(function: Callable[[], Any]) -> int:
    """Return the number of launches of a call on the default device; 0 if the device does not count them."""
    device = polyhal.get_default_device()
    if not device.name.startswith(("opencl", "wgpu")):
        return 0
    backend: Any = device.backend
    device.synchronize()
    backend.start_profiling()
    function()
    device.synchronize()
    return len(backend.stop_profiling())
