"""Layers over quantised weights, eagerly, captured and with gradients, against their dequantised weights."""

import numpy as np
import pytest

import polyhal
from polyhal.backends.common.problems.quantized import QuantizedProduct, product
from polyhal.hal.dtypes import float32, uint8
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.quantized.dequantize import dequantize as dequantize_blocks
from polyhal.hal.protocol import Declined
from polyhal.hal.quantization.formats import FORMATS, dequantize, quantize


@pytest.fixture
def blocks():
    return quantize(np.random.default_rng(0).standard_normal((20, 64)), "q5_1")


def test_linear_multiplies_by_its_dequantised_weight(blocks, device):
    rng = np.random.default_rng(1)
    weight, bias = dequantize(blocks, "q5_1").astype(np.float64), rng.standard_normal(20).astype(np.float32)
    layer = polyhal.nn.QuantizedLinear(blocks, "q5_1", 64, bias=bias, device=device)
    x = rng.standard_normal((2, 3, 64)).astype(np.float32)
    given = polyhal.tensor(x, device=device, requires_grad=True)
    out = polyhal.jit(layer)(given)
    # Kernels round the numbers of x to half a unit of 1 / 32512 of the largest.
    rounding = np.abs(x).max() / 32512 / 2 * np.abs(weight).sum(1).max()
    np.testing.assert_allclose(out.numpy(), x @ weight.T + bias, atol=1e-4 + rounding)
    layer(given).sum().backward()
    np.testing.assert_allclose(given.grad.numpy(), np.broadcast_to(weight.sum(0), x.shape), atol=1e-4)
    np.testing.assert_array_equal(layer.file_blocks(), blocks)
    assert layer.blocks.shape == (32, 48)
    assert list(layer.state_dict()) == ["bias", "blocks"]


def test_embedding_looks_up_rows(blocks, device):
    table = polyhal.nn.QuantizedEmbedding(blocks, "q5_1", 64, device=device)
    rows = table(polyhal.tensor([[3, 19], [0, 16]], device=device))
    np.testing.assert_allclose(rows.numpy(), dequantize(blocks, "q5_1")[[[3, 19], [0, 16]]], rtol=1e-6)


def test_damaged_scales_are_infinite_or_nan_on_every_device(device):
    """Random bytes make some scales infinite or NaN, in NumPy exactly as the package `gguf` decodes them."""
    for name in ("q5_1", "q4_k", "q3_k"):
        damaged = np.random.default_rng(2).integers(0, 256, (16, FORMATS[name].row_bytes(512)), dtype=np.uint8)
        damaged[:4] = np.tile(np.array([0, 0x7C], np.uint8), damaged.shape[1] // 2)
        with np.errstate(all="ignore"):
            expected = dequantize(damaged, name)
        assert not np.isfinite(expected).all()
        table = polyhal.nn.QuantizedEmbedding(damaged, name, 512, device=device)
        in_tiles = table(polyhal.arange(16, device=device)).numpy()
        in_rows = dequantize_blocks(polyhal.tensor(damaged, device=device), format=name).numpy()
        np.testing.assert_allclose(in_tiles, expected, rtol=1e-6, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(in_rows, expected, rtol=1e-6, atol=1e-4, err_msg=name)


def test_experts_multiply_by_their_dequantised_matrices(device):
    rng = np.random.default_rng(3)
    blocks = quantize(rng.standard_normal((5, 20, 64)), "q8_0")
    weight = dequantize(blocks, "q8_0").astype(np.float64)
    layer = polyhal.nn.QuantizedExperts(blocks, "q8_0", 64, device=device)
    chosen = np.array([[4, 0], [2, 2], [0, 1]])
    x = rng.standard_normal((3, 2, 64)).astype(np.float32)
    out = polyhal.jit(layer)(*(polyhal.tensor(v, device=device) for v in (x, chosen)))
    np.testing.assert_allclose(out.numpy(), np.einsum("tkoi,tki->tko", weight[chosen], x), atol=1e-4)
    same = polyhal.tensor(x[:, 0], device=device, requires_grad=True)
    every = layer.every(same)
    # Products round the numbers of x as above.
    near = 1e-4 + np.abs(x).max() / 32512 / 2 * np.abs(weight).sum(-1).max()
    np.testing.assert_allclose(every.numpy(), np.einsum("eoi,ti->eto", weight, x[:, 0]), atol=near)
    every.sum().backward()
    np.testing.assert_allclose(same.grad.numpy(), np.tile(weight.sum((0, 1)), (3, 1)), atol=1e-3)
    own = layer.every(polyhal.tensor(np.repeat(x[None, :, 1], 5, 0), device=device))
    np.testing.assert_allclose(own.numpy(), np.einsum("eoi,ti->eto", weight, x[:, 1]), atol=near)


def test_blocks_of_another_width_are_refused(blocks):
    with pytest.raises(polyhal.hal.errors.ShapeError, match="for rows of 96 weights in q5_1"):
        polyhal.nn.QuantizedLinear(blocks, "q5_1", 96)


def test_kernels_decline_blocks_that_begin_inside_a_word():
    x, out = contiguous(float32, (3, 64)), contiguous(float32, (3, 32))
    blocks = contiguous(uint8, (32, 48))
    params = {"format": "q5_1", "in_tiles": True, "transposed": False}
    assert isinstance(product((x, blocks), (out,), params), QuantizedProduct)
    refused = product((x, Spec(blocks.dtype, blocks.shape, blocks.strides, aligned=False)), (out,), params)
    assert isinstance(refused, Declined)
    assert refused.reason == "the blocks begin inside a word"
