"""Polyhal: train and run neural networks from Python on whatever compute device you have."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from polyhal.hal import errors
from polyhal.hal.device import Device
from polyhal.hal.diagnostics.profiler import profile
from polyhal.hal.dispatch import on_replay, runtime_scalar
from polyhal.hal.dtypes import (
    DType,
    bfloat16,
    bool_,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from polyhal.hal.planning.explain import explain
from polyhal.hal.settings.determinism import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from polyhal.hal.settings.precision import (
    float32_matmul_precision,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from polyhal.tensor import Tensor, as_tensor

from polyhal import binding  # isort: skip  # noqa: F401

from polyhal.functions import *  # isort: skip  # noqa: F403
from polyhal.autograd import checkpoint, enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled  # isort: skip
from polyhal.jit import capture, jit  # isort: skip
from polyhal.fit import Fit, fit  # isort: skip
from polyhal.creation import empty, eye, full_like, linspace, ones, ones_like, tensor, zeros, zeros_like  # isort: skip
from polyhal.random import Generator, bernoulli, manual_seed, rand, randint, randn, randperm  # isort: skip
from polyhal.serialize import load, load_checkpoint, save, save_checkpoint  # isort: skip
from polyhal.graphs import draw_graph, load_graph, save_graph  # isort: skip
from polyhal import amp, data, nn, optim, random  # isort: skip

if TYPE_CHECKING:
    from polyhal import models, text

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """Subpackages that not every program needs are imported when they are first named."""
    if name in ("models", "text"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DType",
    "Device",
    "Fit",
    "Generator",
    "Tensor",
    "amp",
    "are_deterministic_algorithms_enabled",
    "as_tensor",
    "bernoulli",
    "bfloat16",
    "bool_",
    "capture",
    "checkpoint",
    "data",
    "draw_graph",
    "empty",
    "enable_grad",
    "errors",
    "explain",
    "eye",
    "finfo",
    "fit",
    "float16",
    "float32",
    "float32_matmul_precision",
    "float64",
    "full_like",
    "get_float32_matmul_precision",
    "grad",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "jit",
    "linspace",
    "load",
    "load_checkpoint",
    "load_graph",
    "manual_seed",
    "models",
    "nn",
    "no_grad",
    "on_replay",
    "ones",
    "ones_like",
    "optim",
    "profile",
    "rand",
    "randint",
    "randn",
    "random",
    "randperm",
    "runtime_scalar",
    "save",
    "save_checkpoint",
    "save_graph",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "tensor",
    "text",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_deterministic_algorithms",
    "zeros",
    "zeros_like",
]
