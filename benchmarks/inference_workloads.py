"""Inference of the same models on the same data in Polyhal and PyTorch: the weights are 16 bits wide.

Models of Polyhal run eagerly or captured; PyTorch's run in the ways of `frameworks.pytorch_ways`, without gradients. Images of
PyTorch have their channels last unless its compiler chooses the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import polyhal
from benchmarks.frameworks.cuda_graph import as_cuda_graph
from benchmarks.frameworks.pytorch_ways import COMPILED, GRAPHS, PEER
from benchmarks.model_programs import Step
from polyhal import Device, jit
from polyhal.models.bert import Bert, BertConfig
from polyhal.models.resnet import resnet50

PRECISIONS = ("float16", "bfloat16", "float32")
"""Dtypes of weights and activations."""
_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class InferenceWorkload:
    """A model and a batch of token ids, or of images if there is no `config`."""

    name: str
    what: str
    inputs: tuple[int, ...]
    config: BertConfig | None = None
    tokens: bool = False
    """Rates count sequences and images."""

    @property
    def items(self) -> int:
        """Sequences or images per run."""
        return self.inputs[0]

    def batch(self) -> np.ndarray:
        """Return token ids or pixels."""
        rng = np.random.default_rng(0)
        if self.config is not None:
            return rng.integers(0, self.config.vocab_size, self.inputs)
        return rng.standard_normal(self.inputs).astype(np.float32)

    def polyhal_step(self, device: Device, precision: str, *, captured: bool) -> Step:
        """Prepare inference in Polyhal."""
        polyhal.manual_seed(0)
        dtype, x = getattr(polyhal, precision), polyhal.tensor(self.batch(), device=device)
        model: Any = resnet50(_CLASSES, device=device) if self.config is None else Bert(self.config, device=device)
        model = model.to(dtype=dtype).eval()
        if self.config is None:
            x = x.to(dtype=dtype)

        def infer() -> Any:
            with polyhal.no_grad():
                return model(x)

        run = jit(infer) if captured else infer

        def wait() -> Any:
            result = run()
            device.synchronize()
            return result

        return wait

    def torch_step(self, place: str, precision: str, way: str = PEER) -> Step:
        """Prepare inference on PyTorch's device `place`, in one of PyTorch's ways."""
        import torch

        from benchmarks import torch_models

        torch.manual_seed(0)
        dtype, x = getattr(torch, precision), torch.tensor(self.batch(), device=place)
        model = (
            torch_models.classifier("resnet-50", _CLASSES) if self.config is None else torch_models.Bert(self.config)
        )
        model = model.to(place, dtype).eval()
        if self.config is None:
            x = x.to(dtype)
            if place == "cuda" and way not in COMPILED:
                model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
        apply = torch.compile(model) if way in COMPILED else model

        def infer() -> Any:
            with torch.no_grad():
                return apply(x)

        run = as_cuda_graph(infer) if way in GRAPHS else infer

        def wait() -> Any:
            result = run()
            if place == "cuda":
                torch.cuda.synchronize()
            return result

        return wait


def _bert(sequences: int, length: int) -> InferenceWorkload:
    what = f"BERT-base, {sequences} sequence{'s' * (sequences > 1)} of {length}"
    return InferenceWorkload(f"bert-{sequences}x{length}", what, (sequences, length), BertConfig())


WORKLOADS = {
    w.name: w
    for w in (
        _bert(32, 128),
        _bert(8, 512),
        _bert(1, 128),
        InferenceWorkload("resnet-50", "ResNet-50, 64 images of 224x224", (64, 3, 224, 224)),
        InferenceWorkload("resnet-50-1", "ResNet-50, one image of 224x224", (1, 3, 224, 224)),
    )
}
