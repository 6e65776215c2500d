"""Transforms of functions against `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.func as tf

import polyhal as ph
from polyhal import nn
from polyhal.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError
from polyhal.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

ROWS = np.random.default_rng(0).normal(size=(4, 3))
WEIGHT = np.random.default_rng(1).normal(size=3)


@pytest.fixture(params=["numpy"])
def here(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def close(ours: ph.Tensor, theirs: torch.Tensor) -> None:
    """Both computed in float64, by other sums: a few units in the last place of terms below 100."""
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-12, atol=1e-12)


def pair(array: np.ndarray, device: str) -> tuple[ph.Tensor, torch.Tensor]:
    return ph.tensor(array, device=device), torch.tensor(array)


def _function(lib: Any) -> Callable[[Any], Any]:
    return lambda x: lib.tanh(x) * (x * x).sum() + lib.exp(x[0])


def _scalar(lib: Any) -> Callable[[Any], Any]:
    return lambda x: (lib.sin(x) * x * x).sum() * x[1]


TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], np.ndarray]] = {
    "vmap": (lambda f: vmap(f), lambda f: tf.vmap(f), ROWS),
    "vmap over columns": (lambda f: vmap(f, 1, 1), lambda f: tf.vmap(f, 1, 1), ROWS),
    "vmap in chunks": (lambda f: vmap(f, chunk_size=3), lambda f: tf.vmap(f, chunk_size=3), ROWS),
    "jacrev": (jacrev, tf.jacrev, WEIGHT),
    "jacfwd": (jacfwd, tf.jacfwd, WEIGHT),
    "jacobians of a batch": (lambda f: vmap(jacrev(f)), lambda f: tf.vmap(tf.jacrev(f)), ROWS),
    "forward jacobians of a batch": (lambda f: vmap(jacfwd(f)), lambda f: tf.vmap(tf.jacfwd(f)), ROWS),
    "jacobian of a batch": (lambda f: jacrev(vmap(f)), lambda f: tf.jacrev(tf.vmap(f)), ROWS),
    "hessian of every element": (hessian, tf.hessian, WEIGHT),
}
OF_SCALARS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], np.ndarray]] = {
    "grad": (grad, tf.grad, WEIGHT),
    "second derivative": (lambda f: jacrev(grad(f)), lambda f: tf.jacrev(tf.grad(f)), WEIGHT),
    "gradients of a batch": (lambda f: vmap(grad(f)), lambda f: tf.vmap(tf.grad(f)), ROWS),
    "hessian": (hessian, tf.hessian, WEIGHT),
    "hessians of a batch": (lambda f: vmap(hessian(f)), lambda f: tf.vmap(tf.hessian(f)), ROWS),
    "third derivative": (
        lambda f: grad(lambda x: grad(lambda y: (grad(f)(y) * y).sum())(x).sum()),
        lambda f: tf.grad(lambda x: tf.grad(lambda y: (tf.grad(f)(y) * y).sum())(x).sum()),
        WEIGHT,
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_agree_with_torch(name: str, here: str) -> None:
    ours, theirs, array = TRANSFORMS[name]
    x, y = pair(array, here)
    close(ours(_function(ph))(x), theirs(_function(torch))(y))


@pytest.mark.parametrize("name", OF_SCALARS)
def test_derivatives_of_scalars_agree_with_torch(name: str, here: str) -> None:
    ours, theirs, array = OF_SCALARS[name]
    x, y = pair(array, here)
    close(ours(_scalar(ph))(x), theirs(_scalar(torch))(y))


def test_products_with_jacobians(here: str) -> None:
    x, y = pair(WEIGHT, here)
    value, derivative = jvp(_function(ph), (x,), (x * x,))
    expected_value, expected = tf.jvp(_function(torch), (y,), (y * y,))
    close(value, expected_value)
    close(derivative, expected)
    value, pull_back = vjp(_function(ph), x)
    _, expected_pull_back = tf.vjp(_function(torch), y)
    for factor in (1.0, 2.0):
        close(pull_back(value * factor)[0], expected_pull_back(expected_value * factor)[0])
    close(vmap(pull_back)(ph.eye(3, dtype="float64", device=here))[0], tf.jacrev(_function(torch))(y))


def test_nested_batches(here: str) -> None:
    x, y = pair(WEIGHT, here)
    a, b = pair(ROWS, here)
    ours = vmap(vmap(lambda u, v: u * v + u.sum(), (0, None)), (None, 0))(x, a)
    theirs = tf.vmap(tf.vmap(lambda u, v: u * v + u.sum(), (0, None)), (None, 0))(y, b)
    close(ours, theirs)


def test_several_arguments_and_auxiliary_values(here: str) -> None:
    x, _ = pair(WEIGHT, here)

    def function(p: dict[str, ph.Tensor], scale: ph.Tensor) -> tuple[ph.Tensor, ph.Tensor]:
        total = (p["a"] * p["b"]).sum() * scale
        return total, p["a"] * 2

    one = ph.tensor(3.0, dtype="float64", device=here)
    gradients, (value, aux) = grad_and_value(function, argnums=(0, 1), has_aux=True)({"a": x, "b": x * x}, one)
    np.testing.assert_allclose(gradients[0]["a"].numpy(), 3 * WEIGHT**2)
    np.testing.assert_allclose(gradients[1].numpy(), (WEIGHT**3).sum())
    np.testing.assert_allclose(value.item(), 3 * (WEIGHT**3).sum())
    np.testing.assert_allclose(aux.numpy(), 2 * WEIGHT)


def test_gradients_of_each_example(device: Device) -> None:
    """One backward pass for a batch gives each example its own gradient of every parameter."""
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(device)
    x = ph.tensor(ROWS.astype(np.float32), device=device)
    labels = ph.tensor([0, 1, 1, 0], device=device)

    def loss(parameters: dict[str, ph.Tensor], image: ph.Tensor, label: ph.Tensor) -> ph.Tensor:
        return functional.cross_entropy(functional_call(model, parameters, (image[None],)), label[None])

    found = vmap(grad(loss), in_dims=(None, 0, 0))(dict(model.named_parameters()), x, labels)
    for i in range(4):
        model.zero_grad()
        functional.cross_entropy(model(x[i : i + 1]), labels[i : i + 1]).backward()
        for name, p in model.named_parameters():
            # Sums of at most five products of values below 2, in float32.
            np.testing.assert_allclose(found[name][i].numpy(), p.grad.numpy(), rtol=4e-6, atol=4e-6)


def test_an_ensemble_of_models(device: Device) -> None:
    ph.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(device) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    x = ph.tensor(ROWS.astype(np.float32), device=device)
    out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    for i, model in enumerate(models):
        np.testing.assert_allclose(out[i].detach().numpy(), model(x).detach().numpy(), rtol=2e-6, atol=2e-6)
    out.sum().backward()
    assert parameters["0.weight"].grad.shape == (3, 4, 3)


def test_a_captured_step_of_batched_gradients(device: Device) -> None:
    x = ph.tensor(ROWS.astype(np.float32), device=device)
    function = vmap(grad(_scalar(ph)))
    step = ph.jit(function)
    for _ in range(3):
        # The captured step fuses kernels, which may contract a product and a sum: an ulp of terms below 10 each.
        np.testing.assert_allclose(step(x).numpy(), function(x).numpy(), rtol=4e-6, atol=4e-6)


def test_the_tape_outside_sees_what_functions_close_over(here: str) -> None:
    w = ph.tensor(WEIGHT, device=here, requires_grad=True)
    x, _ = pair(WEIGHT, here)
    grad(lambda v: (v * v * w).sum())(x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * WEIGHT)
    assert not grad(lambda v: (v * v).sum())(x).requires_grad


def test_random_numbers_in_a_batch(here: str) -> None:
    x = ph.zeros((4, 3), device=here)
    with pytest.raises(AutogradError, match="randomness"):
        vmap(lambda v: v + ph.rand(3, device=here))(x)
    same = vmap(lambda v: v + ph.rand(3, device=here), randomness="same")(x).numpy()
    assert (same == same[0]).all()
    different = vmap(lambda v: v + ph.rand(3, device=here), randomness="different")(x).numpy()
    assert len({tuple(row) for row in different.tolist()}) == 4
    dropped = vmap(lambda v: functional.dropout(v + 1, 0.5), randomness="different")(ph.zeros((4, 64), device=here))
    assert len({tuple(row) for row in dropped.numpy().tolist()}) == 4


def test_values_of_a_batch_are_not_known(here: str) -> None:
    x, _ = pair(ROWS, here)
    with pytest.raises(AutogradError, match="inside vmap"):
        vmap(lambda v: v if v.sum() > 0 else -v)(x)
    kept = []
    vmap(lambda v: kept.append(v) or v)(x)
    with pytest.raises(AutogradError, match="after vmap returned"):
        _ = kept[0] + 1


@pytest.mark.parametrize(
    ("axes", "message"),
    [((0,), "1 entries for 2"), ((None, None), "no argument"), ((0, 0), "lengths"), ((2, None), "no axis 2")],
)
def test_axes_that_do_not_fit(axes: Any, message: str, here: str) -> None:
    a, _ = pair(ROWS, here)
    b, _ = pair(WEIGHT, here)
    with pytest.raises(ValueError, match=message):
        vmap(lambda u, v: u + v, axes)(a, b)


def test_writes_inside_a_batch(here: str) -> None:
    a, _ = pair(ROWS, here)

    def function(v: ph.Tensor) -> ph.Tensor:
        out = v * 1
        out[0] = 7.0
        out.add_(v)
        return out

    expected = ROWS.copy()
    expected[:, 0] = 7
    np.testing.assert_allclose(vmap(function)(a).numpy(), expected + ROWS)
    total = ph.zeros((3,), device=here)
    with pytest.raises(AutogradError, match="not batched"):
        vmap(lambda v: total.copy_(v))(a)
