"""The interface by which the package onnx tests its backends: `onnx.backend.test.BackendTest(polyhal.onnx.backend)`.

Devices are named as Polyhal's; `CPU` is the reference in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError, IncompatibleFileError, UnsupportedOpError
from polyhal.onnx.element_types import numpy_dtype
from polyhal.onnx.module import OnnxModule, load
from polyhal.onnx.reader import read_model
from polyhal.tensor import Tensor


class PreparedModel:
    """A loaded model, whose inputs and results are arrays."""

    def __init__(self, module: OnnxModule) -> None:
        self.module = module

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the results for inputs in the model's order, or by name."""
        given = inputs if isinstance(inputs, dict) else dict(zip(self.module.input_names, inputs, strict=False))
        results = self.module(**given)
        results = results if len(self.module.output_names) > 1 else (results,)
        return tuple(as_array(r, t) for r, t in zip(results, self.module.output_types, strict=True))


def is_compatible(model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """Return whether all operators of a model have a function."""
    try:
        read_model(model)
    except (UnsupportedOpError, IncompatibleFileError):
        return False
    return True


def prepare(model: ModelProto, device: str = "CPU", capture: bool = False, **kwargs: Any) -> PreparedModel:
    """Load a model. It runs op by op unless `capture` is true."""
    return PreparedModel(load(model, device=_named(device), capture=capture))


def run_model(model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Load a model and run it once."""
    return prepare(model, device).run(inputs)


def supports_device(device: str) -> bool:
    """Return whether a device can be opened."""
    try:
        Device(_named(device))
    except DeviceUnavailableError:
        return False
    return True


def as_array(value: Any, element_type: int) -> Any:
    """Return a result in the model's element type, which devices without it store in another one."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_array(v, 0) for v in value]
    array = value.numpy() if isinstance(value, Tensor) else value
    dtype = numpy_dtype(element_type) if element_type else None
    return array if array is None or dtype is None else np.asarray(array).astype(dtype, copy=False)


def _named(device: str) -> str:
    return "numpy" if device.upper() == "CPU" else device


__all__ = ["PreparedModel", "as_array", "is_compatible", "prepare", "run_model", "supports_device"]
