"""Keras 3: training steps of its layers, by family, each layer on an input of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import polyhal.torch
from tests.torch.libraries.cases import CASES, Case, Loss, Program, adamw, floats
from tests.torch.libraries.keras_device import keras, keras_device, numbers, set_weights

layers = keras.layers
_IMAGES = 2, 8, 8, 4
_SEQUENCES = 3, 6, 5
_VOLUMES = 2, 5, 5, 5, 3
_ROWS = 6, 8


@dataclass
class _Family:
    """Layers with the shapes of their arguments."""

    make: Callable[[], list[tuple[Any, list[tuple[int, ...]]]]]
    has_integers: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    """Keywords of each call."""


class _Each(torch.nn.Module):
    """Calls each layer of a family with arguments of its own."""

    def __init__(self, family: _Family, dtype: torch.dtype) -> None:
        super().__init__()
        made = family.make()
        self.layers = torch.nn.ModuleList(layer for layer, _ in made)
        self.options = family.options
        self.arguments: list[list[torch.Tensor]] = []
        for seed, (_, shapes) in enumerate(made):
            arrays = [numbers(*shape, seed=seed + 10 * i) for i, shape in enumerate(shapes)]
            if family.has_integers:
                arrays = [(abs(a) * 3).astype(np.int32) % 5 for a in arrays]
            given = [keras.ops.convert_to_tensor(a) for a in arrays]
            self.arguments.append([x.to(dtype) if x.is_floating_point() else x for x in given])

    def forward(self) -> list[torch.Tensor]:
        """Return the results of all layers."""
        results: list[torch.Tensor] = []
        for layer, given in zip(self.layers, self.arguments, strict=True):
            out = layer(given[0] if len(given) == 1 else given, **self.options)
            results += out if isinstance(out, list | tuple) else [out]
        return results


def _layers_case(name: str, family: _Family) -> None:
    """Declare four training steps of all layers of a family."""

    def build(device: str, dtype: torch.dtype, mode: str) -> Program:
        keras.utils.clear_session()  # names of variables are numbered
        with keras_device(device):
            keras.config.set_dtype_policy("float64" if dtype is torch.float64 else "float32")
            model = _Each(family, dtype)
            model()  # layers make their variables at the first call
            for layer in model.layers:
                set_weights(layer.weights)
        forward = torch.compile(model) if mode == "compiled" else model
        parameters = [p for p in model.parameters() if p.requires_grad]
        update, loss_of = adamw(parameters) if parameters else None, Loss()

        def step() -> list[torch.Tensor]:
            outputs = forward()
            values = list(floats(outputs))
            if update is not None:
                update.zero_grad()
                loss_of(outputs, values).backward()
                update.step()
            return [x.detach() for x in values]

        recording = polyhal.torch.jit(step) if mode == "recorded" else None

        def run() -> list[torch.Tensor]:
            with keras_device(device):
                return (recording or step)()

        return Program(run, model, recording)

    CASES.append(Case("keras", f"layers: {name}", build))


def _merging() -> list[Any]:
    kinds = layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum
    return [*(kind() for kind in kinds), layers.Dot(1), layers.Concatenate()]


_TRAINS = {"training": True}
for _name, _family in {
    "dense": _Family(
        lambda: [
            (layers.Dense(5, activation="gelu"), [_ROWS]),
            (layers.EinsumDense("abc,cd->abd", output_shape=(None, 4), bias_axes="d"), [_SEQUENCES]),
            (layers.PReLU(), [_ROWS]),
            (layers.TimeDistributed(layers.Dense(3)), [_SEQUENCES]),
        ]
    ),
    "embeddings": _Family(lambda: [(layers.Embedding(5, 4), [(3, 6)])], has_integers=True),
    "convolutions": _Family(
        lambda: [
            (layers.Conv1D(4, 3, padding="causal", dilation_rate=2), [_SEQUENCES]),
            (layers.Conv2D(4, 3, strides=2, padding="same"), [_IMAGES]),
            (layers.Conv2D(4, 3, groups=2, activation="relu"), [_IMAGES]),
            (layers.Conv3D(3, 2), [_VOLUMES]),
            (layers.Conv2DTranspose(3, 3, strides=2, padding="same"), [_IMAGES]),
            (layers.Conv1DTranspose(3, 3), [_SEQUENCES]),
            (layers.DepthwiseConv2D(3, depth_multiplier=2), [_IMAGES]),
            (layers.SeparableConv1D(4, 3), [_SEQUENCES]),
        ]
    ),
    "normalization": _Family(
        lambda: [
            (layers.BatchNormalization(), [_IMAGES]),
            (layers.LayerNormalization(), [_SEQUENCES]),
            (layers.GroupNormalization(2), [_IMAGES]),
            (layers.RMSNormalization(), [_SEQUENCES]),
            (layers.SpectralNormalization(layers.Dense(4)), [_ROWS]),
        ],
        options=_TRAINS,
    ),
    "recurrent": _Family(
        lambda: [
            (layers.SimpleRNN(4), [_SEQUENCES]),
            (layers.LSTM(4, return_sequences=True, return_state=True), [_SEQUENCES]),
            (layers.GRU(4, go_backwards=True), [_SEQUENCES]),
            (layers.GRU(4, reset_after=False, unroll=True), [_SEQUENCES]),
            (layers.Bidirectional(layers.LSTM(3)), [_SEQUENCES]),
            (layers.ConvLSTM1D(3, 2), [(2, 3, 6, 2)]),
        ]
    ),
    "attention": _Family(
        lambda: [
            (layers.Attention(use_scale=True), [_SEQUENCES, _SEQUENCES]),
            (layers.AdditiveAttention(), [_SEQUENCES, _SEQUENCES]),
        ]
    ),
    "pooling, resizing, activations": _Family(
        lambda: [
            (keras.Sequential([layers.Conv2D(3, 1), pool]), [_IMAGES])
            for pool in (
                layers.MaxPooling2D(),
                layers.AveragePooling2D(3, strides=2, padding="same"),
                layers.GlobalMaxPooling2D(),
                layers.AdaptiveAveragePooling2D(3),
                layers.UpSampling2D(2, interpolation="bilinear"),
                layers.Resizing(5, 7, interpolation="bicubic"),
                layers.ZeroPadding2D((1, 2)),
                layers.Cropping2D(1),
                layers.Permute((3, 1, 2)),
                layers.Flatten(),
                layers.UnitNormalization(),
                layers.Softmax(),
                layers.LeakyReLU(),
                layers.ELU(),
            )
        ]
    ),
    "merging": _Family(
        lambda: [
            (keras.Sequential([layers.Lambda(lambda x: x), layers.Dense(2)]), [_ROWS]),
            *((merge, [_ROWS, _ROWS]) for merge in _merging()),
        ]
    ),
}.items():
    _layers_case(_name, _family)
