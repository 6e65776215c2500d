"""Tests beyond the conformance kit: large shapes, work in parts, avoided copies, errors, transfers."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import missing

import polyhal
from polyhal.hal import dispatch, dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import BackendError, DeviceUnavailableError, KernelBuildError, OutOfMemoryError
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.protocol import Feature

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

EPSILON = {dtypes.float32: 4e-6, dtypes.float16: 2e-3, dtypes.bfloat16: 1.6e-2, dtypes.float64: 1e-12}
ALL_FLOATS = pytest.mark.parametrize("dtype", EPSILON, ids=lambda d: d.name)


@pytest.fixture(scope="module")
def device() -> polyhal.Device:
    return polyhal.Device("cuda")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def tensor(array: np.ndarray, device: Any, dtype: DType = dtypes.float32) -> Any:
    """Return `array` on the device; floats in `dtype`."""
    made = polyhal.tensor(array, device=device)
    return made.cast(dtype=dtype) if array.dtype.kind == "f" else made


def wide(value: Any) -> Any:
    """Return a tensor as a NumPy array, floats in float64; other values unchanged."""
    if not isinstance(value, polyhal.Tensor):
        return value
    return value.cast(dtype=dtypes.float64).numpy() if value.dtype.is_floating_point else value.numpy()


def check(op: str, inputs: tuple[Any, ...], dtype: DType = dtypes.float32, slack: float = 1.0, **params: Any) -> Any:
    """Return the op's results, after a comparison with its float64 reference, relative to the largest element."""
    bound = {**OPS[op].schema.params, **params}
    got = dispatch.apply(OPS[op], inputs, tuple(bound.values()))
    expected = OPS[op].reference(*map(wide, inputs), **bound)
    results = got if isinstance(got, tuple) else (got,)
    for result, target in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        limit = slack * EPSILON[dtype] * max(float(np.abs(target).max()), 1e-30)
        np.testing.assert_allclose(wide(result), target, rtol=0, atol=limit)
    return got


def launches(device: Any, work: Any) -> Counter[str]:
    """Return the names of the launches of `work`, with existing plans."""
    work()
    device.backend.start_profiling()
    work()
    return Counter(name for name, _, _ in device.backend.stop_profiling())


# --- products -------------------------------------------------------------------------------------------------------


def test_products_of_float32_do_not_use_tensorfloat_32(device: Any, rng: np.random.Generator) -> None:
    """TensorFloat-32 has relative errors of 1e-4."""
    a, b = (tensor(rng.standard_normal((512, 512)), device) for _ in range(2))
    error = np.linalg.norm(wide(a @ b) - wide(a) @ wide(b)) / np.linalg.norm(wide(a) @ wide(b))
    assert error < 3e-6


def test_views_are_multiplied_without_copies(device: Any, rng: np.random.Generator) -> None:
    a, b = (tensor(rng.standard_normal((64, 64)), device) for _ in range(2))
    x = tensor(rng.standard_normal((4, 32, 3 * 64)), device)
    assert launches(device, lambda: a.permute((1, 0)) @ b[:, 8:40]) == {"matmul": 1}
    assert launches(device, lambda: FUNCTIONS["linear"](x[:, :, 64:128], a, None)) == {"matmul": 1}

    def attend() -> None:
        q, k, v = (part.reshape((4, 32, 2, 32)).permute((0, 2, 1, 3)) for part in x.split(64, -1))
        FUNCTIONS["attention"](q, k, v, None, True, None)

    kernels = {"pointers": 1, "attention.scores": 1, "attention_softmax": 1, "attention.values": 1}
    assert launches(device, attend) == kernels


@ALL_FLOATS
def test_products_of_any_layout(device: Any, rng: np.random.Generator, dtype: DType) -> None:
    def draw(*shape: int) -> Any:
        return tensor(rng.uniform(-1, 1, shape), device, dtype)

    for a, b in (
        (draw(130, 70).permute((1, 0)), draw(130, 90)),
        (draw(3, 1, 7, 30), draw(4, 30, 20)),
        (draw(6, 7, 30), draw(6, 20, 30).permute((0, 2, 1))),
        (draw(40, 60)[::2, ::2], draw(30, 20)),
        (draw(2, 3, 5, 4, 6)[:, :, ::2], draw(3, 1, 6, 8)),
    ):
        check("matmul", (a, b), dtype)


@ALL_FLOATS
def test_transposed_copies(device: Any, rng: np.random.Generator, dtype: DType) -> None:
    """Every element width has a separate program."""
    for shape in ((300, 70), (3, 65, 130), (2, 3, 40, 33)):
        x = tensor(rng.uniform(-1, 1, shape), device, dtype)
        axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        copied = x.permute(axes).contiguous()
        np.testing.assert_array_equal(wide(copied), np.swapaxes(wide(x), -1, -2))


