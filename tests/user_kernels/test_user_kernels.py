"""Kernels of users: forward, gradients and captured steps on every device, and errors that name the cause."""

from __future__ import annotations

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal
from polyhal import Device
from polyhal.autograd import gradcheck, gradgradcheck
from polyhal.hal.errors import (
    AutogradError,
    BackendError,
    DeviceMismatchError,
    KernelBuildError,
    ShapeError,
    UnsupportedDTypeError,
    UnsupportedOpError,
)

WGSL_ENTRY = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>)"

axpy = polyhal.kernel(
    "axpy",
    opencl="""
    __kernel void axpy(__global const T *x, __global const T *y, float a, __global T *restrict out, uint out_size) {
        size_t i = get_global_id(0);  // one element, of "x" too
        if (i < out_size) out[i] = a * x[i] + y[i];
    }""",
    wgsl=WGSL_ENTRY
    + """ {
        let i = id.x; // one element
        if (i < parameters.out_size) { out[i] = T(parameters.a) * x[i] + y[i]; }
    }""",
    numpy=lambda x, y, a: a * x + y,
    outputs=lambda x, y, a: (x.dtype, polyhal.hal.layout.broadcast_shapes(x.shape, y.shape)),
    gradient=lambda g, x, y, a: (g * a, g, None),
)

square = polyhal.kernel(
    "square",
    opencl="""
    #define SQUARE(x) ((x) * (x))
    __kernel __attribute__((reqd_work_group_size(64, 1, 1)))
    void square(__global const x_t *x, __global out_t *out, uint x_size) {
        const uint i = get_global_id(0);
        if (i < x_size) out[i] = SQUARE(x[i]);
    }""",
    wgsl=WGSL_ENTRY + "{ if (id.x < parameters.x_size) { out[id.x] = x[id.x] * x[id.x]; } }",
    numpy=lambda x: x * x,
    gradient=lambda g, x: 2 * g * x,
)

transposed = polyhal.kernel(
    "transposed",
    opencl="""kernel void transposed(global const T *x, global T *out, uint x_dim0, uint x_dim1) {
        uint row = get_global_id(1), column = get_global_id(0);
        if (row < x_dim0 && column < x_dim1) out[column * x_dim0 + row] = x[row * x_dim1 + column];
    }""",
    wgsl="""
    @compute @workgroup_size(8, 8)
    fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) place: vec3<u32>) {
        let row = group.y * 8u + place.y;
        let column = group.x * 8u + place.x;
        if (row < parameters.x_dim0 && column < parameters.x_dim1) {
            out[column * parameters.x_dim0 + row] = x[row * parameters.x_dim1 + column];
        }
    }""",
    numpy=lambda x: x.T,
    outputs=lambda x: (x.dtype, (x.shape[1], x.shape[0])),
    grid=lambda x: (x.shape[1], x.shape[0]),
    gradient=lambda g: g.permute(1, 0),
)

counts = polyhal.kernel(
    "counts",
    opencl="""__kernel void counts(__global const int *x, __global int *out, uint x_size) {
        if (get_global_id(0) < x_size) atomic_add(&out[x[get_global_id(0)] % bins], amount);
    }""",
    wgsl="""
    @compute @workgroup_size(1)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        for (var i = 0u; i < parameters.x_size; i++) { out[x[i] % bins] += amount; }
    }""",
    numpy=lambda x, *, bins, amount=1: np.bincount(x % bins, minlength=bins) * amount,
    outputs=lambda x, *, bins, amount=1: (x.dtype, (bins,)),
    grid=lambda x, *, bins, amount=1: 1 if amount < 0 else x.size,
    initial=0,
)

divided = polyhal.kernel(
    "divided",
    opencl="""__kernel void divided(__global const int *x, int n, __global int *whole, __global int *rest) {
        size_t i = get_global_id(0);
        whole[i] = x[i] / n;
        rest[i] = x[i] % n;
    }""",
    wgsl=WGSL_ENTRY
    + """ {
        if (id.x >= parameters.whole_size) { return; }
        whole[id.x] = x[id.x] / parameters.n;
        rest[id.x] = x[id.x] % parameters.n;
    }""",
    numpy=lambda x, n: (x // n, x % n),
    results=("whole", "rest"),
    group=1,
)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices without a kernel may take the NumPy function."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")


def has_kernels(device: Device) -> bool:
    return device.info.backend in ("opencl", "wgpu")


