"""Polyhal: train and run neural networks from Python on whatever compute device you have.

`import polyhal` loads what eager programs need. Other parts are loaded when they are first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyhal.hal import errors
from polyhal.hal.device import Device
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
from polyhal.hal.settings.debug import debug, is_debug
from polyhal.hal.settings.determinism import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from polyhal.hal.settings.precision import (
    float32_matmul_precision,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from polyhal.tensor import Tensor, as_tensor

from polyhal import binding  # isort: skip  # noqa: F401
from polyhal.functions import *  # isort: skip  # noqa: F403
from polyhal.autograd import (  # isort: skip
    checkpoint,
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from polyhal.creation import (  # isort: skip
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)
from polyhal.random import Generator, bernoulli, manual_seed, rand, randint, randn, randperm  # isort: skip
from polyhal import random  # isort: skip
from polyhal import einops_backend  # isort: skip

einops_backend.install()

if TYPE_CHECKING:
    from polyhal import amp, data, func, linalg, models, nn, optim, special, text, utils
    from polyhal.func import vmap
    from polyhal.graphs import draw_graph, load_graph, save_graph
    from polyhal.hal.diagnostics.profiler import profile
    from polyhal.hal.planning.explain import explain
    from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank
    from polyhal.serialize import load, load_checkpoint, save, save_checkpoint
    from polyhal.steps.block import capture
    from polyhal.steps.fit import Fit, fit
    from polyhal.steps.jit import jit

__version__ = "0.1.0"

_PACKAGES = ("amp", "data", "func", "linalg", "models", "nn", "optim", "special", "text", "utils")
_LATER = {
    "Fit": "steps.fit",
    "capture": "steps.block",
    "draw_graph": "graphs",
    "explain": "hal.planning.explain",
    "fit": "steps.fit",
    "jit": "steps.jit",
    "load": "serialize",
    "load_checkpoint": "serialize",
    "load_graph": "graphs",
    "pca_lowrank": "linalg.low_rank",
    "profile": "hal.diagnostics.profiler",
    "save": "serialize",
    "save_checkpoint": "serialize",
    "save_graph": "graphs",
    "vmap": "func",
    "svd_lowrank": "linalg.low_rank",
}
"""Names that are imported when they are first used, and where they are."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_LATER})


__all__ = [
    "DType",
    "Device",
    "Fit",
    "Generator",
    "Tensor",
    "amp",
    "arange",
    "are_deterministic_algorithms_enabled",
    "as_tensor",
    "bernoulli",
    "bfloat16",
    "bool_",
    "capture",
    "checkpoint",
    "data",
    "debug",
    "draw_graph",
    "empty",
    "empty_like",
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
    "full",
    "full_like",
    "func",
    "get_float32_matmul_precision",
    "grad",
    "iinfo",
    "inference_mode",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_debug",
    "is_grad_enabled",
    "jit",
    "linalg",
    "linspace",
    "load",
    "load_checkpoint",
    "load_graph",
    "logspace",
    "manual_seed",
    "models",
    "nn",
    "no_grad",
    "on_replay",
    "ones",
    "ones_like",
    "optim",
    "pca_lowrank",
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
    "scalar_tensor",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "special",
    "svd_lowrank",
    "tensor",
    "text",
    "tril_indices",
    "triu_indices",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_deterministic_algorithms",
    "utils",
    "vmap",
    "zeros",
    "zeros_like",
]
