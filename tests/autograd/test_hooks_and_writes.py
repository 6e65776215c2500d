"""Hooks, gradients with respect to views, and writes in place, compared with PyTorch.

A hook belongs to the node that its tensor had when the program registered it. After a write the tensor has a new node: the hook
of the tensor that owns the memory receives the gradient of the elements before the write; the hook of a view is not called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as torch_functional

import polyhal
from polyhal import Device
from polyhal.hal.core import dispatch
from polyhal.nn import functional

OURS = SimpleNamespace(lib=polyhal, F=functional, int64=polyhal.int64)
THEIRS = SimpleNamespace(lib=torch, F=torch_functional, int64=torch.int64)

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view_as": lambda x: x.view_as(x),
    "view": lambda x: x.view(-1),
    "all slices": lambda x: x[:],
    "row": lambda x: x[0],
    "view of a view": lambda x: x.view(-1)[1:],
    "transposed": lambda x: x.mT,
}
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda x, v: x.sum() + v.sum(),
    "a function of the view": lambda x, v: v.sin_().sum(),
    "a function of the view, both read": lambda x, v: v.sin_().sum() + (x * x).sum(),
    "a function of the tensor": lambda x, v: (x.sin_(), v.sum())[1],
    "a function of the tensor, both read": lambda x, v: x.sin_().sum() + (v * v).sum(),
    "numbers, to a part of the view": lambda x, v: (v[1:].fill_(0.25), (v * v).sum())[1],
    "elements, to a part of the tensor": lambda x, v: (x[:1].copy_(x[1:2].detach()), (x * x).sum())[1],
}
COMPOSITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_add": lambda m, x, i: m.lib.index_add(x, 1, i, x[:, :2]),
    "index_copy": lambda m, x, i: m.lib.index_copy(x, 0, i, x[1:] * 2),
    "scatter": lambda m, x, i: m.lib.scatter(x, 1, i.expand(3, 2), x[:, :2] * 2),
    "index_select": lambda m, x, i: m.lib.index_select(x, 0, i),
    "brackets": lambda m, x, i: x[i],
    "masked_select": lambda m, x, i: m.lib.masked_select(x, x.detach() > 0.2),
    "mv": lambda m, x, i: m.lib.mv(x, x[0]),
    "matmul": lambda m, x, i: x[0] @ x,
    "kron": lambda m, x, i: m.lib.kron(x, x),
    "kthvalue": lambda m, x, i: m.lib.kthvalue(x, 2)[0],
    "quantile": lambda m, x, i: m.lib.quantile(x, 0.3, 0),
    "conv1d": lambda m, x, i: m.F.conv1d(x[None], x[None, :, :2]),
}


def _observed(m: Any, program: Callable[[list[Any]], tuple[Any, Any, Any]]) -> list[list[Any]]:
    """Return the gradient of the leaf and the gradients that hooks of two tensors and `retain_grad` observe."""
    p = m.lib.tensor((np.arange(9.0).reshape(3, 3) / 9 + 0.1).astype(np.float32), requires_grad=True)
    log: list[Any] = []
    x, v, run = program([p])

    def hook(name: str) -> Callable[[Any], Any]:
        return lambda g: (log.append((name, *g.flatten().tolist())), g + 1)[1]

    x.register_hook(hook("tensor"))
    x.retain_grad()
    if v is not x:
        v.register_hook(hook("view"))
    run().backward()
    return [[*p.grad.flatten().tolist()], [*x.grad.flatten().tolist()], *[list(row) for row in log]]


def _agree(found: list[list[Any]], expected: list[list[Any]]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert [v for v in a if isinstance(v, str)] == [v for v in b if isinstance(v, str)]
        numbers = [[v for v in row if not isinstance(v, str)] for row in (a, b)]
        np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-5)  # float32 sums of at most 100 terms of about 1


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("written", PROGRAMS)
def test_a_hook_of_a_view_and_of_its_tensor(written: str, view: str, device: Device) -> None:
    def observed(m: Any) -> list[list[Any]]:
        def program(leaves: list[Any]) -> tuple[Any, Any, Any]:
            x = m.lib.zeros((3, 3)) + 0.5
            x.mul_(leaves[0])
            v = VIEWS[view](x)
            return x, v, lambda: PROGRAMS[written](x, v)

        return _observed(m, program)

    with dispatch.default_device(device):
        found = observed(OURS)
    _agree(found, observed(THEIRS))


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_hook_of_a_result_stays_after_a_write_to_a_part(name: str, device: Device) -> None:
    def observed(m: Any) -> list[list[Any]]:
        def program(leaves: list[Any]) -> tuple[Any, Any, Any]:
            y = COMPOSITES[name](m, leaves[0], m.lib.tensor([2, 0], dtype=m.int64))

            def run() -> Any:
                y[..., :1] = y[..., 1:2].detach() * 2
                return (y * y).sum()

            return y, y, run

        return _observed(m, program)

    with dispatch.default_device(device):
        found = observed(OURS)
    _agree(found, observed(THEIRS))


@pytest.mark.parametrize("other", ["expand", "all slices", "diagonal"])
def test_the_gradient_of_a_view_excludes_other_views_after_a_write(other: str, device: Device) -> None:
    def gradients(m: Any, x: Any) -> list[Any]:
        y = x * 2
        v = y.expand([2, 2]) if other == "expand" else y[:, :]
        w = m.diagonal(y, 0) if other == "diagonal" else v.transpose(-1, -1)
        y[:, :1] = 0.3
        loss = v.tanh().sum() + w.mean() + (y * y).sum()
        return [g.numpy() for g in m.autograd.grad(loss, [v, w, y, x], allow_unused=True)]

    values = [[1.0, -0.5], [0.25, 2.0]]
    found = gradients(polyhal, polyhal.tensor(values, device=device, requires_grad=True))
    expected = gradients(torch, torch.tensor(values, requires_grad=True))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("listed_first", [True, False])
def test_views_off_the_tape_have_their_own_gradients_after_a_write(listed_first: bool, device: Device) -> None:
    """The memory belongs to the tensor that was viewed, whichever of the two is written to."""

    def gradients(m: Any, w: Any, z: Any) -> list[Any]:
        v = z.view_as(z)
        (z if listed_first else v).mul_(w)
        return [g.numpy() for g in m.autograd.grad(v.tanh().sum() + z.sum(), [v, z, w], allow_unused=True)]

    found = gradients(polyhal, polyhal.tensor(0.5, device=device, requires_grad=True), polyhal.ones(3, device=device))
    expected = gradients(torch, torch.tensor(0.5, requires_grad=True), torch.ones(3))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
