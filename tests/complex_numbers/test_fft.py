"""`polyhal.fft` against NumPy in float64, gradients against finite differences, short-time transforms against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.autograd import gradcheck, gradgradcheck
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError


def signal(*shape: int, complex_numbers: bool = True) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if complex_numbers else 0)


CALLS: list[tuple[str, bool, dict[str, Any]]] = [
    ("fft", True, {}),
    ("fft", False, {"n": 5, "axis": 0}),
    ("ifft", True, {"n": 9, "norm": "ortho"}),
    ("fft2", True, {"s": (4, 8)}),
    ("ifft2", True, {"axes": (0, 2), "norm": "forward"}),
    ("fftn", True, {"s": (3, 2), "axes": (0, 1)}),
    ("ifftn", False, {}),
    ("rfft", False, {"n": 7}),
    ("irfft", True, {"n": 9}),
    ("irfft", True, {}),
    ("rfft2", False, {"norm": "ortho"}),
    ("irfft2", True, {"s": (4, 7)}),
    ("rfftn", False, {"axes": (2, 0)}),
    ("irfftn", True, {"norm": "forward"}),
    ("hfft", True, {"n": 8, "norm": "ortho"}),
    ("ihfft", False, {}),
]


@pytest.mark.parametrize(("name", "complex_numbers", "arguments"), CALLS, ids=lambda v: str(v))
def test_transforms_are_numpys(name: str, complex_numbers: bool, arguments: dict[str, Any]) -> None:
    x = signal(3, 4, 6, complex_numbers=complex_numbers)
    got = getattr(ph.fft, name)(ph.tensor(x, device="numpy"), **arguments)
    expected = getattr(np.fft, name)(x, **arguments)
    assert got.dtype is ph.promote_types(got.dtype, ph.float64)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_every_device_transforms(device: ph.Device) -> None:
    x = signal(3, 8).astype(np.complex64)
    z = ph.tensor(x, device=device, requires_grad=True)
    y = ph.fft.fft(z)
    np.testing.assert_allclose(y.detach().numpy(), np.fft.fft(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ph.fft.ifft(y).detach().numpy(), x, rtol=1e-5, atol=1e-6)
    (y.abs() ** 2).sum().backward()
    assert z.grad is not None
    np.testing.assert_allclose(z.grad.numpy(), 2 * 8 * x, rtol=1e-5, atol=1e-5)


def test_explain_says_where_transforms_run(device: ph.Device) -> None:
    native = device.name.partition(":")[0] in ("numpy", "opencl", "cuda", "wgpu")
    assert ("native kernel" if native else "pocketfft") in str(ph.explain("fourier", device))


def test_arguments_have_pytorchs_names_too() -> None:
    x = ph.tensor(signal(3, 4), device="numpy")
    assert ph.fft.fft(input=x, dim=0).tolist() == ph.fft.fft(x, axis=0).tolist()
    assert ph.fft.fftn(x, dim=(0,)).tolist() == ph.fft.fftn(x, axes=(0,)).tolist()
    assert ph.fft.fftshift(x, dim=1).tolist() == np.fft.fftshift(x.numpy(), axes=1).tolist()
    assert ph.fft.ifftshift(x).tolist() == np.fft.ifftshift(x.numpy()).tolist()
    np.testing.assert_allclose(ph.fft.fftfreq(5, 0.5, device="numpy").numpy(), np.fft.fftfreq(5, 0.5), rtol=1e-6)
    np.testing.assert_allclose(ph.fft.rfftfreq(6, device="numpy").numpy(), np.fft.rfftfreq(6), rtol=1e-6)


@pytest.mark.parametrize(("n", "axes"), [(5, (1,)), (4, (1,)), (4, (1, 0))], ids=str)
def test_gradients_of_every_order(n: int, axes: tuple[int, ...]) -> None:
    x = ph.tensor(signal(3, n, complex_numbers=False), device="numpy", requires_grad=True)

    def function(x: Any) -> Any:
        half = ph.fft.rfftn(x, axes=axes)
        back = ph.fft.irfftn(half * half, (n,) if len(axes) == 1 else (3, n)[::-1], axes)
        return ph.view_as_real(half), back, ph.fft.ifftn(half * 1j, axes=axes).abs()

    assert gradcheck(function, [x])
    assert gradgradcheck(lambda x: function(x)[1], [x])


@pytest.mark.parametrize("n", [3, 7, 8])
def test_gradients_through_zeros_after_the_operand_and_through_cuts(n: int) -> None:
    x = ph.tensor(signal(2, 5, complex_numbers=False), device="numpy", requires_grad=True)

    def function(x: Any) -> Any:
        spectra = ph.fft.rfft(x, n), ph.fft.ifft2(x * 1j, (3, n)), ph.fft.fft(x * x, n)
        return [ph.view_as_real(z) for z in spectra]

    assert gradcheck(function, [x])
    assert gradgradcheck(lambda x: function(x)[2], [x])


def test_captured_steps_transform(device: ph.Device) -> None:
    step = ph.jit(lambda x: ph.fft.irfft(ph.fft.rfft(x) * 2))
    x = ph.tensor(signal(8, complex_numbers=False).astype(np.float32), device=device)
    for _ in range(3):
        np.testing.assert_allclose(step(x).numpy(), 2 * x.numpy(), rtol=1e-5, atol=1e-6)


def test_vmap_transforms() -> None:
    x = signal(3, 4, 6)
    got = ph.vmap(lambda z: ph.fft.fft(z, dim=0))(ph.tensor(x, device="numpy"))
    np.testing.assert_allclose(got.numpy(), np.fft.fft(x, axis=1), rtol=1e-12)


def test_what_cannot_be_transformed_is_refused() -> None:
    x = ph.tensor(signal(3, 4), device="numpy")
    with pytest.raises(UnsupportedDTypeError, match=r"\[rfft\] got complex128; expected real numbers"):
        ph.fft.rfft(x)
    with pytest.raises(UnsupportedDTypeError, match=r"\[fft\] got float16; expected float32"):
        ph.fft.fft(x.real.half())
    with pytest.raises(ShapeError, match="different ones"):
        ph.fft.fft2(x, axes=(1, -1))
    with pytest.raises(ShapeError, match="1 or more"):
        ph.fft.fft(x, 0)
    with pytest.raises(ShapeError, match="norm 'half'"):
        ph.fft.fft(x, norm="half")


@pytest.mark.parametrize(
    "options",
    [
        {"n_fft": 16, "hop_length": 5, "win_length": 11},
        {"n_fft": 15, "center": False, "normalized": True},
        {"n_fft": 16, "onesided": False, "pad_mode": "constant"},
        {"n_fft": 8, "pad_mode": "circular"},
        {"n_fft": 8, "pad_mode": "replicate", "hop_length": 8},
    ],
    ids=str,
)
def test_short_time_transforms_are_pytorchs(options: dict[str, Any], device: ph.Device) -> None:
    x = signal(2, 50, complex_numbers=False).astype(np.float32)
    size = options.get("win_length", options["n_fft"])
    window = np.linspace(0.5, 1.5, size, dtype=np.float32)
    got = ph.tensor(x, device=device).stft(window=ph.tensor(window, device=device), return_complex=True, **options)
    expected = torch.stft(torch.tensor(x), window=torch.tensor(window), return_complex=True, **options)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
    options = {k: v for k, v in options.items() if k != "pad_mode"}
    if (
        options.get("hop_length", 1) > size // 2
    ):  # a window of the signal's end is needed for signals that PyTorch accepts
        options["length"] = 48
    back = got.istft(window=ph.tensor(window, device=device), **options)
    theirs = torch.istft(expected, window=torch.tensor(window), **options)
    np.testing.assert_allclose(back.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
