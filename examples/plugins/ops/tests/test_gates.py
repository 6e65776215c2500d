"""Tests beyond the kit: lookup of the ops by users, and function transforms."""

import polyhal_gates

import polyhal
from polyhal import Device, Tensor


def test_users_find_the_ops_by_name_or_in_the_package() -> None:
    assert {"softcap", "swiglu"} <= set(dir(polyhal.ops))
    assert polyhal.ops.swiglu is polyhal_gates.swiglu


def test_batches_gradients_and_captured_steps(polyhal_device: Device) -> None:
    x = polyhal.linspace(-3, 3, 24, device=polyhal_device).reshape((2, 3, 4))
    rows = polyhal.stack([polyhal_gates.swiglu(x[i]) for i in range(2)])
    assert polyhal.vmap(polyhal_gates.swiglu)(x).tolist() == rows.tolist()

    def step(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        polyhal_gates.softcap(polyhal_gates.swiglu(x) * 2, cap=2.0).sum().backward()
        assert x.grad is not None
        return x.grad

    assert polyhal.allclose(polyhal.jit(step)(x), step(x), rtol=1e-5, atol=1e-6)


def test_explain_shows_the_kernel(polyhal_device: Device) -> None:
    for name in ("softcap", "swiglu"):
        assert f"{name}(" in polyhal.explain(name, polyhal_device)
