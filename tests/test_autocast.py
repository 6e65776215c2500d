"""Mixed precision by `autocast`: which dtypes ops run in, and that gradients are close to those of float32."""

import numpy as np
import pytest

import polyhal
from polyhal import Device, nn
from polyhal.amp import AutocastError, autocast
from polyhal.nn import functional as F


@pytest.fixture
def x():
    rng = np.random.default_rng(0)
    return polyhal.tensor(rng.standard_normal((8, 16), dtype=np.float32), device=Device("numpy"))


@pytest.mark.parametrize("dtype", [polyhal.float16, polyhal.bfloat16])
def test_products_run_in_the_half_dtype_and_sensitive_functions_in_float32(x, dtype):
    with autocast(dtype):
        product = x @ x.T
        assert product.dtype is dtype
        assert F.softmax(product, -1).dtype is polyhal.float32
        assert (product + product).dtype is dtype
        assert (x + x).dtype is polyhal.float32
        with autocast(enabled=False):
            assert (x @ x.T).dtype is polyhal.float32
        assert (x @ x.T).dtype is dtype
    assert (x @ x.T).dtype is polyhal.float32


def test_double_precision_is_left_alone(x):
    with autocast():
        assert (x.to(polyhal.float64) @ x.to(polyhal.float64).T).dtype is polyhal.float64


def test_gradients_have_the_dtype_of_parameters_and_are_close_to_those_of_float32(x):
    polyhal.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(x.device)

    def gradients(enabled):
        model.zero_grad()
        with autocast(polyhal.bfloat16, enabled=enabled):
            loss = F.cross_entropy(model(x), polyhal.tensor(np.arange(8) % 4, device=x.device))
        loss.backward()
        assert loss.dtype is polyhal.float32
        return [p.grad for p in model.parameters()]

    for half, full in zip(gradients(True), gradients(False), strict=True):
        assert half.dtype is polyhal.float32
        # bfloat16 keeps 8 bits: each of a handful of roundings is off by 2^-9 of the largest value.
        np.testing.assert_allclose(half.numpy(), full.numpy(), atol=8 * 2**-9 * np.abs(full.numpy()).max())


def test_backward_inside_the_block_runs_in_the_dtypes_of_the_forward_pass(x):
    q = x.reshape(1, 1, 8, 16).detach().requires_grad_()

    def gradient(inside):
        with autocast(polyhal.bfloat16):
            out = F.scaled_dot_product_attention(q, q, q).sum()
            if inside:
                return polyhal.grad(out, q)[0].numpy()
        return polyhal.grad(out, q)[0].numpy()

    np.testing.assert_array_equal(gradient(True), gradient(False))


def test_a_failed_block_leaves_no_casting_behind(x):
    with pytest.raises(RuntimeError, match="stop"), autocast():
        raise RuntimeError("stop")
    assert (x @ x.T).dtype is polyhal.float32


def test_other_dtypes_are_refused():
    with pytest.raises(AutocastError, match="got float32; expected float16 or bfloat16"):
        autocast(polyhal.float32)


def test_a_device_may_come_before_the_dtype_as_in_pytorch(x):
    for block in (autocast("cpu", polyhal.float16), autocast("cuda", dtype=polyhal.float16), autocast("float16")):
        with block:
            assert (x @ x.T).dtype is polyhal.float16
    with autocast(x.device, None, False, cache_enabled=False):
        assert (x @ x.T).dtype is polyhal.float32
    with pytest.raises(TypeError, match="bfloat61"):
        autocast("bfloat61")


def test_an_autocast_decorates_functions(x):
    product = polyhal.autocast("cpu")(lambda x: x @ x.T)
    assert product(x).dtype is polyhal.bfloat16
    assert (x @ x.T).dtype is polyhal.float32
