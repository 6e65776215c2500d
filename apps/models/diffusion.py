"""Denoising diffusion: adds noise to data, and removes it step by step with a model that predicts the noise.

Source: Ho et al., "Denoising diffusion probabilistic models", arXiv:2006.11239.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

import polyhal as ph
from polyhal import Device, Generator, Tensor, no_grad, randint, randn
from polyhal.hal import dtypes
from polyhal.hal.errors import message
from polyhal.nn import Module
from polyhal.nn import functional as F

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""Function from noisy data (N, ...) and time steps (N,) to the noise in the data."""


class DDPM(Module):
    """The noise levels of `steps` time steps, with the training loss and sampling.

    The "linear" schedule has variances `beta` from `beta_start` to `beta_end`, for data in [-1, 1]; "cosine" is the schedule
    of Nichol and Dhariwal, arXiv:2102.09672. Time steps count from 0, the least noise. Raises ValueError.
    """

    signal: Tensor
    noise: Tensor
    _rescale: Tensor
    _removed: Tensor
    _deviation: Tensor

    def __init__(
        self,
        steps: int = 1000,
        schedule: Literal["linear", "cosine"] = "linear",
        beta_start: float = 1e-4,
        beta_end: float = 0.02,
        device: Device | str | None = None,
    ) -> None:
        super().__init__()
        if steps < 1 or schedule not in ("linear", "cosine"):
            raise ValueError(message("DDPM", f"{steps} steps, schedule {schedule!r}", expected="linear or cosine"))
        self.steps = steps
        betas = np.linspace(beta_start, beta_end, steps) if schedule == "linear" else _cosine_betas(steps)
        level = np.cumprod(1 - betas)
        before = np.concatenate([[1.0], level[:-1]])
        deviation = np.sqrt(betas * (1 - before) / (1 - level))
        tables = {
            "signal": np.sqrt(level),
            "noise": np.sqrt(1 - level),
            "_rescale": 1 / np.sqrt(1 - betas),
            "_removed": betas / np.sqrt(1 - level),
            "_deviation": deviation,
        }
        for name, values in tables.items():
            self.register_buffer(name, Tensor(values, dtype=dtypes.float32, device=device), persistent=False)

    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return data (N, ...) at time steps (N,): `signal[t] * x + noise[t] * noise`."""
        return _per_sample(self.signal, t, x) * x + _per_sample(self.noise, t, x) * noise

    def loss(self, model: Denoiser, x: Tensor, t: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """Return the mean squared error of the noise that `model` predicts in data (N, ...), at random times."""
        t = randint(0, self.steps, (x.shape[0],), device=x.device) if t is None else t
        noise = randn(x.shape, dtype=x.dtype, device=x.device) if noise is None else noise
        return F.mse_loss(model(self.add_noise(x, noise, t), t), noise)

    def denoise(self, model: Denoiser, x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """Return data one time step before `t` (N,); `noise` is standard normal, and not added at step 0."""
        mean = _per_sample(self._rescale, t, x) * (x - _per_sample(self._removed, t, x) * model(x, t))
        return mean + _per_sample(self._deviation, t, x) * noise

    def sample(self, model: Denoiser, shape: Sequence[int], generator: Generator | None = None) -> Tensor:
        """Make data of a shape from noise, in `steps` evaluations of `model`, without gradients.

        A model with dropout or batch norm should be in evaluation mode.
        """
        shape = tuple(shape)
        device = self.signal.device
        with no_grad():
            x = randn(shape, generator=generator, device=device)
            for step in reversed(range(self.steps)):
                t = ph.full((shape[0],), step, dtypes.int32, device=device)
                x = self.denoise(model, x, t, randn(shape, generator=generator, device=device))
        return x


def _cosine_betas(steps: int) -> np.ndarray:
    """Return the variances of the cosine schedule, at most 0.999."""
    levels = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2) ** 2
    betas: np.ndarray = np.minimum(1 - levels[1:] / levels[:-1], 0.999)
    return betas


def _per_sample(table: Tensor, t: Tensor, x: Tensor) -> Tensor:
    """Return the entries of a table at (N,) time steps, shaped to multiply `x` (N, ...)."""
    return ph.reshape(table[t].to(x.dtype), (t.shape[0],) + (1,) * (x.ndim - 1))
