"""Cross entropy as one op: values and gradients, second ones too, equal the CPU's; other cases use PyTorch's composition."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import polyhal.torch

_CASES = list(itertools.product(("mean", "sum", "none"), (0.0, 0.2)))


def _sample(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(7, (9,), generator=generator)
    targets[3] = targets[5] = 6
    return torch.randn(9, 7, generator=generator).mul_(4).to(dtype), targets


def _outcomes(
    device: str, x: torch.Tensor, y: torch.Tensor, twice: bool = True, **options: object
) -> list[torch.Tensor]:
    """Return the loss, the gradient of the logits, and the gradient of its sum of squares."""
    x = x.to(device).requires_grad_()
    loss = F.cross_entropy(x, y.to(device), **options)
    weights = torch.arange(1, loss.numel() + 1, device=device).reshape(loss.shape)
    (gradient,) = torch.autograd.grad((loss * weights).sum(), x, create_graph=twice)
    if not twice:
        return [loss.detach().cpu(), gradient.cpu()]
    (second,) = torch.autograd.grad(gradient.square().sum(), x)
    return [loss.detach().cpu(), gradient.detach().cpu(), second.cpu()]


@pytest.mark.parametrize(("reduction", "smoothing"), _CASES)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_agrees_with_the_cpu(reduction: str, smoothing: float, twice: bool) -> None:
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 6, "twice": twice}
    for found, wanted in zip(
        _outcomes("polyhal", *_sample(), **options), _outcomes("cpu", *_sample(), **options), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    x, y = _sample(dtype)
    loss, gradient = _outcomes("polyhal", x, y, twice=False)
    exact_loss, exact_gradient = _outcomes("cpu", x.double(), y, twice=False)
    assert loss.dtype is gradient.dtype is dtype
    # The arithmetic between is float32, so that only the last rounding shows.
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(loss.double(), exact_loss, rtol=0.51 * eps, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=0.51 * eps, atol=1e-6)


def test_float32_under_autocast() -> None:
    x, y = _sample(torch.bfloat16)
    with torch.autocast("polyhal", torch.bfloat16):
        loss = F.cross_entropy(x.to("polyhal"), y.to("polyhal"))
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss.cpu(), F.cross_entropy(x.float(), y), rtol=1e-5, atol=0)


def test_cases_without_the_op_are_composed() -> None:
    x, y = _sample()
    weight, probabilities = torch.rand(7, generator=torch.Generator().manual_seed(2)), x.softmax(1)
    images = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(3))
    for logits, target, options in [
        (x, y, {"weight": weight}),
        (x, probabilities, {}),
        (x[0], y[0], {}),
        (images, images[:, 0].long() % 5, {}),
    ]:
        moved = {k: v.to("polyhal") for k, v in options.items()}
        found = F.cross_entropy(logits.to("polyhal"), target.to("polyhal"), **moved)
        torch.testing.assert_close(found.cpu(), F.cross_entropy(logits, target, **options), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="label_smoothing"):
        F.cross_entropy(x.to("polyhal"), y.to("polyhal"), label_smoothing=2.0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch itself, in each version of another kind
def test_forward_mode_and_transforms() -> None:
    x, y = _sample()
    found = []
    for device in ("cpu", "polyhal"):
        a, b = x.to(device), y.to(device)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, torch.ones_like(a).cumsum(1))
            tangent = forward_ad.unpack_dual(F.cross_entropy(dual, b)).tangent
        each = torch.func.vmap(torch.func.grad(lambda r, c: F.cross_entropy(r[None], c[None])))(a, b)
        found.append([tangent.cpu(), each.cpu()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


def test_recorded_steps_return_the_loss() -> None:
    x, y = (t.to("polyhal") for t in _sample())
    weight = torch.nn.Parameter(torch.ones(7, device="polyhal"))

    @polyhal.torch.jit(strict=True)
    def step(inputs: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        losses = F.cross_entropy(inputs * weight, y, reduction="none")
        losses.mean().backward()
        return losses

    for _ in range(4):
        losses = step(x)
    eager = F.cross_entropy(x * weight, y, reduction="none")
    (gradient,) = torch.autograd.grad(eager.mean(), weight)
    assert weight.grad is not None
    assert torch.equal(weight.grad, gradient)
    assert torch.equal(losses, eager)


@pytest.mark.parametrize("shifted", [False, True], ids=["all tokens", "but the last token"])
def test_recorded_steps_leave_out_casts_of_logits(torch_device: str, shifted: bool) -> None:
    """Kernels convert logits in half precision themselves, so that recorded steps write no float32 matrix of logits."""
    generator = torch.Generator().manual_seed(4)
    hidden = torch.randn(2, 9, 8, generator=generator).to(torch_device)
    tokens = torch.randint(37, (2, 9), generator=generator).to(torch_device)
    start = torch.randn(37, 8, generator=generator)

    def run(weight: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        with torch.autocast("polyhal", torch.bfloat16):
            logits = F.linear(hidden, weight).float()
            if shifted:
                logits = logits[:, :-1].contiguous()
            loss = F.cross_entropy(logits.view(-1, 37), (tokens[:, 1:] if shifted else tokens).reshape(-1))
        loss.backward()
        return loss

    eager, recorded = (torch.nn.Parameter(start.to(torch_device)) for _ in range(2))
    expected = run(eager)
    step = polyhal.torch.jit(lambda: run(recorded), strict=True)
    for _ in range(4):
        found = step()
    assert eager.grad is not None
    assert recorded.grad is not None
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    # Both gradients are rounded to bfloat16 once, from float32 numbers that differ in their last bits.
    torch.testing.assert_close(recorded.grad, eager.grad, rtol=2.0**-7, atol=1e-4)
    if not polyhal.get_default_device().capabilities.reference:
        rows = 16 if shifted else 18
        assert f"float32[{rows}, 37]" not in str(step.explain())