# --- rows, reductions, indexing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [96, 384, 1025, 5000, 40000])
def test_rows_of_any_length(device: Any, rng: np.random.Generator, length: int) -> None:
    x, w, b = (tensor(rng.uniform(-2, 2, s), device) for s in ((5, length), (length,), (length,)))
    y = check("softmax", (x,), axis=1)
    check("softmax_grad", (x, y), axis=1, slack=4)
    _, mean, scale = check("layer_norm", (x, w, b), axes=1, eps=1e-5, slack=4)
    check("layer_norm_grad", (x, x, w, mean, scale), axes=1, slack=8)
    target = tensor(rng.integers(0, length, 5), device)
    _, lse = check("cross_entropy_rows", (x, target), label_smoothing=0.1, ignore_index=-100)
    check("cross_entropy_rows_grad", (w[:5], x, target, lse), label_smoothing=0.1, ignore_index=-100, slack=4)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((20000, 1152), 0), ((3_000_000,), None), ((70, 5000), 1), ((64, 30, 1000), (0,)), ((3, 40, 999), (0, 2))],
)
def test_reductions_in_parts(device: Any, rng: np.random.Generator, shape: tuple[int, ...], axis: Any) -> None:
    x = tensor(rng.uniform(0.5, 1, shape), device)
    check("sum", (x,), axis=axis)
    check("max", (x,), axis=axis)


def test_additions_to_few_rows(device: Any, rng: np.random.Generator) -> None:
    rows, index = tensor(rng.uniform(-1, 1, (4000, 48)), device), tensor(rng.integers(0, 9, 4000), device)
    check("scatter_rows", (rows, index), rows=9, slack=8)


def test_random_numbers_equal_the_numpy_devices(device: Any) -> None:
    for op in ("random_bits", "uniform"):
        params = (3, 1 << 33, (1001,)) if op == "random_bits" else (3, 1 << 33, (1001,), dtypes.float32)
        ours = FUNCTIONS[op](*params, device=device).numpy()
        np.testing.assert_array_equal(ours, FUNCTIONS[op](*params, device=polyhal.Device("numpy")).numpy())


# --- attention, convolution, optimizers -----------------------------------------------------------------------------


@ALL_FLOATS
@pytest.mark.parametrize("nbytes", [1 << 30, 40_000], ids=["whole", "in parts"])
def test_attention(
    device: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: DType, nbytes: int
) -> None:
    """Heads that are views, with masks and without, in bands of queries, the batch whole or in parts."""
    from polyhal_cupy.lowering.attention import problem

    monkeypatch.setattr(problem, "_SCORE_BYTES", nbytes)
    monkeypatch.setattr(problem, "_BAND", 16)
    device.plans.clear()
    batch, heads, length, width = 3, 2, 60, 16
    x = tensor(rng.uniform(-2, 2, (batch, length, 3 * heads * width)), device, dtype)
    q, k, v = (p.reshape((batch, length, heads, width)).permute((0, 2, 1, 3)) for p in x.split(heads * width, -1))
    g = tensor(rng.uniform(-1, 1, (batch, length, heads, width)), device, dtype).permute((0, 2, 1, 3))
    keep = rng.random((length, length)) < 0.7
    keep[:, 0] = True
    added = tensor(rng.uniform(-1, 1, (batch, 1, 1, length)), device, dtype)
    for mask, causal in ((None, True), (None, False), (tensor(keep, device), False), (added, True)):
        out, lse = check("attention", (q, k, v, mask), dtype, causal=causal)
        check("attention_grad", (g, q, k, v, mask, out, lse), dtype, slack=4, causal=causal)
    device.plans.clear()


@ALL_FLOATS
@pytest.mark.parametrize("nbytes", [1 << 29, 60_000], ids=["whole", "in parts"])
def test_convolution(
    device: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: DType, nbytes: int
) -> None:
    from polyhal_cupy.lowering.conv import dispatch as conv

    monkeypatch.setattr(conv, "_COLUMN_BYTES", nbytes)
    device.plans.clear()
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    for x_shape, w_shape, params in (
        ((4, 6, 17, 19), (8, 6, 3, 3), {"padding": (1, 1)}),
        ((4, 8, 16, 16), (12, 4, 3, 3), {"groups": 2, "stride": (2, 2), "padding": (1, 1)}),
        ((3, 16, 9, 9), (16, 1, 3, 3), {"groups": 16}),
        ((5, 7, 8, 8), (9, 7, 1, 1), {}),
    ):
        x, w, b = (tensor(rng.uniform(-1, 1, s), device, dtype) for s in (x_shape, w_shape, w_shape[:1]))
        all_params = {**plain, **params}
        out = check("conv2d", (x, w, b), dtype, **all_params)
        check("conv2d_input_grad", (out, w), dtype, slack=2, shape=x_shape, **all_params)
        check("conv2d_weight_grad", (out, x), dtype, slack=2, kernel=w_shape[2:], **all_params)
    device.plans.clear()


