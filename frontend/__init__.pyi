"""Generated from the definitions marked with `top_level` by `make generate`; do not edit."""

import builtins
from collections.abc import Sequence
from typing import Any

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from polyhal.hal import errors as errors
from polyhal.hal.device import Device as Device
from polyhal.hal.device import Device as device
from polyhal.hal.core.dispatch import on_replay as on_replay
from polyhal.hal.core.dispatch import runtime_scalar as runtime_scalar
from polyhal.hal.core.dispatch.bounds import debug as debug
from polyhal.hal.core.dispatch.bounds import is_debug as is_debug
from polyhal.hal.dtypes import DType as DType
from polyhal.hal.dtypes import bfloat16 as bfloat16
from polyhal.hal.dtypes import bool_ as bool_
from polyhal.hal.dtypes import complex64 as complex64
from polyhal.hal.dtypes import complex128 as complex128
from polyhal.hal.dtypes import finfo as finfo
from polyhal.hal.dtypes import float16 as float16
from polyhal.hal.dtypes import float32 as float32
from polyhal.hal.dtypes import float64 as float64
from polyhal.hal.dtypes import iinfo as iinfo
from polyhal.hal.dtypes import int8 as int8
from polyhal.hal.dtypes import int16 as int16
from polyhal.hal.dtypes import int32 as int32
from polyhal.hal.dtypes import int64 as int64
from polyhal.hal.dtypes import uint8 as uint8
from polyhal.hal.dtypes import uint16 as uint16
from polyhal.hal.dtypes import uint32 as uint32
from polyhal.hal.dtypes import uint64 as uint64
from polyhal.hal.core.settings.determinism import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from polyhal.hal.core.settings.determinism import use_deterministic_algorithms as use_deterministic_algorithms
from polyhal.hal.core.settings.precision import float32_matmul_precision as float32_matmul_precision
from polyhal.hal.core.settings.precision import get_float32_matmul_precision as get_float32_matmul_precision
from polyhal.hal.core.settings.precision import set_float32_matmul_precision as set_float32_matmul_precision
from polyhal.tensor import Tensor as Tensor
from polyhal.tensor import as_tensor as as_tensor
from polyhal.functions import *
from polyhal.tape.checkpoint import checkpoint as checkpoint
from polyhal.tape.engine import grad as grad
from polyhal.tape.modes import enable_grad as enable_grad
from polyhal.tape.modes import inference_mode as inference_mode
from polyhal.tape.modes import is_grad_enabled as is_grad_enabled
from polyhal.tape.modes import no_grad as no_grad
from polyhal.tape.modes import set_grad_enabled as set_grad_enabled
from polyhal.creation import arange as arange
from polyhal.creation import empty as empty
from polyhal.creation import empty_like as empty_like
from polyhal.creation import eye as eye
from polyhal.creation import full as full  # type: ignore[assignment]
from polyhal.creation import full_like as full_like
from polyhal.creation import linspace as linspace
from polyhal.creation import logspace as logspace
from polyhal.creation import ones as ones
from polyhal.creation import ones_like as ones_like
from polyhal.creation import scalar_tensor as scalar_tensor
from polyhal.creation import tensor as tensor
from polyhal.creation import tril_indices as tril_indices
from polyhal.creation import triu_indices as triu_indices
from polyhal.creation import zeros as zeros
from polyhal.creation import zeros_like as zeros_like
from polyhal.random import Generator as Generator
from polyhal.random import bernoulli as bernoulli
from polyhal.random import get_rng_state as get_rng_state
from polyhal.random import initial_seed as initial_seed
from polyhal.random import manual_seed as manual_seed
from polyhal.random import normal as normal
from polyhal.random import rand as rand
from polyhal.random import randint as randint
from polyhal.random import randn as randn
from polyhal.random import randperm as randperm
from polyhal.random import seed as seed
from polyhal.random import set_rng_state as set_rng_state
from polyhal import random as random
from polyhal import amp as amp
from polyhal import autograd as autograd
from polyhal import data as data
from polyhal import distributed as distributed
from polyhal import distributions as distributions
from polyhal import fft as fft
from polyhal import func as func
from polyhal import linalg as linalg
from polyhal import nn as nn
from polyhal import ops as ops
from polyhal import optim as optim
from polyhal import parallel as parallel
from polyhal import signal as signal
from polyhal import special as special
from polyhal import utils as utils
from polyhal import models as models
from polyhal import text as text
from polyhal.hal.dtypes import bool_ as bool
from polyhal.hal.dtypes import complex128 as cdouble
from polyhal.hal.dtypes import complex64 as cfloat
from polyhal.hal.dtypes import float64 as double
from polyhal.hal.dtypes import float32 as float
from polyhal.hal.dtypes import float16 as half
from polyhal.hal.dtypes import int32 as int
from polyhal.hal.dtypes import int64 as long
from polyhal.hal.dtypes import int16 as short
from polyhal.steps.fit import Fit as Fit
from polyhal.array_api import __array_namespace_info__ as __array_namespace_info__
from polyhal.nn.functional.adaptive_pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from polyhal.dtype_queries import asarray as asarray
from polyhal.dtype_queries import astype as astype
from polyhal.mixed_precision import autocast as autocast
from polyhal.nn.functional.pooling import avg_pool1d as avg_pool1d
from polyhal.signal.windows import bartlett_window as bartlett_window
from polyhal.nn.functional.linear import bilinear as bilinear
from polyhal.sampling import binomial as binomial
from polyhal.signal.windows import blackman_window as blackman_window
from polyhal.dtype_queries import broadcast_shapes as broadcast_shapes
from polyhal.dtype_queries import can_cast as can_cast
from polyhal.steps.block import capture as capture
from polyhal.nn.functional.inplace import celu_ as celu_
from polyhal.nn.functional.rearranging import channel_shuffle as channel_shuffle
from polyhal.memory_format import channels_last as channels_last
from polyhal.memory_format import channels_last_3d as channels_last_3d
from polyhal.hal.system.checks.modes import check as check
from polyhal.memory_format import contiguous_format as contiguous_format
from polyhal.nn.functional.convolution import conv1d as conv1d
from polyhal.nn.functional.convolution import conv3d as conv3d
from polyhal.nn.functional.convolution import conv_transpose1d as conv_transpose1d
from polyhal.nn.functional.convolution import conv_transpose2d as conv_transpose2d
from polyhal.nn.functional.convolution import conv_transpose3d as conv_transpose3d
from polyhal.graphs.drawing import draw_graph as draw_graph
from polyhal.explanation import explain as explain
from polyhal.nn.functional.dropout import feature_dropout as feature_dropout
from polyhal.steps.fit import fit as fit
from polyhal.dtype_queries import from_dlpack as from_dlpack
from polyhal.dtype_queries import from_numpy as from_numpy
from polyhal.dtype_queries import frombuffer as frombuffer
from polyhal.default_device import get_default_device as get_default_device
from polyhal.dtype_queries import get_default_dtype as get_default_dtype
from polyhal.signal.windows import hamming_window as hamming_window
from polyhal.signal.windows import hann_window as hann_window
from polyhal.host_calls import host_call as host_call
from polyhal.dtype_queries import is_complex as is_complex
from polyhal.dtype_queries import is_floating_point as is_floating_point
from polyhal.dtype_queries import is_nonzero as is_nonzero
from polyhal.interchange import is_same_size as is_same_size
from polyhal.dtype_queries import is_signed as is_signed
from polyhal.dtype_queries import isdtype as isdtype
from polyhal.steps.jit import jit as jit
from polyhal.signal.windows import kaiser_window as kaiser_window
from polyhal.hal.ops.user_kernels import kernel as kernel
from polyhal.serialize.files import load as load
from polyhal.serialize.checkpoint import load_checkpoint as load_checkpoint
from polyhal.graphs.loading import load_graph as load_graph
from polyhal.nn.functional.pooling import max_pool1d as max_pool1d
from polyhal.nn.functional.pooling import max_pool3d as max_pool3d
from polyhal.hal.system.diagnostics.memory_summary import memory_summary as memory_summary
from polyhal.sampling import multinomial as multinomial
from polyhal.dtype_queries import numel as numel
from polyhal.linalg.low_rank import pca_lowrank as pca_lowrank
from polyhal.nn.functional.rearranging import pixel_shuffle as pixel_shuffle
from polyhal.nn.functional.rearranging import pixel_unshuffle as pixel_unshuffle
from polyhal.sampling import poisson as poisson
from polyhal.memory_format import preserve_format as preserve_format
from polyhal.profiler.profile import profile as profile
from polyhal.dtype_queries import promote_types as promote_types
from polyhal.sampling import rand_like as rand_like
from polyhal.sampling import randint_like as randint_like
from polyhal.sampling import randn_like as randn_like
from polyhal.hal.system.checks.memory_history import record_memory_history as record_memory_history
from polyhal.nn.functional.inplace import relu_ as relu_
from polyhal.dtype_queries import result_type as result_type
from polyhal.nn.functional.norm import rms_norm as rms_norm
from polyhal.nn.functional.activation import rrelu as rrelu
from polyhal.nn.functional.inplace import rrelu_ as rrelu_
from polyhal.serialize.files import save as save
from polyhal.serialize.checkpoint import save_checkpoint as save_checkpoint
from polyhal.graphs.saving import save_graph as save_graph
from polyhal.nn.functional.inplace import selu_ as selu_
from polyhal.default_device import set_default_device as set_default_device
from polyhal.dtype_queries import set_default_dtype as set_default_dtype
from polyhal.nn.utils.model_summary import summary as summary
from polyhal.linalg.low_rank import svd_lowrank as svd_lowrank
from polyhal.nn.functional.inplace import threshold_ as threshold_
from polyhal.interchange import to_dlpack as to_dlpack
from polyhal.tensor.copying import unpickling_on as unpickling_on
from polyhal.func.vectorize import vmap as vmap
from polyhal.hal.system.checks.watchdog import watchdog as watchdog

