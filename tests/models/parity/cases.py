"""Models in full size, each with its counterpart in PyTorch and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import polyhal
from benchmarks.torch_models import TorchGPT
from polyhal.models import (
    GPT,
    BasicBlock,
    Bert,
    BertConfig,
    Bottleneck,
    Decoder,
    DecoderConfig,
    GPTConfig,
    ResNet,
    UNet,
)
from polyhal.nn import Module
from tests.models.parity.torch_bert import TorchBert
from tests.models.parity.torch_llama import TorchLlama
from tests.models.parity.torch_resnet import TorchResNet
from tests.models.parity.torch_unet import TorchUNet


@dataclass(frozen=True)
class Case:
    """A model of Polyhal, made on a device, and its reference."""

    make: Callable[[polyhal.Device], Module]
    make_reference: Callable[[], torch.nn.Module]
    make_inputs: Callable[[np.random.Generator], list[np.ndarray]]
    """Draws the arguments: images and features in float32, token ids and masks as integers."""


_BERT = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
_LLAMA = DecoderConfig(
    vocab_size=32000,
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=12,
    num_attention_heads=12,
    num_key_value_heads=4,
    max_position_embeddings=1024,
)
_WIDTHS, _ATTENTION = (128, 256, 256, 256), (False, True, False, False)


def _images(*shape: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32)]


def _tokens(vocabulary: int, *shape: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.integers(0, vocabulary, shape)]


def _sentences(rng: np.random.Generator) -> list[np.ndarray]:
    mask = np.arange(24)[None, :] < np.array([[24], [17]])
    return [rng.integers(1, _BERT.vocab_size, (2, 24)) * mask, mask.astype(np.int64), rng.integers(0, 2, (2, 24))]


CASES = {
    "ResNet-18, 4 images of 64 x 64": Case(
        lambda device: ResNet(BasicBlock, (2, 2, 2, 2), device=device),
        lambda: TorchResNet((2, 2, 2, 2)),
        _images(4, 3, 64, 64),
    ),
    "ResNet-18, 2 images of 224 x 224": Case(
        lambda device: ResNet(BasicBlock, (2, 2, 2, 2), device=device),
        lambda: TorchResNet((2, 2, 2, 2)),
        _images(2, 3, 224, 224),
    ),
    "ResNet-50, 4 images of 128 x 128": Case(
        lambda device: ResNet(Bottleneck, (3, 4, 6, 3), device=device),
        lambda: TorchResNet((3, 4, 6, 3), bottleneck=True),
        _images(4, 3, 128, 128),
    ),
    "BERT-base, 2 x 24 tokens": Case(lambda device: Bert(_BERT, device), lambda: TorchBert(_BERT), _sentences),
    "GPT-2, 2 x 24 tokens": Case(
        lambda device: GPT(GPTConfig(), device), lambda: TorchGPT(GPTConfig()), _tokens(50257, 2, 24)
    ),
    "Llama, 134 million, 2 x 24 tokens": Case(
        lambda device: Decoder(_LLAMA, device), lambda: TorchLlama(_LLAMA), _tokens(32000, 2, 24)
    ),
    "U-Net of DDPM, 2 images of 32 x 32": Case(
        lambda device: UNet(3, None, _WIDTHS, _ATTENTION, device=device),
        lambda: TorchUNet(3, _WIDTHS, _ATTENTION, 2, 32),
        lambda rng: [rng.standard_normal((2, 3, 32, 32)).astype(np.float32), np.array([20, 700])],
    ),
}