def test_more_parameters_than_fit_in_one_launch(device: Any, rng: np.random.Generator) -> None:
    count = 230
    sizes = rng.integers(1, 9000, count)
    tensors = [tensor(rng.uniform(0.01, 1, n), device) for n in sizes]
    check("sum_of_squares", tuple(tensors))


# --- memory, errors, the rest of the contract -----------------------------------------------------------------------


def test_optional_protocols(device: Any) -> None:
    assert device.features == Feature.LOWERING | Feature.PINNED_MEMORY | Feature.PROFILING | Feature.PEER_COPY


def test_source_may_change_after_an_upload(device: Any, rng: np.random.Generator) -> None:
    backend = device.backend
    for size in (16, 100_000, 33 * 2**20 + 5):
        data = rng.integers(0, 255, size, np.uint8)
        handle = backend.allocate(size + 7)
        expected = data.copy()
        backend.copy_to_device(memoryview(data), handle, 7)
        data[:] = 0
        back = np.empty(size - 2, np.uint8)
        backend.copy_from_device(handle, 9, memoryview(back))
        np.testing.assert_array_equal(back, expected[2:])
        backend.deallocate(handle)


def test_pinned_memory(device: Any) -> None:
    view = device.backend.allocate_pinned(4096)
    np.frombuffer(view, np.uint8)[:] = 7
    handle = device.backend.allocate(4096)
    event = device.backend.copy_to_device_async(view, handle, 0)
    event.wait()
    assert event.is_complete()
    back = bytearray(4096)
    device.backend.copy_from_device(handle, 0, memoryview(back))
    assert set(back) == {7}
    device.backend.deallocate(handle)


def test_out_of_memory_leaves_the_device_usable(device: Any) -> None:
    with pytest.raises(OutOfMemoryError, match="allocating"):
        device.backend.allocate(1 << 50)
    assert wide(tensor(np.ones(3), device) + 1).tolist() == [2, 2, 2]


def test_the_error_of_a_rejected_launch_names_the_kernel(device: Any) -> None:
    runtime = device.backend.runtime
    function = runtime.kernel("gemm/pointers", {}).function
    with pytest.raises(BackendError, match="launching too_wide with 1 blocks of 5000 threads"):
        runtime.enqueue("too_wide", function, (1,), (5000,), [])


def test_build_errors_show_the_line(device: Any) -> None:
    from polyhal_cupy.program import OPTIONS, compiled

    text = "\n".join(
        [f"// line {n}" for n in range(1, 20)] + ['extern "C" __global__ void f(float *x) { x[0] = missing; }']
    )
    with pytest.raises(KernelBuildError) as caught:
        compiled("broken.cu", text, OPTIONS, True, "a device")
    for part in ("missing", "broken.cu", "line 19", "-std=c++17"):
        assert part in str(caught.value)


def test_machine_code_is_cached(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal_cupy.program import ProgramStore

    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("POLYHAL_NO_PROGRAM_CACHE", raising=False)
    architecture = int(device.capabilities.features["compute_capability"].replace(".", ""))
    builds = []
    for _ in range(2):
        store = ProgramStore(architecture, "a device")
        store.function("gemm/pointers.cu", "pointers", {})
        builds.append(store.builds)
    assert builds == [1, 0]


def test_threads_share_launches(device: Any) -> None:
    inputs = [tensor(np.full(500, float(i)), device) for i in range(4)]
    sums: list[Any] = [None] * 4

    def work(i: int) -> None:
        for _ in range(100):
            sums[i] = (inputs[i] * 2).sum()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [s.item() for s in sums] == [0, 1000, 2000, 3000]


def test_profiling(device: Any) -> None:
    x = tensor(np.ones(1 << 20), device)
    device.backend.start_profiling()
    x + x
    (event,) = device.backend.stop_profiling()
    assert event[0] == "pointwise_elementwise"
    assert 0 <= event[1] < event[2]


def test_an_unknown_device_raises() -> None:
    with pytest.raises(DeviceUnavailableError, match="there is no CUDA device '99'"):
        polyhal.Device("cuda:99")