__array_api_version__: str
__version__: str
newaxis: None

def adaptive_max_pool1d(
    input: Tensor,
    output_size: Any,
) -> Any:
    """Return maxima over an even division of sequences (N, C, L), as `adaptive_max_pool2d`."""

def alpha_dropout(
    input: Tensor,
    p: builtins.float,
    train: Any,
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, for networks of `selu`. Source: Klambauer et al., arXiv:1706.02515."""

def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: builtins.bool,
    momentum: builtins.float | Tensor,
    eps: builtins.float,
    cudnn_enabled: Any = ...,
) -> Tensor:
    """Zero mean and unit variance per channel (axis 1), then scale and shift. Source: arXiv:1502.03167."""

def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = ...,
    pos_weight: Tensor | None = ...,
    reduction: builtins.int | str = ...,
) -> Tensor:
    """Cross entropy of `sigmoid(input)` with probabilities `target`, in nats, without overflow."""

def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: builtins.float = ...,
    reduction: builtins.int | str = ...,
) -> Tensor:
    """`1 - cos(input1, input2)` where `target` is 1, and `max(0, cos(...) - margin)` where it is -1."""

def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[builtins.int] | builtins.int,
    target_lengths: Tensor | Sequence[builtins.int] | builtins.int,
    blank: builtins.int = ...,
    reduction: builtins.int | str = ...,
    zero_infinity: builtins.bool = ...,
) -> Tensor:
    """Negative log likelihood, in nats, of label sequences summed over their alignments with (T, N, C) log-probabilities."""

def dropout(
    input: Tensor,
    p: builtins.float,
    train: Any,
) -> Tensor:
    """In training, zeroes elements with probability `p` and scales the others by 1/(1-p)."""

def feature_alpha_dropout(
    input: Tensor,
    p: builtins.float,
    train: Any,
) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...)."""

def group_norm(
    input: Tensor,
    num_groups: builtins.int,
    weight: Tensor | None = ...,
    bias: Tensor | None = ...,
    eps: builtins.float = ...,
    cudnn_enabled: Any = ...,
) -> Tensor:
    """Zero mean and unit variance over each of `num_groups` groups of channels (N, C, ...)."""

def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: builtins.float = ...,
    reduction: builtins.int | str = ...,
) -> Tensor:
    """Return the distance `input` where `target` is 1, and `max(0, margin - input)` where it is -1. The shapes broadcast."""

