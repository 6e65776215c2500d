"""Keras 3: its training loop, layers, files and policies on the device that KERAS_TORCH_DEVICE names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.torch.libraries.cases import whole_case
from tests.torch.libraries.keras_device import keras, keras_device, numbers, set_weights

layers = keras.layers
_Run = Callable[[str, str], Any]
_IMAGES = 4, 8, 8, 3
_SEQUENCES = 4, 6, 5


def _fitted(make: Callable[[], Any], x: Any, classes: int = 3) -> _Run:
    """Return a program of `compile`, `fit`, `evaluate` and `predict`."""

    def run(device: str, mode: str) -> Any:
        with keras_device(device):
            model = make()
            model.build(x.shape)
            set_weights(model.weights)
            labels = np.arange(len(x)) % classes
            model.compile(
                keras.optimizers.AdamW(1e-3, epsilon=1e-4),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
                jit_compile=mode == "compiled",
            )
            history = model.fit(x, labels, batch_size=2, epochs=2, shuffle=False, verbose=0).history
            scores = model.evaluate(x, labels, batch_size=2, verbose=0)
            results = [history["loss"], history["accuracy"], scores, model.predict(x, verbose=0)]
            return [torch.tensor(np.asarray(r, np.float32)) for r in (*results, *model.get_weights())]

    return run


def _dense() -> Any:
    return keras.Sequential([layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dense(3)])


def _convolutional() -> Any:
    return keras.Sequential(
        [
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(8, 3, activation="silu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )


def _recurrent() -> Any:
    return keras.Sequential(
        [layers.Bidirectional(layers.LSTM(8, return_sequences=True)), layers.GRU(8), layers.Dense(3)]
    )


def _attentive() -> Any:
    inputs = keras.Input(_SEQUENCES[1:])
    x = layers.Dense(8)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling1D()(x)))


def _mixed() -> Any:
    policy = keras.mixed_precision.DTypePolicy("mixed_bfloat16")
    head = layers.Dense(3, dtype="float32")
    return keras.Sequential([layers.Dense(16, "relu", dtype=policy), layers.Dense(16, "relu", dtype=policy), head])


def _mixed_losses(device: str, mode: str) -> list[torch.Tensor]:
    """Return losses and scores, rounded to bfloat16, whose sums may round differently on each device."""
    return [x.bfloat16().float() for x in _fitted(_mixed, numbers(8, 6))(device, mode)[:3]]


def _custom(device: str, mode: str) -> list[torch.Tensor]:
    """Train by a `train_step` of a subclass, with an optimizer of Keras and a clipped gradient."""

    class Regression(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.net = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)])

        def call(self, x: Any) -> Any:
            return self.net(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            self.zero_grad()
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
            loss.backward()
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in self.trainable_weights], self.trainable_weights)
            return {"loss": loss.detach()}

    with keras_device(device):
        model = Regression()
        model(numbers(1, 5))
        set_weights(model.weights)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0), jit_compile=mode == "compiled")
        fit = model.fit(numbers(8, 5), numbers(8, 1, seed=1), batch_size=4, epochs=2, shuffle=False, verbose=0)
        return [torch.tensor(fit.history["loss"]), *(torch.tensor(w) for w in model.get_weights())]


def _resumed(device: str, mode: str) -> list[torch.Tensor]:
    """Save a model with the state of its optimizer, load it, and go on."""
    x, labels = numbers(8, 6), np.arange(8) % 3
    with keras_device(device), tempfile.TemporaryDirectory() as folder:
        model = _dense()
        model.build(x.shape)
        set_weights(model.weights)
        model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, labels, shuffle=False, verbose=0)
        path = Path(folder, "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        for weight, other in zip(model.weights, loaded.weights, strict=True):
            np.testing.assert_array_equal(weight.numpy(), other.numpy())
        losses = [m.fit(x, labels, shuffle=False, verbose=0).history["loss"] for m in (model, loaded)]
        assert losses[0] == losses[1]
        loaded.save_weights(Path(folder, "model.weights.h5"))
        model.load_weights(Path(folder, "model.weights.h5"))
        return [torch.tensor(losses[1]), *(torch.tensor(w) for w in model.get_weights())]


for _name, _program in {
    "fit: dense layers": _fitted(_dense, numbers(8, 6)),
    "fit: convolutions": _fitted(_convolutional, numbers(*_IMAGES)),
    "fit: LSTM and GRU": _fitted(_recurrent, numbers(*_SEQUENCES)),
    "fit: attention": _fitted(_attentive, numbers(*_SEQUENCES)),
    "fit: policy mixed_bfloat16": _mixed_losses,
    "train_step of a subclass": _custom,
}.items():
    whole_case("keras", _name, _program, modes=("eager", "compiled"))
whole_case("keras", "save, load, go on", _resumed)
