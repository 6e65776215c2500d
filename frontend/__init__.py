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
    from polyhal.nn.utils.summary import summary
    from polyhal.serialize import load, load_checkpoint, save, save_checkpoint
    from polyhal.steps.block import capture
    from polyhal.steps.fit import Fit, fit
    from polyhal.steps.jit import jit

__version__ = "0.1.0"

_PACKAGES = ("amp", "data", "func", "linalg", "models", "nn", "optim", "special", "text", "utils")
_LATER = {
    "Fit": "steps.fit",
    "adaptive_avg_pool1d": "nn.functional",
    "adaptive_max_pool1d": "nn.functional.positional",
    "alpha_dropout": "nn.functional.positional",
    "avg_pool1d": "nn.functional",
    "batch_norm": "nn.functional.positional",
    "bilinear": "nn.functional",
    "binary_cross_entropy_with_logits": "nn.functional.positional",
    "capture": "steps.block",
    "celu_": "nn.functional",
    "channel_shuffle": "nn.functional",
    "conv1d": "nn.functional",
    "conv3d": "nn.functional",
    "conv_transpose1d": "nn.functional",
    "conv_transpose2d": "nn.functional",
    "conv_transpose3d": "nn.functional",
    "cosine_embedding_loss": "nn.functional.positional",
    "ctc_loss": "nn.functional.positional",
    "draw_graph": "graphs",
    "dropout": "nn.functional.positional",
    "explain": "hal.planning.explain",
    "feature_alpha_dropout": "nn.functional.positional",
    "feature_dropout": "nn.functional.positional",
    "fit": "steps.fit",
    "group_norm": "nn.functional.positional",
    "hinge_embedding_loss": "nn.functional.positional",
    "instance_norm": "nn.functional.positional",
    "jit": "steps.jit",
    "kl_div": "nn.functional.positional",
    "layer_norm": "nn.functional.positional",
    "load": "serialize",
    "load_checkpoint": "serialize",
    "load_graph": "graphs",
    "margin_ranking_loss": "nn.functional.positional",
    "max_pool1d": "nn.functional",
    "max_pool3d": "nn.functional",
    "pca_lowrank": "linalg.low_rank",
    "pixel_shuffle": "nn.functional",
    "pixel_unshuffle": "nn.functional",
    "poisson_nll_loss": "nn.functional.positional",
    "profile": "hal.diagnostics.profiler",
    "relu_": "nn.functional",
    "rms_norm": "nn.functional",
    "rrelu": "nn.functional",
    "rrelu_": "nn.functional",
    "save": "serialize",
    "save_checkpoint": "serialize",
    "save_graph": "graphs",
    "selu_": "nn.functional",
    "summary": "nn.utils.summary",
    "svd_lowrank": "linalg.low_rank",
    "threshold_": "nn.functional",
    "triplet_margin_loss": "nn.functional.positional",
    "vmap": "func",
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
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "alpha_dropout",
    "amp",
    "arange",
    "are_deterministic_algorithms_enabled",
    "as_tensor",
    "avg_pool1d",
    "batch_norm",
    "bernoulli",
    "bfloat16",
    "bilinear",
    "binary_cross_entropy_with_logits",
    "bool_",
    "capture",
    "celu_",
    "channel_shuffle",
    "checkpoint",
    "conv1d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "ctc_loss",
    "data",
    "debug",
    "draw_graph",
    "dropout",
    "empty",
    "empty_like",
    "enable_grad",
    "errors",
    "explain",
    "eye",
    "feature_alpha_dropout",
    "feature_dropout",
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
    "group_norm",
    "hinge_embedding_loss",
    "iinfo",
    "inference_mode",
    "instance_norm",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_debug",
    "is_grad_enabled",
    "jit",
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
    "models",
    "nn",
    "no_grad",
    "on_replay",
    "ones",
    "ones_like",
    "optim",
    "pca_lowrank",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "profile",
    "rand",
    "randint",
    "randn",
    "random",
    "randperm",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "runtime_scalar",
    "save",
    "save_checkpoint",
    "save_graph",
    "scalar_tensor",
    "selu_",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "special",
    "summary",
    "svd_lowrank",
    "tensor",
    "text",
    "threshold_",
    "tril_indices",
    "triplet_margin_loss",
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