def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: builtins.bool,
    momentum: builtins.float | Tensor,
    eps: builtins.float,
    cudnn_enabled: Any = ...,
) -> Tensor:
    """Zero mean and unit variance over each channel of each sample (N, C, ...), then scale and shift per channel."""

def kl_div(
    input: Tensor,
    target: Tensor,
    reduction: builtins.int | str = ...,
    *,
    log_target: builtins.bool = ...,
) -> Tensor:
    """`target * (log(target) - input)` for log-probabilities `input`, in nats: the terms of a Kullback-Leibler divergence."""

def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[builtins.int],
    weight: Tensor | None = ...,
    bias: Tensor | None = ...,
    eps: builtins.float = ...,
    cudnn_enable: Any = ...,
) -> Tensor:
    """Zero mean and unit variance over the last axes, of `normalized_shape`, then scale and shift."""

def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: builtins.float = ...,
    reduction: builtins.int | str = ...,
) -> Tensor:
    """`max(0, margin - target * (input1 - input2))`: with target 1 `input1` should be larger, with -1 `input2`."""

def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: builtins.bool,
    full: builtins.bool,
    eps: builtins.float,
    reduction: builtins.int | str,
) -> Tensor:
    """Return negative log likelihood, in nats, of counts `target` under Poisson distributions of rate `exp(input)`."""

def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: builtins.float = ...,
    p: builtins.float = ...,
    eps: builtins.float = ...,
    swap: builtins.bool = ...,
    reduction: builtins.int | str = ...,
) -> Tensor:
    """`max(0, |anchor - positive| - |anchor - negative| + margin)` with p-norms over the last axis."""
