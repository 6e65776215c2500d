"""Small models for forecasts, and whole training steps on a device that predicts times."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from polyhal import amp, jit, optim
from polyhal.forecast.cluster import parse_cluster
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.recipes import ModelRecipe, gpt_recipe, resnet_recipe
from polyhal.models import BasicBlock, GPTConfig, ResNet
from polyhal.nn.utils import clip_grad_norm_


def small_gpt(layers: int = 8, width: int = 256, **settings: Any) -> ModelRecipe:
    """Return a GPT whose steps are captured in a fraction of a second."""
    shape: dict[str, Any] = {"vocab_size": 512, "block_size": 128, "n_head": 4, **settings}
    return gpt_recipe("small", GPTConfig(n_layer=layers, n_embd=width, **shape))


def small_resnet() -> ModelRecipe:
    """Return a network for images with one block in each of two stages."""
    options: dict[str, Any] = {"num_classes": 1000, "width": 32}
    return resnet_recipe("small", lambda device: ResNet(BasicBlock, (1, 1), device=device, **options))


def forecaster(recipe: ModelRecipe, devices: str = "8xh200", link: str = "", dtype: str = "bfloat16") -> Forecaster:
    """Return a forecaster for some devices."""
    return Forecaster(recipe, parse_cluster(devices, link), dtype)


def whole_step(recipe: ModelRecipe, profile: str, samples: int, dtype: str) -> tuple[float, int]:
    """Return seconds and bytes of a captured training step with all layers, from the simulated device itself."""
    device = parse_cluster(f"1x{profile}").open()
    backend: Any = device.backend
    model = recipe.build(recipe.layers, device)
    parameters = list(model.parameters())
    optimizer = optim.AdamW(parameters, lr=1e-3)
    x, y = recipe.batch(samples, device)

    @jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with nullcontext() if dtype == "float32" else amp.autocast(dtype):
            loss = recipe.loss(model, x, y)
        loss.backward()
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    for _ in range(4):
        step(x, y)
    device.synchronize()
    begin = backend.virtual_time
    step(x, y)
    device.synchronize()
    return (backend.virtual_time - begin) * 1e-9, step.memory_report(x, y).devices[0].step