class TestForward:
    """Results are those of the NumPy function."""

    @pytest.mark.parametrize("n", [1, 63, 1000])
    def test_elementwise(self, device: Device, n: int) -> None:
        x, y = values(n), values(2 * n)[n:]
        result = axpy(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device), 1.5)
        np.testing.assert_allclose(result.numpy(), 1.5 * x + y, rtol=1e-6, atol=1e-6)

    def test_views_and_strided_operands(self, device: Device) -> None:
        x = polyhal.tensor(values(9, 8), device=device)
        np.testing.assert_allclose(square(x[3:7]).numpy(), x.numpy()[3:7] ** 2, rtol=1e-6)
        np.testing.assert_allclose(square(x[1:, 1::2]).numpy(), x.numpy()[1:, 1::2] ** 2, rtol=1e-6)
        mixed = axpy(x[2:6].permute(1, 0), x[1].reshape(8, 1).broadcast_to((8, 4)), 2)
        np.testing.assert_allclose(mixed.numpy(), 2 * x.numpy()[2:6].T + x.numpy()[1][:, None], rtol=1e-5, atol=1e-6)

    def test_two_axes(self, device: Device) -> None:
        x = polyhal.tensor(values(13, 21), device=device)
        assert (transposed(x).numpy() == x.numpy().T).all()

    def test_initial_values_and_constants(self, device: Device) -> None:
        x = polyhal.tensor(np.arange(100, dtype=np.int32), device=device)
        sign = -1 if device.info.backend == "wgpu" else 1
        assert counts(x, bins=8, amount=sign).tolist() == [13 * sign] * 4 + [12 * sign] * 4

    def test_several_results(self, device: Device) -> None:
        x = polyhal.tensor(np.arange(10, dtype=np.int32), device=device)
        whole, rest = divided(x, 3)
        assert (whole.tolist(), rest.tolist()) == ((np.arange(10) // 3).tolist(), (np.arange(10) % 3).tolist())

    def test_an_empty_tensor(self, device: Device) -> None:
        assert square(polyhal.ones((0,), device=device)).shape == (0,)

    def test_lists_are_converted(self, device: Device) -> None:
        assert axpy(polyhal.ones((2,), device=device), [1.0, 2.0], 3).tolist() == [4, 5]

    @pytest.mark.parametrize("dtype", ["float64", "int32", "uint8"])
    def test_other_dtypes(self, device: Device, dtype: str) -> None:
        kind = getattr(polyhal, dtype)
        if kind not in device.capabilities.compute:
            pytest.skip("not on this device")
        x = polyhal.tensor(np.arange(10), dtype=kind, device=device)
        result = square(x)
        assert result.dtype is kind
        assert result.tolist() == [n * n for n in range(10)]


class TestGradients:
    """Gradient rules are like those of other ops."""

    def test_gradient_and_second_gradient(self, device: Device) -> None:
        if polyhal.float64 not in device.capabilities.compute:
            pytest.skip("no float64")
        x = polyhal.tensor(values(3, 4), dtype=polyhal.float64, device=device, requires_grad=True)
        y = polyhal.tensor(values(4, 3), dtype=polyhal.float64, device=device, requires_grad=True)
        assert gradcheck(lambda x, y: square(axpy(x, transposed(y), 2.0)), (x, y))
        assert gradgradcheck(lambda x, y: square(axpy(x, transposed(y), 2.0)), (x, y))

    def test_gradient_in_float32(self, device: Device) -> None:
        x = polyhal.tensor(values(5), device=device, requires_grad=True)
        axpy(square(x), x, 3.0).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 6 * values(5) + 1, rtol=1e-5)

    def test_a_kernel_without_gradient_says_so(self, device: Device) -> None:
        plain = polyhal.kernel("plain", numpy=lambda x: x)
        if has_kernels(device):
            pytest.skip("the error does not depend on the device")
        y = plain(polyhal.ones((2,), device=device, requires_grad=True))
        with pytest.raises(AutogradError, match=r"\[plain\] the kernel has no gradient; give one as `gradient=`"):
            y.sum().backward()


class TestCaptured:
    """Captured steps contain kernels of users as one node each."""

    def test_replays_with_other_numbers_and_tensors(self, device: Device) -> None:
        step = polyhal.jit(lambda x, y, a: axpy(x * 2, square(y), a) + 1, warm_up=False)
        for a, seed in ((1.0, 0.0), (2.5, 1.0), (0.5, 2.0)):
            x, y = values(40) + seed, values(40) - seed
            result = step(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device), a)
            np.testing.assert_allclose(result.numpy(), a * 2 * x + y * y + 1, rtol=1e-5, atol=1e-5)

    def test_strided_operands(self, device: Device) -> None:
        step = polyhal.jit(lambda x: square((x + 1).permute(1, 0)) + transposed(x[1:, ::2])[0, 0], warm_up=False)
        for seed in (0.0, 1.0):
            x = values(6, 4) + seed
            np.testing.assert_allclose(
                step(polyhal.tensor(x, device=device)).numpy(), (x.T + 1) ** 2 + x[1, 0], rtol=1e-5, atol=1e-5
            )

    def test_training_step(self, device: Device) -> None:
        weight = polyhal.tensor(values(8), device=device, requires_grad=True)
        optimizer = polyhal.optim.SGD([weight], lr=0.1)
        expected = values(8)

        @polyhal.jit(warm_up=False)
        def step(x: polyhal.Tensor) -> polyhal.Tensor:
            loss = square(axpy(weight, x, 2.0)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            step(polyhal.ones((8,), device=device))
            expected = expected - 0.1 * 4 * (2 * expected + 1)
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-4, atol=1e-5)

    def test_initial_values_are_set_at_each_replay(self, device: Device) -> None:
        sign = -1 if device.info.backend == "wgpu" else 1
        count = polyhal.jit(lambda x: counts(x, bins=2, amount=sign), warm_up=False)
        for _ in range(3):
            result = count(polyhal.tensor([0, 1, 1], dtype=polyhal.int32, device=device))
            assert [abs(n) for n in result.tolist()] == [1, 2]


