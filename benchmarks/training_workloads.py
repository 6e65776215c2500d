"""Training steps of the same models on the same data in Polyhal and PyTorch: forward, backward, optimizer, and a wait.

Steps of Polyhal run eagerly or captured; PyTorch's run in the ways of `frameworks.pytorch_ways`. Language models train
with AdamW and gradient clipping, as in `polyhal train`, classifiers with Adam; PyTorch's optimizers are fused on CUDA.
Benchmarks of several devices prepare their steps with `captured_step`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import polyhal
from benchmarks.frameworks.cuda_graph import as_cuda_graph
from benchmarks.frameworks.pytorch_ways import COMPILED, GRAPHS, PEER
from polyhal import Device, amp, jit, optim
from polyhal.hal import dtypes
from polyhal.models import CNN, GPT, MLP, GPTConfig, resnet18, resnet50
from polyhal.nn import Module, Parameter
from polyhal.nn import functional as F
from polyhal.nn.utils import clip_grad_norm_

Step = Callable[[], object]
"""Takes one training step and returns the loss, on the device."""
PRECISIONS = ("highest", "high", "medium", "bfloat16")
"""Precisions of float32 matrix products; bfloat16 is autocast. PyTorch computes `medium` in TF32, `high` in float32."""
_CLASSES = 10
_IMAGES = 4
"""Dimensions of a batch of images."""
_RUNS_BEFORE = 4
"""A captured step is recorded twice before it is only replayed."""


@dataclass(frozen=True, slots=True)
class TrainingWorkload:
    """A model and a batch. Classifiers have no `config`."""

    name: str
    what: str
    inputs: tuple[int, ...]
    config: GPTConfig | None = None

    @property
    def items(self) -> int:
        """Tokens or images per step."""
        return self.inputs[0] * (self.inputs[1] if self.config else 1)

    @property
    def tokens(self) -> bool:
        """True if items are tokens."""
        return self.config is not None

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets."""
        rng = np.random.default_rng(0)
        if self.config is None:
            return rng.standard_normal(self.inputs).astype(np.float32), rng.integers(0, _CLASSES, self.inputs[0])
        tokens = rng.integers(0, self.config.vocab_size, (self.inputs[0], self.inputs[1] + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()

    def polyhal_step(self, device: Device, precision: str, *, captured: bool) -> Step:
        """Prepare a training step of Polyhal."""
        polyhal.manual_seed(0)
        x, y = (polyhal.tensor(a, device=device) for a in self.batch())
        if self.config is not None:
            gpt = GPT(self.config, device=device)
            parameters, optimizer = list(gpt.parameters()), optim.AdamW(gpt.parameters(), lr=1e-3)
            loss_of = lambda: gpt.loss(x, y)  # noqa: E731
        else:
            model = _classifier(self.name, device)
            parameters, optimizer = [], optim.Adam(model.parameters())
            loss_of = lambda: F.cross_entropy(model(x), y)  # noqa: E731

        def step() -> polyhal.Tensor:
            optimizer.zero_grad()
            with autocasting(precision):
                loss = loss_of()
            loss.backward()
            if parameters:
                clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            return loss

        run = jit(step) if captured else step
        matmul_precision: Any = "highest" if precision == "bfloat16" else precision

        def wait() -> polyhal.Tensor:
            # Set only if another step changed it: a program sets it once, and the cost would distort small steps.
            if polyhal.get_float32_matmul_precision() != matmul_precision:
                polyhal.set_float32_matmul_precision(matmul_precision)
            loss = run()
            device.synchronize()
            return loss

        return wait

    def torch_step(self, place: str, precision: str, way: str = PEER) -> Step:
        """Prepare a training step of PyTorch on its device `place`, in one of PyTorch's ways.

        On CUDA, optimizers are fused, and images in bfloat16 have their channels last unless the compiler chooses the layout.
        """
        import torch

        from benchmarks import torch_models

        torch.manual_seed(0)
        x, y = (torch.tensor(a, device=place) for a in self.batch())
        half, compute, parameters = precision == "bfloat16", torch.nn.functional, []
        options = {"fused": place == "cuda", "capturable": way in GRAPHS}
        if self.config is not None:
            gpt = torch_models.TorchGPT(self.config).to(place)
            parameters, optimizer = list(gpt.parameters()), torch.optim.AdamW(gpt.parameters(), lr=1e-3, **options)
            forward = torch.compile(gpt.loss) if way in COMPILED else gpt.loss
            loss_of = lambda: forward(x, y)  # noqa: E731
        else:
            model = torch_models.classifier(self.name).to(place)
            if half and place == "cuda" and x.ndim == _IMAGES and way not in COMPILED:
                model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
            optimizer = torch.optim.Adam(model.parameters(), **options)
            classify = torch.compile(model) if way in COMPILED else model
            loss_of = lambda: compute.cross_entropy(classify(x), y)  # noqa: E731

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast(place, dtype=torch.bfloat16, enabled=half):
                loss = loss_of()
            loss.backward()
            if parameters:
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            return loss

        tf32 = precision == "medium"

        def prepare() -> None:
            if torch.backends.cudnn.allow_tf32 != tf32:
                torch.backends.cudnn.allow_tf32 = tf32
                torch.set_float32_matmul_precision("high" if tf32 else "highest")

        prepare()
        run = as_cuda_graph(step) if way in GRAPHS else step

        def wait() -> object:
            prepare()
            loss = run()
            if place == "cuda":
                torch.cuda.synchronize()
            return loss

        return wait


def _gpt(name: str, what: str, batch: int, **config: Any) -> TrainingWorkload:
    return TrainingWorkload(name, what, (batch, config["block_size"]), GPTConfig(**config))


WORKLOADS = {
    w.name: w
    for w in (
        TrainingWorkload("mlp", "perceptron 784-512-10, 128 images", (128, 784)),
        TrainingWorkload("cnn", "two convolutions with batch norm, 128 images of 8x8", (128, 1, 8, 8)),
        TrainingWorkload("resnet", "ResNet-18, 2 images of 224x224", (2, 3, 224, 224)),
        TrainingWorkload("resnet-224", "ResNet-18, 64 images of 224x224", (64, 3, 224, 224)),
        TrainingWorkload("resnet-50", "ResNet-50, 64 images of 224x224", (64, 3, 224, 224)),
        TrainingWorkload("resnet-50-small", "ResNet-50, 2 images of 224x224", (2, 3, 224, 224)),
        _gpt("gpt", "GPT, 0.8 million parameters", 16, vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128),
        _gpt("gpt-10m", "GPT, 10.8 million parameters", 64, vocab_size=65, block_size=256, n_layer=6, n_head=6, n_embd=384),
        _gpt("gpt-2", "GPT-2, 124 million parameters", 8, vocab_size=50257, block_size=1024, n_layer=12, n_head=12, n_embd=768),
    )
}  # fmt: skip
GPTS = tuple(name for name, workload in WORKLOADS.items() if workload.config is not None)


def autocasting(precision: str) -> contextlib.AbstractContextManager[object]:
    """Autocast to bfloat16 if that is the precision."""
    return amp.autocast(dtype=dtypes.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()


def captured_step(
    parameters: Iterable[Parameter], forward_backward: Callable[[], polyhal.Tensor], devices: Sequence[Device]
) -> Step:
    """Prepare a captured training step on several devices, for which it waits, until it is only replayed.

    `forward_backward` computes the loss and the gradients of the parameters, which AdamW then clips and applies.
    """
    parameters = list(parameters)
    optimizer = optim.AdamW(parameters, lr=1e-3)

    @jit
    def step() -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = forward_backward()
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    def wait() -> polyhal.Tensor:
        loss = step()
        for device in devices:
            device.synchronize()
        return loss

    for _ in range(_RUNS_BEFORE):
        wait()
    return wait


def _classifier(name: str, device: Device) -> Module:
    if name == "mlp":
        return MLP((784, 512, _CLASSES), device=device)
    if name == "cnn":
        return CNN(device=device)
    return (resnet50 if name.startswith("resnet-50") else resnet18)(_CLASSES, device=device)
