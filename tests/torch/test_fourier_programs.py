"""Programs with Fourier transforms stay on the device: eager, recorded and compiled, with gradients of two orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparison import agree

import polyhal.torch


class SpectralLayer(torch.nn.Module):
    """A layer of a Fourier neural operator: half a spectrum times complex weights."""

    def __init__(self, frequencies: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        parts = torch.randn(3, frequencies, 2, generator=generator)
        self.parts = torch.nn.Parameter(parts / frequencies)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, norm="ortho")
        weights = torch.view_as_complex(self.parts)
        low = spectrum[..., : weights.shape[-1]] * weights
        return torch.nn.functional.gelu(torch.fft.irfft(low, n=x.shape[-1], norm="ortho"))


def signal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch, torch_device: str) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")


def gradients(layer: SpectralLayer, x: torch.Tensor) -> list[torch.Tensor]:
    """Return a loss and its gradients of first and of second order."""
    loss = layer(x).square().sum()
    (first,) = torch.autograd.grad(loss, [layer.parts], create_graph=True)
    return [loss, first, *torch.autograd.grad(first.square().sum(), [layer.parts])]


def expected(x: torch.Tensor) -> list[torch.Tensor]:
    return [g.float() for g in gradients(SpectralLayer(4).double(), x.double())]


def test_a_spectral_layer_has_the_gradients_of_the_cpu(torch_device: str) -> None:
    x = signal(2, 3, 12)
    found = gradients(SpectralLayer(4).to(torch_device), x.to(torch_device))
    for ours, theirs in zip(found, expected(x), strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_a_recorded_step_trains_a_spectral_layer(torch_device: str) -> None:
    layer = SpectralLayer(4).to(torch_device)

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = layer(x).square().sum()
        (gradient,) = torch.autograd.grad(loss, [layer.parts])
        return loss, gradient

    recorded = polyhal.torch.jit(step, strict=True)
    for k in range(3):
        x = signal(2, 3, 12) + k
        for ours, theirs in zip(recorded(x.to(torch_device)), expected(x), strict=False):
            torch.testing.assert_close(ours.detach().cpu(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch itself
def test_a_compiled_spectral_layer_is_the_eager_one(torch_device: str) -> None:
    torch._dynamo.reset()
    layer, x = SpectralLayer(5).to(torch_device), signal(2, 3, 9)
    compiled: Any = torch.compile(layer)
    theirs = SpectralLayer(5).double()(x.double()).float()
    torch.testing.assert_close(compiled(x.to(torch_device)).detach().cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_planes_and_short_time_spectra_stay_on_the_device(torch_device: str) -> None:
    def function(x: torch.Tensor) -> Any:
        window = torch.hann_window(8, device=x.device)
        spectra = torch.stft(x[0], 8, window=window, return_complex=True)
        plane = torch.fft.fft2(x)
        back = torch.fft.ifftn(plane, norm="forward").real
        return spectra.abs(), plane.abs(), back, torch.fft.hfft(plane, n=7), torch.fft.irfft2(plane)

    agree(function, signal(3, 4, 15), device=torch_device)
    assert not polyhal.torch.report().on_cpu