def test_explain_shows_the_kernel(device: Device) -> None:
    text = polyhal.explain(axpy, device, (4,), (4,), 2.0)
    if has_kernels(device):
        assert "axpy(float32[4], float32[4], float32 number): kernel axpy from the op's own source" in text
    else:
        assert "axpy" in text


def test_a_program_is_compiled_once_for_all_shapes() -> None:
    for name in TEST_DEVICES:
        device = Device(name)
        if device.info.backend == "opencl":
            square(polyhal.ones((3,), device=device))
            known = len(device.backend.kernels.program_builds)
            square(polyhal.ones((4, 5), device=device))
            assert len(device.backend.kernels.program_builds) == known


class TestErrors:
    """Mistakes are named, with the expected value and the fix."""

    @pytest.mark.parametrize("language", ["opencl", "wgsl"])
    def test_build_errors_show_the_line(self, device: Device, language: str) -> None:
        if {"opencl": "opencl", "wgpu": "wgsl"}.get(device.info.backend) != language:
            pytest.skip("another language")
        sources = {
            "opencl": "__kernel void wrong(__global const T *x, __global T *out) {\n\n    out[0] = y_is_not_here;\n}",
            "wgsl": WGSL_ENTRY + "{\n\n    out[0] = y_is_not_here;\n}",
        }
        wrong = polyhal.kernel("wrong", **{language: sources[language]}, outputs=lambda x: (x.dtype, x.shape))
        with pytest.raises(
            KernelBuildError, match=r"(> wrong\.cl:3|   3) +\|     out\[.*\] = y_is_not_here;"
        ) as caught:
            wrong(polyhal.ones((2,), device=device))
        assert "mend the line" in str(caught.value)

    def test_a_tensor_of_another_dtype_than_the_kernel_declares(self, device: Device) -> None:
        if device.info.backend != "opencl":
            pytest.skip("types are declared in OpenCL C")
        x = polyhal.ones((2,), device=device)
        with pytest.raises(
            UnsupportedDTypeError, match=r"\[divided\] x is float32; expected int32, for the parameter `int \*x`"
        ):
            divided(x, 3)

    def test_a_parameter_that_is_no_input(self, device: Device) -> None:
        if device.info.backend != "opencl":
            pytest.skip("parameters are declared in OpenCL C")
        misspelt = polyhal.kernel(
            "misspelt",
            opencl="__kernel void misspelt(__global T *z, __global T *out) {}",
            outputs=lambda x: (x.dtype, x.shape),
        )
        with pytest.raises(BackendError, match="the argument 'z' is missing"):
            misspelt(polyhal.ones((2,), device=device))

    def test_a_device_without_source(self, device: Device) -> None:
        foreign = polyhal.kernel("foreign", sources={"metal": "..."}, outputs=lambda x: (x.dtype, x.shape))
        with pytest.raises(UnsupportedOpError, match=r"\[foreign\] .*; pass the kernel in the device's language"):
            foreign(polyhal.ones((2,), device=device))

    def test_shapes_that_do_not_fit(self) -> None:
        x = polyhal.ones((2, 3), device="numpy")
        with pytest.raises(ShapeError, match=r"\[axpy\] `outputs` does not take these inputs \(float32\[2, 3\], "):
            axpy(x, polyhal.ones((5,), device="numpy"), 1.0)
        with pytest.raises(ShapeError, match=r"\[transposed\] `outputs` does not take these inputs \(float32\[2\] "):
            transposed(x[:, 0])

    def test_outputs_of_another_form(self) -> None:
        wrong = polyhal.kernel("wrong", numpy=lambda x: x, outputs=lambda x: x.shape)
        with pytest.raises(ShapeError, match=r"\[wrong\] `outputs` returned \(2,\); expected \(dtype, shape\) for out"):
            wrong(polyhal.ones((2,), device="numpy"))

    def test_inputs_on_two_devices(self) -> None:
        with pytest.raises(DeviceMismatchError):
            axpy(polyhal.ones((2,), device="numpy"), polyhal.ones((2,), device="numpy:no_f64"), 1.0)

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"name": "f"}, "the kernel has no source"),
            ({"name": "f g", "numpy": lambda x: x}, "the name is no identifier"),
            ({"name": "f", "opencl": "..."}, "the inputs are not named"),
            ({"name": "f", "numpy": lambda: 1}, "the inputs are"),
        ],
    )
    def test_declarations_that_do_not_fit(self, arguments: dict, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            polyhal.kernel(**arguments)
