"""Polyhal: train and run neural networks from Python on whatever compute device you have.

`import polyhal` loads what eager programs need. Other parts are loaded when they are first named.
"""

from __future__ import annotations

import importlib
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from polyhal.hal import errors
from polyhal.hal.checks.bounds import debug, is_debug
from polyhal.hal.device import Device
from polyhal.hal.dispatch import on_replay, runtime_scalar

from polyhal.hal.dtypes import (  # isort: skip
    DType, bfloat16, bool_, complex64, complex128, finfo, float16, float32, float64, iinfo, int8, int16,
    int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from polyhal.hal.settings.determinism import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from polyhal.hal.settings.precision import (
    float32_matmul_precision,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
)
from polyhal.later import LATER
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
from polyhal import einops_backend  # isort: skip

einops_backend.install()

if TYPE_CHECKING:
    from polyhal import (
        amp,
        data,
        distributed,
        distributions,
        fft,
        func,
        linalg,
        models,
        nn,
        ops,
        optim,
        parallel,
        signal,
        special,
        text,
        utils,
    )  # fmt: skip
    from polyhal.copying import unpickling_on
    from polyhal.default_device import get_default_device, set_default_device
    from polyhal.dtype_queries import (
        asarray,
        broadcast_shapes,
        can_cast,
        from_dlpack,
        frombuffer,
        get_default_dtype,
        is_complex,
        is_floating_point,
        is_nonzero,
        is_signed,
        numel,
        promote_types,
        result_type,
        set_default_dtype,
    )  # fmt: skip
    from polyhal.func import vmap
    from polyhal.graphs import draw_graph, load_graph, save_graph
    from polyhal.hal.checks.memory_history import record_memory_history
    from polyhal.hal.checks.modes import check
    from polyhal.hal.checks.watchdog import watchdog
    from polyhal.hal.diagnostics.memory_summary import memory_summary
    from polyhal.hal.diagnostics.profiler import profile
    from polyhal.hal.ops.user_kernels import kernel
    from polyhal.hal.planning.explain import explain
    from polyhal.interchange import is_same_size, to_dlpack
    from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank
    from polyhal.nn.functional import (
        adaptive_avg_pool1d,
        avg_pool1d,
        bilinear,
        celu_,
        channel_shuffle,
        conv1d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
        max_pool1d,
        max_pool3d,
        pixel_shuffle,
        pixel_unshuffle,
        relu_,
        rms_norm,
        rrelu,
        rrelu_,
        selu_,
        threshold_,
    )
    from polyhal.nn.functional.positional import (
        adaptive_max_pool1d,
        alpha_dropout,
        batch_norm,
        binary_cross_entropy_with_logits,
        cosine_embedding_loss,
        ctc_loss,
        dropout,
        feature_alpha_dropout,
        feature_dropout,
        group_norm,
        hinge_embedding_loss,
        instance_norm,
        kl_div,
        layer_norm,
        margin_ranking_loss,
        poisson_nll_loss,
        triplet_margin_loss,
    )
    from polyhal.nn.utils.model_summary import summary
    from polyhal.sampling import (
        binomial,
        multinomial,
        poisson,
        rand_like,
        randint_like,
        randn_like,
    )
    from polyhal.serialize import load, load_checkpoint, save, save_checkpoint
    from polyhal.signal.windows import (
        bartlett_window,
        blackman_window,
        hamming_window,
        hann_window,
        kaiser_window,
    )
    from polyhal.steps.block import capture
    from polyhal.steps.fit import Fit, fit
    from polyhal.steps.jit import jit

newaxis = None
"""Inserts an axis in an index, as `None` does."""

__version__ = "0.1.0"

_PACKAGES = (
    "amp", "data", "distributed", "distributions", "fft", "func", "linalg", "models", "nn",
    "ops", "optim", "parallel", "signal", "special", "text", "utils",
)  # fmt: skip
_DTYPES = {
    "bool": bool_, "cdouble": complex128, "cfloat": complex64, "double": float64, "float": float32,
    "half": float16, "int": int32, "long": int64, "short": int16,
}  # fmt: skip
"""PyTorch's names of dtypes, which would hide Python's own in this module."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _DTYPES:
        return _DTYPES[name]
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *LATER, *_DTYPES})


__all__ = [
    "DType",
    "Device",
    "Fit",
    "Generator",
    "Tensor",
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "alpha_dropout",
    "amp",
    "arange",
    "are_deterministic_algorithms_enabled",
    "as_tensor",
    "asarray",
    "avg_pool1d",
    "bartlett_window",
    "batch_norm",
    "bernoulli",
    "bfloat16",
    "bilinear",
    "binary_cross_entropy_with_logits",
    "binomial",
    "blackman_window",
    "bool_",
    "broadcast_shapes",
    "can_cast",
    "capture",
    "celu_",
    "channel_shuffle",
    "check",
    "checkpoint",
    "complex64",
    "complex128",
    "conv1d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "ctc_loss",
    "data",
    "debug",
    "distributed",
    "distributions",
    "draw_graph",
    "dropout",
    "e",
    "empty",
    "empty_like",
    "enable_grad",
    "errors",
    "explain",
    "eye",
    "feature_alpha_dropout",
    "feature_dropout",
    "fft",
    "finfo",
    "fit",
    "float16",
    "float32",
    "float32_matmul_precision",
    "float64",
    "from_dlpack",
    "frombuffer",
    "full",
    "full_like",
    "func",
    "get_default_device",
    "get_default_dtype",
    "get_float32_matmul_precision",
    "get_rng_state",
    "grad",
    "group_norm",
    "hamming_window",
    "hann_window",
    "hinge_embedding_loss",
    "iinfo",
    "inf",
    "inference_mode",
    "initial_seed",
    "instance_norm",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_complex",
    "is_debug",
    "is_floating_point",
    "is_grad_enabled",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "jit",
    "kaiser_window",
    "kernel",
    "kl_div",
    "layer_norm",
    "linalg",
    "linspace",
    "load",
    "load_checkpoint",
    "load_graph",
    "logspace",
    "manual_seed",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool3d",
    "memory_summary",
    "models",
    "multinomial",
    "nan",
    "nn",
    "no_grad",
    "normal",
    "numel",
    "on_replay",
    "ones",
    "ones_like",
    "ops",
    "optim",
    "parallel",
    "pca_lowrank",
    "pi",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson",
    "poisson_nll_loss",
    "profile",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "record_memory_history",
    "relu_",
    "result_type",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "runtime_scalar",
    "save",
    "save_checkpoint",
    "save_graph",
    "scalar_tensor",
    "seed",
    "selu_",
    "set_default_device",
    "set_default_dtype",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "set_rng_state",
    "signal",
    "special",
    "summary",
    "svd_lowrank",
    "tensor",
    "text",
    "threshold_",
    "to_dlpack",
    "tril_indices",
    "triplet_margin_loss",
    "triu_indices",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unpickling_on",
    "use_deterministic_algorithms",
    "utils",
    "vmap",
    "watchdog",
    "zeros",
    "zeros_like",
]
