"""Features built on autograd above the device: torch.func, second gradients, checkpoints, and torch.nn.utils."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import moved
from torch import func, nn
from torch.nn import functional as F
from torch.nn import utils
from torch.nn.utils import parametrizations, rnn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import polyhal.torch

Program = Callable[[str], Any]
"""Function that creates tensors on the CPU, moves them to a device and computes there."""


def _agree(program: Program, device: str) -> None:
    """Assert that a program has equal results on the device, without CPU fallbacks."""
    results = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        results.append([x for x in pytree.tree_leaves(program(where)) if isinstance(x, torch.Tensor)])
    expected, found = results
    assert expected
    torch.testing.assert_close(moved(found, "cpu"), moved(expected, "cpu"), rtol=1e-4, atol=1e-5)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def _vmap(device: str) -> Any:
    x, w = torch.randn(4, 3, 6, 6).to(device), torch.randn(2, 3, 3, 3).to(device)
    return func.vmap(lambda v: F.max_pool2d(F.conv2d(v[None], w), 2))(x), func.vmap(lambda v: F.layer_norm(v, (6,)))(x)


def _jacobians(device: str) -> Any:
    x, w = torch.randn(4).to(device), torch.randn(3, 4).to(device)

    def f(v: torch.Tensor) -> torch.Tensor:
        return F.silu(w @ v)

    square = func.hessian(lambda v: f(v).square().sum())(x)
    return func.jacrev(f)(x), func.jacfwd(f)(x), square, func.jvp(f, (x,), (x + 1,)), func.vjp(f, x)[1](f(x))


def _gradients_of_samples(device: str) -> Any:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).to(device)
    params = {k: v.detach() for k, v in model.named_parameters()}
    x, y = torch.randn(5, 1, 6, 6).to(device), torch.tensor([0, 1, 2, 0, 1]).to(device)

    def loss(params: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(func.functional_call(model, params, (x[None],)), y[None])

    return func.vmap(func.grad(loss), (None, 0, 0))(params, x, y)


def _ensemble(device: str) -> Any:
    models = [nn.Linear(3, 2).to(device) for _ in range(3)]
    params, _ = func.stack_module_state(models)
    x = torch.randn(4, 3).to(device)
    return func.vmap(lambda p: func.functional_call(models[0], p, (x,)))(params)


def _of_an_lstm(device: str) -> Any:
    model, x = nn.LSTM(3, 4).to(device), torch.randn(5, 2, 3).to(device)
    params = {k: v.detach() for k, v in model.named_parameters()}
    return func.grad(lambda p: func.functional_call(model, p, (x,))[0].square().sum())(params)


TRANSFORMS: dict[str, Program] = {
    "vmap": _vmap,
    "jacobians": _jacobians,
    "gradients of samples": _gradients_of_samples,
    "ensemble": _ensemble,
    "gradient of an lstm": _of_an_lstm,
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, in forward mode
@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_of_functions(torch_on_numpy: str, name: str) -> None:
    _agree(TRANSFORMS[name], torch_on_numpy)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(2, 4, 3, 2, 1, groups=2), (2, 2, 6, 6)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), (2, 2, 4, 4)),
    "convolution of volumes": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "batch norm": (lambda: nn.BatchNorm2d(2), (3, 2, 4, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "lstm": (lambda: nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
    "projected lstm": (lambda: nn.LSTM(3, 4, proj_size=2), (5, 2, 3)),
    "gru": (lambda: nn.GRU(3, 4), (5, 2, 3)),
    "rnn": (lambda: nn.RNN(3, 4, nonlinearity="relu"), (5, 2, 3)),
    "max pooling": (lambda: nn.MaxPool2d(3, 2), (2, 2, 7, 7)),
    "average pooling": (lambda: nn.AdaptiveAvgPool2d(3), (2, 2, 5, 5)),
    "upsampling": (lambda: nn.Upsample(scale_factor=2.0, mode="bilinear"), (1, 2, 3, 3)),
    "activations": (lambda: nn.Sequential(nn.Mish(), nn.GLU(), nn.ELU(), nn.Softplus(), nn.PReLU()), (3, 8)),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", LAYERS)
def test_second_gradients(torch_on_numpy: str, name: str) -> None:
    made, shape = LAYERS[name]

    def program(device: str) -> Any:
        model, x = made().to(device), torch.randn(shape).to(device).requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad((out[0] if isinstance(out, tuple) else out).sin().sum(), x, create_graph=True)
        slope.square().sum().backward()
        return slope, x.grad, [p.grad for p in model.parameters()]

    _agree(program, torch_on_numpy)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_the_same_numbers_again(torch_device: str, reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)).to(torch_device)
    out = checkpoint(model, torch.randn(3, 4, device=torch_device, requires_grad=True), use_reentrant=reentrant)
    out.sum().backward()
    kept = (out.detach() != 0).float().sum(0) * 2
    assert torch.equal(model[0].bias.grad, kept)


def _clipped(device: str) -> Any:
    model = nn.Linear(3, 4).to(device)
    model(torch.randn(2, 3).to(device)).square().sum().backward()
    norms = [utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=p) for p in (2.0, float("inf"))]
    utils.clip_grad_value_(model.parameters(), 0.01)
    return norms, [p.grad for p in model.parameters()], utils.parameters_to_vector(model.parameters())


def _parametrized(device: str) -> Any:
    made = [parametrizations.weight_norm(nn.Conv2d(2, 3, 3)), parametrizations.spectral_norm(nn.Conv2d(2, 3, 3))]
    x = torch.randn(1, 2, 5, 5).to(device)
    results = []
    for layer in made:
        model = layer.to(device)
        model(x).square().sum().backward()
        results += [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    return results


def _orthogonal(device: str) -> Any:
    model = parametrizations.orthogonal(nn.Linear(4, 4)).to(device)
    model(torch.randn(2, 4).to(device)).square().sum().backward()
    return model.weight, [p.grad for p in model.parameters()]


def _packed(device: str) -> Any:
    x = torch.randn(5, 3, 3).to(device).requires_grad_()
    results = []
    for kind in (nn.LSTM, nn.GRU):
        model = kind(3, 4, 2, bidirectional=True).to(device)
        out, states = model(rnn.pack_padded_sequence(x, torch.tensor([3, 5, 2]), enforce_sorted=False))
        padded, _ = rnn.pad_packed_sequence(out)
        padded.square().sum().backward()
        results += [padded, states, [p.grad for p in model.parameters()]]
    return results, x.grad


UTILITIES: dict[str, Program] = {
    "clipped": _clipped,
    "parametrized": _parametrized,
    "orthogonal": _orthogonal,
    "packed": _packed,
}


@pytest.mark.parametrize("name", UTILITIES)
def test_utilities_of_layers(torch_on_numpy: str, name: str) -> None:
    _agree(UTILITIES[name], torch_on_numpy)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # PyTorch's own
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, in forward mode
def test_functions_are_linearized(torch_device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, tangent = torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)
    weight = torch.randn(4, 2, generator=generator)
    found = {}
    for device in ("cpu", torch_device):
        value, tangents = func.linearize(lambda x, w: (x.sin() @ w).tanh(), x.t().to(device).t(), weight.to(device))
        found[device] = (
            value,
            tangents(tangent.to(device), weight.to(device)),
            tangents(x.to(device), weight.to(device)),
        )
    for a, b in zip(found["cpu"], found[torch_device], strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=1e-5, atol=1e-6)
