"""GPUs whose local memory is ordinary memory: products and convolutions read their operands in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, lower, upload

from polyhal.backends.opencl_c.lowering.attention import dispatch
from polyhal.hal.ops.nn.window_shape import output_length
from polyhal.hal.protocol import Declined

CONVOLUTION = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture(params=[True, False], ids=["on the chip", "in memory"])
def gpu(request: pytest.FixtureRequest, device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with local memory on the chip or not; `launched` has the kernels of the test."""
    runtime = device.backend.runtime
    features = replace(as_gpu(runtime.features), local_memory_is_real=request.param)
    monkeypatch.setattr(runtime, "features", features)
    launch = runtime.launch
    monkeypatch.setattr(device, "launched", set(), raising=False)

    def noted(source: str, *args: Any, **kwargs: Any) -> Any:
        device.launched.add(source)
        return launch(source, *args, **kwargs)

    monkeypatch.setattr(runtime, "launch", noted)
    return device


@pytest.mark.parametrize(("rows", "terms", "columns"), [(70, 90, 50), (17, 3000, 40), (300, 33, 260)])
def test_products(gpu: Any, rng: Any, rows: int, terms: int, columns: int) -> None:
    # Sums of `terms` products below 1: an ulp per rounding, with fewer than `terms` roundings in a chain.
    check(gpu, "matmul", [rng.uniform(-1, 1, (rows, terms)), rng.uniform(-1, 1, (terms, columns))], ulps=terms)
    staged = {"gemm/tiles", "gemm/sliced_k"} & gpu.launched
    assert bool(staged) == gpu.backend.features.local_memory_is_real
    assert staged or "gemm/strided" in gpu.launched


def test_fused_row_sums_need_staging(gpu: Any, rng: Any) -> None:
    """Without staging the planner uses a product and a sum."""
    refs = [upload(gpu, rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((130, 50), (130, 33))]
    launch, _ = lower(gpu, "linear_weight_grad", refs, {})
    assert isinstance(launch, Declined) != gpu.backend.features.local_memory_is_real


def test_convolutions(gpu: Any, rng: Any) -> None:
    x, weight = rng.uniform(-1, 1, (3, 5, 9, 8)), rng.uniform(-1, 1, (12, 5, 3, 3))
    slope = rng.uniform(-1, 1, (3, 12, 9, 8))
    check(gpu, "conv2d", [x, weight, rng.uniform(-1, 1, 12)], ulps=45, **CONVOLUTION)
    check(gpu, "conv2d_weight_grad", [slope, x], ulps=216, kernel=(3, 3), **CONVOLUTION)
    check(gpu, "conv2d_input_grad", [slope, weight], ulps=108, shape=x.shape, **CONVOLUTION)
    expected = {"conv/direct", "conv/direct_weight_grad", "conv/direct_input_grad"}
    if gpu.backend.features.local_memory_is_real:
        expected = {"conv/local_images", "conv/implicit_gemm_weight_grad"}
    assert {k for k in gpu.launched if k.startswith(("conv/direct", "conv/implicit", "conv/local"))} == expected


@pytest.mark.parametrize(
    "params",
    [
        {"stride": (2, 3), "padding": (1, 2), "dilation": (1, 1), "groups": 2},
        {"stride": (1, 2), "padding": (2, 0), "dilation": (2, 1), "groups": 1},
    ],
    ids=str,
)
def test_input_gradients_of_any_geometry(gpu: Any, rng: Any, params: dict[str, Any]) -> None:
    weight = rng.uniform(-1, 1, (6, 4 // params["groups"], 3, 2))
    axes = zip((9, 8), (3, 2), params["stride"], params["padding"], params["dilation"], strict=True)
    slope = rng.uniform(-1, 1, (2, 6, *(output_length(*a) for a in axes)))
    check(gpu, "conv2d_input_grad", [slope, weight], ulps=36, shape=(2, 4, 9, 8), **params)
    # An equal gradient in channels-last layout.
    turned = np.ascontiguousarray(slope.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    check(gpu, "conv2d_input_grad", [turned, weight], ulps=36, shape=(2, 4, 9, 8), **params)


def test_attention_of_few_scores_is_not_staged(gpu: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner uses products and a softmax instead, unless the scores are too large for memory."""
    q, k, v = (upload(gpu, rng.uniform(-1, 1, (2, 33, 16)).astype(np.float32)) for _ in range(3))
    backward = [q, q, k, v, None, q, upload(gpu, np.zeros((2, 33, 2), np.float32))]
    for op, refs in (("attention", [q, k, v, None]), ("attention_grad", backward)):
        monkeypatch.setattr(dispatch, "_MAX_SCORES", 2 * 33 * 33 * 4)
        assert (
            isinstance(lower(gpu, op, refs, {"scale": 0.25})[0], Declined) != gpu.backend.features.local_memory_is_real
        )
        monkeypatch.setattr(dispatch, "_MAX_SCORES", 2 * 33 * 33 * 4 - 1)
        assert not isinstance(lower(gpu, op, refs, {"scale": 0.25})[0], Declined)
