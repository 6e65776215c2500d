"""Keras on PyTorch's device: the variables that select it, and variables with equal numbers on every device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

os.environ.update(KERAS_BACKEND="torch", KERAS_TORCH_DEVICE="polyhal")
import keras

__all__ = ["keras", "keras_device", "numbers", "set_weights"]


def keras_device(device: str) -> contextlib.AbstractContextManager[Any]:
    """Return a scope for the reference on the CPU. Elsewhere KERAS_TORCH_DEVICE decides."""
    return keras.device("cpu") if device == "cpu" else contextlib.nullcontext()


def numbers(*shape: int, seed: int = 0) -> Any:
    """Return normal numbers as a float32 array."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def set_weights(variables: Iterable[Any]) -> None:
    """Assign the same numbers on every device: Keras draws initial ones by the device's generator."""
    generator = np.random.default_rng(1)
    for variable in variables:
        if "float" in variable.dtype:
            values = generator.uniform(-0.5, 0.5, variable.shape)
            variable.assign(abs(values) + 0.5 if "variance" in variable.path else values)
