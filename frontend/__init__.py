"""Polyhal: train and run neural networks from Python on any compute device.

`import polyhal` loads the modules of eager programs. Other modules are loaded at their first use.
"""

# ruff: noqa: F405  names of ops are imported with a star
from __future__ import annotations

import importlib
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from polyhal.hal import errors
from polyhal.hal.device import Device
from polyhal.hal.device import Device as device  # noqa: N813  PyTorch's name
from polyhal.hal.dispatch import on_replay, runtime_scalar
from polyhal.hal.dispatch.bounds import debug, is_debug

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
from polyhal import einops_backend  # isort: skip

einops_backend.install()

if TYPE_CHECKING:
    from polyhal import (
        amp,
        autograd,
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
    from polyhal.default_device import get_default_device, set_default_device
    from polyhal.dtype_queries import (
        asarray,
        broadcast_shapes,
        can_cast,
        from_dlpack,
        from_numpy,
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
    from polyhal.hal.diagnostics.explain_op import explain
    from polyhal.hal.diagnostics.memory_summary import memory_summary
    from polyhal.hal.diagnostics.profiler import profile
    from polyhal.hal.dtypes import complex64 as cfloat
    from polyhal.hal.dtypes import complex128 as cdouble
    from polyhal.hal.dtypes import float16 as half
    from polyhal.hal.dtypes import float64 as double
    from polyhal.hal.dtypes import int16 as short
    from polyhal.hal.dtypes import int64 as long
    from polyhal.hal.ops.user_kernels import kernel
    from polyhal.interchange import is_same_size, to_dlpack
    from polyhal.linalg.low_rank import pca_lowrank, svd_lowrank
    from polyhal.memory_format import channels_last, channels_last_3d, contiguous_format, preserve_format
    from polyhal.mixed_precision import autocast
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
    from polyhal.tensor.copying import unpickling_on

newaxis = None
"""Inserts an axis in an index, as `None` does."""

__version__ = "0.1.0"

_PACKAGES = (
    "amp", "autograd", "data", "distributed", "distributions", "fft", "func", "linalg", "models", "nn",
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
    return sorted({*__all__, *_DTYPES, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "DType", "Device", "Fit", "Generator", "Tensor", "abs", "absolute", "acos", "acosh", "adaptive_avg_pool1d",
    "adaptive_max_pool1d", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint", "all",
    "allclose", "alpha_dropout", "amax", "amin", "aminmax", "amp", "angle", "any", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "are_deterministic_algorithms_enabled", "argmax", "argmin",
    "argsort", "argwhere", "as_tensor", "asarray", "asin", "asinh", "atan", "atan2", "atanh", "atleast_1d",
    "atleast_2d", "atleast_3d", "autocast", "autograd", "avg_pool1d", "avg_pool2d", "baddbmm", "bartlett_window", "batch_norm",
    "bernoulli", "bfloat16", "bilinear", "binary_cross_entropy_with_logits", "bincount", "binomial", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "blackman_window", "block_diag", "bmm", "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "bucketize", "can_cast", "capture", "cartesian_prod", "cast", "cat", "cdist", "cdouble", "ceil",
    "celu", "celu_", "cfloat", "chain_matmul", "channel_shuffle", "channels_last", "channels_last_3d", "check",
    "checkpoint", "cholesky", "cholesky_inverse", "cholesky_solve", "chunk", "clamp", "clamp_max", "clamp_min", "clip",
    "clone", "column_stack", "combinations", "complex", "complex64", "complex128", "concat", "concatenate", "conj",
    "constant_pad_nd", "contiguous", "contiguous_format", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "copy", "copysign", "corrcoef", "cos", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "count_nonzero", "cov", "cross", "ctc_loss", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "data", "debug", "deg2rad", "det", "device", "diag", "diag_embed", "diagflat", "diagonal",
    "diagonal_scatter", "diff", "digamma", "dist", "distributed", "distributions", "div", "divide", "dot", "double",
    "draw_graph", "dropout", "dsplit", "dstack", "e", "einsum", "elu", "embedding", "empty", "empty_like",
    "enable_grad", "eq", "equal", "erf", "erfc", "erfinv", "errors", "exp", "exp2", "expand_as", "explain", "expm1",
    "eye", "feature_alpha_dropout", "feature_dropout", "fft", "finfo", "fit", "fix", "flatten", "flip", "fliplr",
    "flipud", "float16", "float32", "float32_matmul_precision", "float64", "float_power", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "frac", "frexp", "from_dlpack", "from_numpy", "frombuffer", "full", "full_like", "func",
    "fused_linear", "gather", "gcd", "ge", "gelu", "geqrf", "ger", "get_default_device", "get_default_dtype",
    "get_float32_matmul_precision", "get_rng_state", "glu", "grad", "gradient", "greater", "greater_equal",
    "group_norm", "gt", "half", "hamming_window", "hann_window", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "heaviside", "hinge_embedding_loss", "histc", "histogram", "histogramdd", "hsplit", "hstack", "hypot", "i0",
    "igamma", "igammac", "iinfo", "imag", "index_add", "index_copy", "index_fill", "index_put", "index_reduce",
    "index_select", "inf", "inference_mode", "initial_seed", "inner", "instance_norm", "int8", "int16", "int32",
    "int64", "inverse", "is_complex", "is_debug", "is_floating_point", "is_grad_enabled", "is_nonzero", "is_same_size",
    "is_signed", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "istft", "jit",
    "kaiser_window", "kernel", "kl_div", "kron", "kthvalue", "layer_norm", "lcm", "ldexp", "le", "leaky_relu", "lerp",
    "less", "less_equal", "lgamma", "linalg", "linear", "linspace", "load", "load_checkpoint", "load_graph", "log",
    "log1p", "log2", "log10", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logdet", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logsigmoid", "logspace", "logsumexp", "long", "lt",
    "lu_unpack", "manual_seed", "margin_ranking_loss", "masked_fill", "masked_scatter", "masked_select", "matmul",
    "matrix_exp", "matrix_power", "max", "max_pool1d", "max_pool2d", "max_pool3d", "maximum", "mean", "median",
    "memory_summary", "meshgrid", "min", "minimum", "mish", "mm", "mode", "models", "moveaxis", "movedim", "msort",
    "mul", "multinomial", "multiply", "mv", "mvlgamma", "nan", "nan_to_num", "nanmean", "nanmedian", "nanquantile",
    "nansum", "narrow", "ne", "neg", "negative", "newaxis", "nextafter", "nn", "no_grad", "nonzero", "nonzero_static",
    "norm", "normal", "not_equal", "numel", "on_replay", "ones", "ones_like", "ops", "optim", "orgqr", "ormqr", "outer",
    "pad", "pairwise_distance", "parallel", "pca_lowrank", "pdist", "permute", "pi", "pinverse", "pixel_shuffle",
    "pixel_unshuffle", "poisson", "poisson_nll_loss", "polar", "polygamma", "positive", "pow", "prelu",
    "preserve_format", "prod", "profile", "promote_types", "put", "quantile", "rad2deg", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "random", "randperm", "ravel", "real", "reciprocal", "record_memory_history",
    "relu", "relu6", "relu_", "remainder", "renorm", "repeat_interleave", "reshape", "reshape_as", "result_type",
    "rms_norm", "roll", "rot90", "round", "row_stack", "rrelu", "rrelu_", "rsqrt", "rsub", "runtime_scalar", "save",
    "save_checkpoint", "save_graph", "scalar_tensor", "scatter", "scatter_add", "scatter_reduce", "searchsorted",
    "seed", "segment_reduce", "select", "select_scatter", "selu", "selu_", "set_default_device", "set_default_dtype",
    "set_float32_matmul_precision", "set_grad_enabled", "set_rng_state", "sgn", "short", "sigmoid", "sign", "signal",
    "signbit", "silu", "sin", "sinc", "sinh", "slice_scatter", "slogdet", "softmax", "softplus", "softshrink",
    "softsign", "sort", "special", "split", "split_with_sizes", "sqrt", "square", "squeeze", "stack", "std", "std_mean",
    "stft", "sub", "subtract", "sum", "sum_to", "sum_to_size", "summary", "svd_lowrank", "swapaxes", "swapdims", "t",
    "take", "take_along_axis", "take_along_dim", "tan", "tanh", "tanhshrink", "tensor", "tensor_split", "tensordot",
    "text", "threshold", "threshold_", "tile", "to_dlpack", "topk", "trace", "transpose", "trapezoid", "trapz", "tril",
    "tril_indices", "triplet_margin_loss", "triu", "triu_indices", "true_divide", "trunc", "truncating_divide", "uint8",
    "uint16", "uint32", "uint64", "unbind", "unflatten", "unique", "unique_consecutive", "unpickling_on",
    "unravel_index", "unsqueeze", "use_deterministic_algorithms", "utils", "vander", "var", "var_mean", "vdot",
    "vecdot", "view_as", "view_as_complex", "view_as_real", "vmap", "vsplit", "vstack", "watchdog", "where", "xlogy",
    "zeros", "zeros_like",
]  # fmt: skip
