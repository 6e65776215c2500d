"""Small models of every kind train on the device as on the CPU: the same losses, parameters and running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import polyhal.torch

Losses = Callable[[Any, dict[str, torch.Tensor]], list[torch.Tensor]]
"""Function from the model and a batch to the losses of one step, which are differentiated separately."""


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, groups=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(3))
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.norms[2](self.short(x)))


def _resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Residual(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU())
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, padding=1, dilation=1), nn.SiLU())
        self.up = nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)
        self.out = nn.Conv2d(12, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.down(F.pad(x, (1, 1, 1, 1), mode="reflect"))
        deep = self.inner(wide)
        smooth = F.interpolate(deep, size=wide.shape[2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([wide, self.up(deep), smooth], 1))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.lstm, self.gru = nn.LSTM(6, 5, 2, batch_first=True), nn.GRU(5, 4, bidirectional=True, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.lstm(self.table(tokens))[0])[0]).transpose(1, 2)


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(4, 6, 4, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.ConvTranspose2d(6, 1, 4, 2, 1),
            nn.Tanh(),
        )
        scores = nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 1, 4))
        self.critic = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), scores, nn.Flatten(0))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 6), nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 12))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places
        return self.head(self.encoder(tokens)[:, 0])


def _classified(model: Any, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [F.cross_entropy(model(batch["x"]), batch["y"])]


def _adversarial(model: Any, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    made = model.generator(batch["noise"])
    scores = [model.critic(batch["x"]), model.critic(made.detach())]
    of_critic = sum(F.binary_cross_entropy_with_logits(s, torch.full_like(s, 1.0 - i)) for i, s in enumerate(scores))
    fooled = model.critic(made)
    return [torch.as_tensor(of_critic), F.binary_cross_entropy_with_logits(fooled, torch.ones_like(fooled))]


def _evidence(model: Any, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    mean, log_var = model.encoder(batch["x"]).chunk(2, -1)
    made = model.decoder(mean + batch["noise"] * (0.5 * log_var).exp())
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()
    return [F.binary_cross_entropy(made.sigmoid(), batch["x"], reduction="sum") + divergence]


CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, torch.Tensor], Losses]] = {
    "resnet": (_resnet, {"x": torch.randn(4, 3, 12, 12), "y": torch.tensor([0, 1, 2, 4])}, _classified),
    "unet": (UNet, {"x": torch.randn(2, 1, 6, 6), "y": torch.randint(3, (2, 8, 8))}, _classified),
    "lstm": (Words, {"x": torch.randint(11, (3, 5)), "y": torch.randint(11, (3, 5))}, _classified),
    "dcgan": (GAN, {"x": torch.randn(3, 1, 8, 8), "noise": torch.randn(3, 4, 1, 1)}, _adversarial),
    "vae": (VAE, {"x": torch.rand(4, 12), "noise": torch.randn(4, 3)}, _evidence),
    "vit": (ViT, {"x": torch.randn(3, 3, 8, 8), "y": torch.tensor([0, 3, 4])}, _classified),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_trains_as_on_the_cpu(torch_device: str, name: str) -> None:
    made, batch, losses_of = CASES[name]
    torch.manual_seed(1)
    model = made()
    runs = []
    for device in ("cpu", torch_device):
        mine = copy.deepcopy(model).to(device)
        inputs = {k: v.to(device) for k, v in batch.items()}
        optimizer = torch.optim.SGD(mine.parameters(), lr=0.02, momentum=0.9)
        seen = []
        for _ in range(3):
            losses = losses_of(mine, inputs)
            optimizer.zero_grad()
            for loss in losses:
                loss.backward()
            optimizer.step()
            seen += [loss.item() for loss in losses]
        runs.append((seen, mine.state_dict()))
    (expected, state), (found, my_state) = runs
    assert found == pytest.approx(expected, rel=1e-5)
    for key, value in state.items():
        torch.testing.assert_close(
            my_state[key].cpu(), value, rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}"
        )
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_channels_last_is_kept_through_a_network(torch_device: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.UpsamplingBilinear2d(size=6)).to(
        torch_device
    )
    model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8, device=torch_device).to(memory_format=torch.channels_last).requires_grad_()
    out = model(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=torch.channels_last)
