"""Fused optimizers, many-tensor ops and gradients that overflow; `test_placement.py` replays PyTorch's database."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import polyhal.torch

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "AdamW, amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "Adam, maximize": (torch.optim.Adam, {"maximize": True}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
    "SGD, nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD without momentum": (torch.optim.SGD, {"weight_decay": 0.1}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.2}),
}


def _steps(kind: str, device: str, *, scaled: bool = False, rate: Any = 0.1) -> tuple[list[torch.Tensor], list[Any]]:
    """Parameters and state after steps of which parameters miss some, with infinite gradients in the second."""
    optimizer_of, settings = KINDS[kind]
    random = torch.Generator().manual_seed(0)
    params = [torch.randn(n, generator=random).to(device).requires_grad_() for n in (3, 40, 1)]
    optimizer = optimizer_of(params, lr=rate, fused=True, **settings)
    scaler = torch.amp.GradScaler(device, init_scale=4.0) if scaled else None
    for step in range(4):
        for i, p in enumerate(params):
            grad = torch.randn(p.shape, generator=random).to(device) * (4.0 if scaled else 1.0)
            p.grad = None if i + 1 == step else grad
        if scaler is None:
            optimizer.step()
            continue
        scaler.scale(torch.zeros((), device=device))  # opens the scale
        if step == 1:
            params[1].grad[0] = torch.inf  # type: ignore[index]
        scaler.step(optimizer)
        scaler.update(4.0)
    return [p.detach().cpu() for p in params], torch.utils._pytree.tree_leaves(optimizer.state_dict()["state"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_fused_steps_are_those_of_the_cpu(torch_device: str, kind: str, scaled: bool) -> None:
    expected, expected_state = _steps(kind, "cpu", scaled=scaled)
    found, state = _steps(kind, torch_device, scaled=scaled)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(state, expected_state, strict=True):
        torch.testing.assert_close(torch.as_tensor(a).cpu(), torch.as_tensor(b), rtol=1e-5, atol=1e-6)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_on_the_device(torch_on_numpy: str, kind: str) -> None:
    expected, _ = _steps(kind, "cpu")
    found, _ = _steps(kind, torch_on_numpy, rate=torch.tensor(0.1, device=torch_on_numpy))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_lists_of_tensors(torch_device: str) -> None:
    made = [torch.randn(3, 4), torch.randn(5).half(), torch.arange(4), torch.randn(()), torch.randn(4, 3).t()]

    def run(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        torch._foreach_mul_(xs, 2)
        floats = [x for x in xs if x.is_floating_point()]
        torch._foreach_mul_(floats, torch.tensor(0.3, device=xs[0].device))
        twins = [torch.empty_like(x) for x in xs]
        torch._foreach_copy_(twins, xs)
        torch._foreach_copy_([twins[0]], [torch.ones(4, device=xs[0].device).half()])
        cleared = [x.clone() for x in xs]
        torch._foreach_zero_(cleared)
        return [*xs, *twins, *cleared]

    expected = run([x.clone() for x in made])
    found = run([x.to(torch_device) for x in made])
    torch.testing.assert_close([x.cpu() for x in found], expected)
    assert not polyhal.torch.report().on_cpu


def test_norms_of_lists(torch_device: str) -> None:
    made = [torch.randn(3, 4), torch.randn(5).half(), torch.randn(300, 41).t(), torch.randn(()), torch.zeros(0, 2)]
    for order, dtype in ((2, None), (2, torch.float32), (1, None), (float("inf"), None)):
        several = made[:4] if order == float("inf") else made  # the maximum of nothing is an error
        found = torch._foreach_norm([x.to(torch_device) for x in several], order, dtype=dtype)
        expected = [x.double().norm(order).to(dtype or x.dtype) for x in several]
        torch.testing.assert_close([x.cpu() for x in found], expected, rtol=1e-3 if dtype is None else 1e-6, atol=0)
    clipped = [torch.nn.Parameter(x.float().to(torch_device)) for x in made]
    for p in clipped:
        p.grad = p.detach().clone()
    total = torch.nn.utils.clip_grad_norm_(clipped, 1.5)
    wanted = torch.cat([x.double().flatten() for x in made]).norm()
    torch.testing.assert_close(total.cpu().double(), wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(clipped[2].grad.cpu(), made[2] * float(1.5 / wanted), rtol=1e-5, atol=1e-8)
    assert not polyhal.torch.report().on_cpu
