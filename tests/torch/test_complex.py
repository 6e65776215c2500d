"""Complex numbers on PyTorch's device: interleaved in memory, pairs of tensors in ops."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import agree

import polyhal.torch


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def _magnitudes(*results: torch.Tensor) -> list[Any]:
    """Complex results, and real numbers that have gradients."""
    return [r for z in results for r in (z.detach(), z.abs())]


CASES: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda z: _magnitudes(z + 1j, z * z, z / (z + 2), 2 - z, z**2, -z),
    "functions": lambda z: _magnitudes(z.exp(), z.sqrt(), z.tanh(), (z + 2).log(), z.reciprocal()),
    "parts": lambda z: (z.real, z.imag * 2, z.abs(), z.angle(), torch.view_as_real(z)),
    "conjugates": lambda z: _magnitudes(z.conj() * 2, z.mH @ z, z.conj().resolve_conj(), z.t().conj().contiguous()),
    "negatives": lambda z: (z.conj().imag.clone(), z.conj().imag + 1),
    "products": lambda z: _magnitudes(z @ z.mT, z.sum(0), z.mean(), z.flatten().vdot(z.flatten())),
    "made of parts": lambda z: _magnitudes(
        torch.complex(z.real, z.imag), torch.view_as_complex(torch.view_as_real(z) * 2)
    ),
    "pieces": lambda z: _magnitudes(z[:, 1:], z[[1, 0]], torch.cat([z, z]), z.flip(0), z.reshape(-1)),
    "transforms": lambda z: _magnitudes(torch.fft.fft(z), torch.fft.ifft2(z, norm="ortho"), torch.fft.fftshift(z)),
    "transforms of real numbers": lambda z: (
        torch.fft.irfft(torch.fft.rfft(z.real, norm="ortho"), 5),
        torch.fft.hfft(z),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_the_cpus(torch_device: str, name: str) -> None:
    agree(CASES[name], _numbers(3, 4), device=torch_device)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_changes_in_place(torch_device: str) -> None:
    def change(z: torch.Tensor) -> Any:
        z = z.detach().clone()
        z[0] = 2j
        z.real[1].zero_()
        z.conj().imag[:, 0].fill_(3)
        z.mul_(1j).add_(z.conj())
        real = torch.zeros(4, device=z.device).copy_(z[2].real)
        return z, real, z.to(torch.complex128), torch.empty(2, 2, dtype=z.dtype, device=z.device).zero_()

    agree(change, _numbers(3, 4), device=torch_device)


def test_draws(torch_device: str) -> None:
    torch.manual_seed(0)
    z = torch.randn(4000, dtype=torch.complex64, device=torch_device)
    for part in (z.real.cpu(), z.imag.cpu()):  # five standard errors of a mean and of a variance
        assert part.mean().item() == pytest.approx(0, abs=5 * (0.5 / 4000) ** 0.5)
        assert part.var().item() == pytest.approx(0.5, rel=5 * (2 / 4000) ** 0.5)
    assert torch.rand(9, dtype=torch.complex128, device=torch_device).imag.max() < 1
    assert not polyhal.torch.report().on_cpu


def test_a_recorded_step_may_compute_with_complex_numbers_inside(torch_device: str) -> None:
    def power(x: torch.Tensor) -> torch.Tensor:
        return (torch.fft.rfft(x) * 2j).abs().square().sum(-1)

    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    recorded = polyhal.torch.jit(power, strict=True)
    for k in range(3):
        torch.testing.assert_close(recorded((x + k).to(torch_device)).cpu(), power(x + k))


STEPS: dict[str, Callable[..., Any]] = {
    "computed": lambda z: (z * 2, z.abs(), z.conj() + 1, torch.fft.fft(z), torch.linalg.eigvals(z.real[:3, :3])),
    "views": lambda z: (z, z.conj(), z.t(), z[1:, ::2], z.real, z.imag[0], z.conj().imag),
    "written": lambda z: (z.mul_(2j), z.imag.add_(1), z[0].fill_(1j), z * 1),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("layout", ["itself", "transposed", "conjugate", "part"])
def test_a_recorded_step_takes_and_returns_complex_numbers(
    torch_device: str, name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    views = {"itself": lambda z: z, "transposed": torch.t, "conjugate": torch.conj, "part": lambda z: z[:, 1:]}
    view, step = views[layout], polyhal.torch.jit(STEPS[name], strict=True)
    for k in range(4):
        z = _numbers(4, 4).detach() + k
        there = z.to(torch_device)
        for found, expected in zip(step(view(there)), STEPS[name](view(z)), strict=True):
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(there.cpu(), z)
    assert step.graphs


def test_files(torch_device: str) -> None:
    z = _numbers(3, 4).detach()
    file = io.BytesIO()
    torch.save([z.to(torch_device), z.to(torch_device).t()], file)
    file.seek(0)
    loaded, turned = torch.load(file, map_location=torch_device)
    assert loaded.device.type == torch_device
    assert torch.equal(loaded.cpu(), z)
    assert torch.equal(turned.cpu(), z.t())


def test_ops_of_only_real_numbers_run_on_the_cpu(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    agree(lambda z: torch.linalg.matrix_exp(z), _numbers(3, 3).detach(), device=torch_device)
    assert "aten.linalg_matrix_exp.default" in polyhal.torch.report().on_cpu


def test_a_view_of_parts_takes_neighbours(torch_device: str) -> None:
    with pytest.raises(RuntimeError, match="neighbours"):
        torch.view_as_complex(torch.zeros(2, 4, device=torch_device).t())
    with pytest.raises(RuntimeError, match="conjugated"):
        torch.view_as_real(_numbers(2).detach().to(torch_device).conj())


def test_a_compiled_function_makes_complex_tensors_on_the_device(
    torch_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filtered(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        modes = torch.view_as_complex(x.reshape(4, 4, 2))
        kept = torch.zeros(4, 4, dtype=torch.complex64, device=x.device)
        kept[:, :3] = modes[:, :3] * weights
        return torch.view_as_real(kept)

    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    torch._dynamo.reset()
    x, weights = torch.randn(4, 8), torch.randn(3, dtype=torch.complex64)
    compiled = torch.compile(filtered, backend="polyhal")
    found = compiled(x.to(torch_device), weights.to(torch_device))
    torch.testing.assert_close(found.cpu(), filtered(x, weights))
