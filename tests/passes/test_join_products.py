"""Products of one input that become one op: projections, gates, and norms before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.quantization.formats import dequantize
from polyhal.nn import QuantizedLinear
from polyhal.nn import functional as F


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_projections_and_gates_of_few_rows_are_joined(device: Any, rows: int) -> None:
    """Results equal NumPy's in float64; products of many rows remain separate."""
    rng, k = np.random.default_rng(0), 64
    x, scale = rng.uniform(-1, 1, (rows, 1, k)), rng.uniform(0.5, 1.5, k)
    weights = [rng.uniform(-1, 1, (n, k)) for n in (32, 16, 16, 48, 48)]

    def step(x: Any, scale: Any, *ws: Any) -> Any:
        h = F.rms_norm(x, (k,), scale, 1e-5)
        q, key, value = (F.linear(h, w) for w in ws[:3])
        gated = F.silu(F.linear(x, ws[3])) * F.linear(x, ws[4])
        # A view, an op and a result read the projections.
        return ph.cumsum(ph.reshape(q, (rows, 4, 8)), -1), ph.cumsum(key, -1), value, gated

    tensors = [ph.tensor(a.astype(np.float32), device=device) for a in (x, scale, *weights)]
    captured = ph.jit(step, warm_up=False)
    with ph.no_grad():
        found = captured(*tensors)
    text = str(captured.explain())
    if device.info.backend == "opencl":
        assert text.count("= joined_linear(") == (2 if rows < 5 else 0)
    h = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * scale
    q, key, value = (h @ w.T for w in weights[:3])
    gate, up = (x @ w.T for w in weights[3:])
    expected = np.cumsum(q.reshape(rows, 4, 8), -1), np.cumsum(key, -1), value, gate / (1 + np.exp(-gate)) * up
    for got, want in zip(found, expected, strict=True):
        # Sums of 64 terms in float32, and products of numbers up to 20.
        np.testing.assert_allclose(got.numpy(), want, rtol=3e-5, atol=1e-4)


def test_layers_of_blocks_join_norms_gates_and_residuals(device: Any) -> None:
    """Results equal NumPy's in float64."""
    rng, k = np.random.default_rng(0), 96
    formats = ("q8_0", "q8_0", "q8_0", "q8_0", "q4_1")
    layers = [QuantizedLinear.quantize(rng.standard_normal((k, k)) / 8, f, device=device) for f in formats]
    weights = [dequantize(layer.file_blocks(), layer.format).astype(np.float64) for layer in layers]
    x, scale = (ph.tensor(rng.uniform(0.5, 1.5, s).astype(np.float16), device=device) for s in ((2, 1, k), (k,)))

    def step(x: Any) -> Any:
        h = F.rms_norm(x, (k,), scale, 1e-5)
        return x + layers[2](F.silu(layers[0](h)) * layers[1](h)), layers[3](x), layers[4](h)

    native = device.info.backend in ("opencl", "wgpu")
    captured = ph.jit(step, warm_up=False)
    with ph.no_grad():
        found = captured(x)
    text = str(captured.explain())
    assert not native or (text.count("= joined_linear("), text.count("= fused_quantized_matmul(")) == (2, 1)
    assert not native or "rms_norm(" not in text.partition("in execution order")[2]
    wide = x.numpy().astype(np.float64)
    h = wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + 1e-5) * scale.numpy()
    gate, up = h @ weights[0].T, h @ weights[1].T
    expected = wide + gate / (1 + np.exp(-gate)) * up @ weights[2].T, wide @ weights[3].T, h @ weights[4].T
    for got, want in zip(found, expected, strict=True):
        # Half precision rounds terms and results by 2^-11; a gate of two sums of size 1 is a term, too.
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=1e-2)
