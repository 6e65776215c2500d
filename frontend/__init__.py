"""Polyhal: train and run neural networks from Python on any compute device.

`import polyhal` loads the modules of eager programs. Other modules are loaded at their first use.
"""

import importlib as _importlib
from math import e, inf, nan, pi
from importlib.util import find_spec as _find_spec
from types import ModuleType as _ModuleType

from polyhal.hal import errors
from polyhal.hal.device import Device
from polyhal.hal.device import Device as device
from polyhal.hal.core.dispatch import on_replay, runtime_scalar
from polyhal.hal.core.dispatch.bounds import debug, is_debug

from polyhal.hal.dtypes import (  # isort: skip
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
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
from polyhal.hal.core.settings.determinism import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from polyhal.hal.core.settings.precision import (
    float32_matmul_precision,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from polyhal.lazy_names import LAZY_NAMES as _LAZY_NAMES
from polyhal.tensor import Tensor, as_tensor

from polyhal import binding as _binding  # isort: skip
from polyhal.functions import *  # isort: skip
from polyhal.tape.checkpoint import checkpoint
from polyhal.tape.engine import grad
from polyhal.tape.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

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
from polyhal.random import (  # isort: skip
    Generator,
    bernoulli,
    get_rng_state,
    initial_seed,
    manual_seed,
    normal,
    rand,
    randint,
    randn,
    randperm,
    seed,
    set_rng_state,
)
from polyhal import random  # isort: skip
from polyhal import einops_backend as _einops_backend  # isort: skip

_einops_backend.install()

newaxis = None
"""Inserts an axis in an index, as `None` does."""

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

_PACKAGES = (
    "amp", "autograd", "data", "distributed", "distributions", "fft", "func", "linalg", "nn",
    "ops", "optim", "parallel", "signal", "special", "utils",
    *(name for name in ("models", "text") if _find_spec(f"{__name__}.{name}")),  # applications, if they are installed
)  # fmt: skip
_DTYPES = {
    "bool": bool_,
    "cdouble": complex128,
    "cfloat": complex64,
    "double": float64,
    "float": float32,
    "half": float16,
    "int": int32,
    "long": int64,
    "short": int16,
}
"""PyTorch's names of dtypes, which would hide Python's own in this module."""


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name in _DTYPES:
        return _DTYPES[name]
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    definition = getattr(_importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    value = globals()[name] = getattr(definition, "__top_level__", definition)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_DTYPES, *(name for name in globals() if name.startswith("__"))})


__all__ = sorted(
    {*_LAZY_NAMES, *_PACKAGES, *_DTYPES, "errors", "random"}
    - {"bool", "float", "int"}  # so that a star import does not hide Python's own types
    | {n for n, value in globals().items() if not n.startswith("_") and not isinstance(value, _ModuleType)}
)
"""Every public name; their types are in `__init__.pyi` and `functions.pyi`."""
