"""Training steps of ordinary PyTorch programs: on Polyhal's device eagerly, recorded and compiled, and in PyTorch's own ways.

All train the same model from the same weights on the same batch; AdamW is fused everywhere. Models of transformers and
torchvision are their own, with random weights and without dropout, whose masks would differ from device to device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import polyhal
from benchmarks import torch_models
from benchmarks.frameworks.cuda_graph import as_cuda_graph
from benchmarks.frameworks.pytorch_ways import COMPILED as PEERS_COMPILED
from benchmarks.frameworks.pytorch_ways import GRAPHS, PEERS, TRACED, traced
from benchmarks.training_workloads import WORKLOADS, TrainingWorkload
from polyhal import Device

Step = Callable[[], torch.Tensor]
"""Takes one training step, waits for it, and returns the loss."""
EAGER, RECORDED, COMPILED = "eager", "recorded", "compiled"
OWN = "Polyhal's own"
WHO = (EAGER, RECORDED, COMPILED, OWN, *PEERS, TRACED)
_BACKENDS = {COMPILED: "polyhal", TRACED: traced}


def _loss_of_logits(forward: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(forward(x).flatten(0, -2), y)


def _own_loss(forward: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Take the loss that a language model of transformers computes; it shifts the tokens by itself."""
    loss: torch.Tensor = forward(input_ids=x, labels=x).loss
    return loss


@dataclass(frozen=True, slots=True)
class TorchWorkload:
    """A model and a batch; `twin` is the name of the same step in Polyhal's own library."""

    name: str
    what: str
    make: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    vocabulary: int = 0
    """Inputs are tokens below this, or floats if it is 0."""
    classes: int = 10
    twin: str = ""
    rate: float = 1e-3
    """Learning rate: small for deep networks, whose losses after a few steps of 1e-3 depend on how sums are
    rounded."""
    loss: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor] = _loss_of_logits
    """Computes the loss from the model, inputs and targets."""
    package: str = ""
    """Python package that the model comes from, if it is an optional one."""

    @property
    def items(self) -> int:
        """Tokens or images per step."""
        return self.inputs[0] * (self.inputs[1] if self.vocabulary else 1)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets."""
        generator = torch.Generator().manual_seed(0)
        if self.vocabulary:
            tokens = torch.randint(self.vocabulary, (self.inputs[0], self.inputs[1] + 1), generator=generator)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
        return torch.randn(self.inputs, generator=generator), torch.randint(
            self.classes, self.inputs[:1], generator=generator
        )


def _gpt(workload: TrainingWorkload) -> TorchWorkload:
    config = workload.config
    if config is None:
        raise TypeError(f"{workload.name} is no language model")
    name, inputs = workload.name, workload.inputs
    return TorchWorkload(
        name, workload.what, lambda: torch_models.TorchGPT(config), inputs, config.vocab_size, twin=name
    )


def _images(name: str, what: str, inputs: tuple[int, ...], twin: str = "", rate: float = 1e-3) -> TorchWorkload:
    return TorchWorkload(name, what, lambda: torch_models.classifier(name), inputs, twin=twin, rate=rate)


def _bert() -> nn.Module:
    return torch_models.Encoder(1000, 256, 4, 4)


def _transformers_gpt2(**sizes: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    model: nn.Module = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **sizes))
    return model


def _torchvision_resnet50() -> nn.Module:
    from torchvision.models import resnet50

    model: nn.Module = resnet50(num_classes=10)
    return model


_GPT_2_LIBRARY = TorchWorkload(
    "gpt-2-transformers",
    "GPT-2 of transformers, 124 million parameters",
    _transformers_gpt2,
    (8, 1024),
    50257,
    loss=_own_loss,
    package="transformers",
)
_RESNET_50_LIBRARY = TorchWorkload(
    "resnet-50-torchvision",
    "ResNet-50 of torchvision, 64 images of 224x224",
    _torchvision_resnet50,
    (64, 3, 224, 224),
    rate=1e-5,
    package="torchvision",
)


WORKLOADS_BY_SIZE: dict[str, tuple[TorchWorkload, ...]] = {
    "cpu": (
        _images("mlp", "perceptron 784-512-10, 128 images", (128, 784), "mlp"),
        _images("resnet", "ResNet-18, 8 images of 64x64", (8, 3, 64, 64)),
        _gpt(WORKLOADS["gpt"]),
        TorchWorkload("bert", "encoder of 4 layers, width 256, 8 x 128 tokens", _bert, (8, 128), 1000),
    ),
    "gpu": (
        _gpt(WORKLOADS["gpt-2"]),
        _images("resnet-50", "ResNet-50, 64 images of 224x224", (64, 3, 224, 224), "resnet-50", rate=1e-5),
        _GPT_2_LIBRARY,
        _RESNET_50_LIBRARY,
    ),
}


def prepare(workload: TorchWorkload, who: str, device: Device, place: str, precision: str) -> Step:
    """Prepare a step of a competitor. `place` is the device of PyTorch's own competitors, "cpu" or "cuda"."""
    if who == OWN:
        step: Any = WORKLOADS[workload.twin].polyhal_step(device, precision, captured=True)
        return lambda: torch.tensor(step().item())
    if who in PEERS or who == TRACED:
        return torch_step(workload, place, precision, who)
    polyhal.set_default_device(device)
    polyhal.set_float32_matmul_precision("highest" if precision == "bfloat16" else precision)  # type: ignore[arg-type]
    return torch_step(workload, "polyhal", precision, who)


def torch_step(workload: TorchWorkload, place: str, precision: str, who: str) -> Step:
    """Prepare the step of a PyTorch program on one of PyTorch's devices."""
    if place == "polyhal":
        import polyhal.torch
    torch.manual_seed(0)
    model = workload.make().to(place)
    inputs, targets = (x.to(place) for x in workload.batch())
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.rate, fused=True, capturable=who in GRAPHS)
    forward: Any = model
    if who in (COMPILED, TRACED, *PEERS_COMPILED):
        forward = torch.compile(model, backend=_BACKENDS.get(who, "inductor"))
    if place == "cuda":
        torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(place, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = workload.loss(forward, x, y)
        loss.backward()
        if workload.vocabulary:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    run: Any = polyhal.torch.jit(step, strict=True) if who == RECORDED else step
    if who in GRAPHS:
        graph = as_cuda_graph(lambda: step(inputs, targets))
        run = lambda x, y: graph()  # noqa: E731
    wait = (lambda: None) if place == "cpu" else torch.get_device_module(place).synchronize

    def waited() -> torch.Tensor:
        loss = run(inputs, targets)
        wait()
        return loss

    return waited
