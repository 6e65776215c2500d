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
from polyhal.functions import abs as abs
from polyhal.functions import absolute as absolute
from polyhal.functions import acos as acos
from polyhal.functions import acosh as acosh
from polyhal.functions import add as add
from polyhal.functions import addbmm as addbmm
from polyhal.functions import addcdiv as addcdiv
from polyhal.functions import addcmul as addcmul
from polyhal.functions import addmm as addmm
from polyhal.functions import addmv as addmv
from polyhal.functions import addr as addr
from polyhal.functions import adjoint as adjoint
from polyhal.functions import all as all
from polyhal.functions import allclose as allclose
from polyhal.functions import amax as amax
from polyhal.functions import amin as amin
from polyhal.functions import aminmax as aminmax
from polyhal.functions import angle as angle
from polyhal.functions import any as any
from polyhal.functions import arccos as arccos
from polyhal.functions import arccosh as arccosh
from polyhal.functions import arcsin as arcsin
from polyhal.functions import arcsinh as arcsinh
from polyhal.functions import arctan as arctan
from polyhal.functions import arctan2 as arctan2
from polyhal.functions import arctanh as arctanh
from polyhal.functions import argmax as argmax
from polyhal.functions import argmin as argmin
from polyhal.functions import argsort as argsort
from polyhal.functions import argwhere as argwhere
from polyhal.functions import asin as asin
from polyhal.functions import asinh as asinh
from polyhal.functions import atan as atan
from polyhal.functions import atan2 as atan2
from polyhal.functions import atanh as atanh
from polyhal.functions import atleast_1d as atleast_1d
from polyhal.functions import atleast_2d as atleast_2d
from polyhal.functions import atleast_3d as atleast_3d
from polyhal.functions import avg_pool2d as avg_pool2d
from polyhal.functions import baddbmm as baddbmm
from polyhal.functions import bincount as bincount
from polyhal.functions import bitwise_and as bitwise_and
from polyhal.functions import bitwise_invert as bitwise_invert
from polyhal.functions import bitwise_left_shift as bitwise_left_shift
from polyhal.functions import bitwise_not as bitwise_not
from polyhal.functions import bitwise_or as bitwise_or
from polyhal.functions import bitwise_right_shift as bitwise_right_shift
from polyhal.functions import bitwise_xor as bitwise_xor
from polyhal.functions import block_diag as block_diag
from polyhal.functions import bmm as bmm
from polyhal.functions import broadcast_arrays as broadcast_arrays
from polyhal.functions import broadcast_tensors as broadcast_tensors
from polyhal.functions import broadcast_to as broadcast_to
from polyhal.functions import bucketize as bucketize
from polyhal.functions import cartesian_prod as cartesian_prod
from polyhal.functions import cast as cast
from polyhal.functions import cat as cat
from polyhal.functions import cdist as cdist
from polyhal.functions import ceil as ceil
from polyhal.functions import celu as celu
from polyhal.functions import chain_matmul as chain_matmul
from polyhal.functions import cholesky as cholesky
from polyhal.functions import cholesky_inverse as cholesky_inverse
from polyhal.functions import cholesky_solve as cholesky_solve
from polyhal.functions import chunk as chunk
from polyhal.functions import clamp as clamp
from polyhal.functions import clamp_max as clamp_max
from polyhal.functions import clamp_min as clamp_min
from polyhal.functions import clip as clip
from polyhal.functions import clone as clone
from polyhal.functions import column_stack as column_stack
from polyhal.functions import combinations as combinations
from polyhal.functions import complex as complex
from polyhal.functions import concat as concat
from polyhal.functions import concatenate as concatenate
from polyhal.functions import conj as conj
from polyhal.functions import constant_pad_nd as constant_pad_nd
from polyhal.functions import contiguous as contiguous
from polyhal.functions import conv2d as conv2d
from polyhal.functions import copy as copy
from polyhal.functions import copysign as copysign
from polyhal.functions import corrcoef as corrcoef
from polyhal.functions import cos as cos
from polyhal.functions import cosh as cosh
from polyhal.functions import cosine_similarity as cosine_similarity
from polyhal.functions import count_nonzero as count_nonzero
from polyhal.functions import cov as cov
from polyhal.functions import cross as cross
from polyhal.functions import cummax as cummax
from polyhal.functions import cummin as cummin
from polyhal.functions import cumprod as cumprod
from polyhal.functions import cumsum as cumsum
from polyhal.functions import cumulative_prod as cumulative_prod
from polyhal.functions import cumulative_sum as cumulative_sum
from polyhal.functions import cumulative_trapezoid as cumulative_trapezoid
from polyhal.functions import deg2rad as deg2rad
from polyhal.functions import det as det
from polyhal.functions import diag as diag
from polyhal.functions import diag_embed as diag_embed
from polyhal.functions import diagflat as diagflat
from polyhal.functions import diagonal as diagonal
from polyhal.functions import diagonal_scatter as diagonal_scatter
from polyhal.functions import diff as diff
from polyhal.functions import digamma as digamma
from polyhal.functions import dist as dist
from polyhal.functions import div as div
from polyhal.functions import divide as divide
from polyhal.functions import dot as dot
from polyhal.functions import dsplit as dsplit
from polyhal.functions import dstack as dstack
from polyhal.functions import einsum as einsum
from polyhal.functions import elu as elu
from polyhal.functions import embedding as embedding
from polyhal.functions import eq as eq
from polyhal.functions import equal as equal
from polyhal.functions import erf as erf
from polyhal.functions import erfc as erfc
from polyhal.functions import erfinv as erfinv
from polyhal.functions import exp as exp
from polyhal.functions import exp2 as exp2
from polyhal.functions import expand_as as expand_as
from polyhal.functions import expand_dims as expand_dims
from polyhal.functions import expm1 as expm1
from polyhal.functions import fix as fix
from polyhal.functions import flatten as flatten
from polyhal.functions import flip as flip
from polyhal.functions import fliplr as fliplr
from polyhal.functions import flipud as flipud
from polyhal.functions import float_power as float_power
from polyhal.functions import floor as floor
from polyhal.functions import floor_divide as floor_divide
from polyhal.functions import fmax as fmax
from polyhal.functions import fmin as fmin
from polyhal.functions import fmod as fmod
from polyhal.functions import frac as frac
from polyhal.functions import frexp as frexp
from polyhal.functions import fused_linear as fused_linear
from polyhal.functions import gather as gather
from polyhal.functions import gcd as gcd
from polyhal.functions import ge as ge
from polyhal.functions import gelu as gelu
from polyhal.functions import geqrf as geqrf
from polyhal.functions import ger as ger
from polyhal.functions import glu as glu
from polyhal.functions import gradient as gradient
from polyhal.functions import greater as greater
from polyhal.functions import greater_equal as greater_equal
from polyhal.functions import gt as gt
from polyhal.functions import hardshrink as hardshrink
from polyhal.functions import hardsigmoid as hardsigmoid
from polyhal.functions import hardswish as hardswish
from polyhal.functions import hardtanh as hardtanh
from polyhal.functions import heaviside as heaviside
from polyhal.functions import histc as histc
from polyhal.functions import histogram as histogram
from polyhal.functions import histogramdd as histogramdd
from polyhal.functions import hsplit as hsplit
from polyhal.functions import hstack as hstack
from polyhal.functions import hypot as hypot
from polyhal.functions import i0 as i0
from polyhal.functions import igamma as igamma
from polyhal.functions import igammac as igammac
from polyhal.functions import imag as imag
from polyhal.functions import index_add as index_add
from polyhal.functions import index_copy as index_copy
from polyhal.functions import index_fill as index_fill
from polyhal.functions import index_put as index_put
from polyhal.functions import index_reduce as index_reduce
from polyhal.functions import index_select as index_select
from polyhal.functions import inner as inner
from polyhal.functions import inverse as inverse
from polyhal.functions import isclose as isclose
from polyhal.functions import isfinite as isfinite
from polyhal.functions import isin as isin
from polyhal.functions import isinf as isinf
from polyhal.functions import isnan as isnan
from polyhal.functions import isneginf as isneginf
from polyhal.functions import isposinf as isposinf
from polyhal.functions import isreal as isreal
from polyhal.functions import istft as istft
from polyhal.functions import kron as kron
from polyhal.functions import kthvalue as kthvalue
from polyhal.functions import lcm as lcm
from polyhal.functions import ldexp as ldexp
from polyhal.functions import le as le
from polyhal.functions import leaky_relu as leaky_relu
from polyhal.functions import lerp as lerp
from polyhal.functions import less as less
from polyhal.functions import less_equal as less_equal
from polyhal.functions import lgamma as lgamma
from polyhal.functions import linear as linear
from polyhal.functions import log as log
from polyhal.functions import log10 as log10
from polyhal.functions import log1p as log1p
from polyhal.functions import log2 as log2
from polyhal.functions import log_softmax as log_softmax
from polyhal.functions import logaddexp as logaddexp
from polyhal.functions import logaddexp2 as logaddexp2
from polyhal.functions import logcumsumexp as logcumsumexp
from polyhal.functions import logdet as logdet
from polyhal.functions import logical_and as logical_and
from polyhal.functions import logical_not as logical_not
from polyhal.functions import logical_or as logical_or
from polyhal.functions import logical_xor as logical_xor
from polyhal.functions import logit as logit
from polyhal.functions import logsigmoid as logsigmoid
from polyhal.functions import logsumexp as logsumexp
from polyhal.functions import lt as lt
from polyhal.functions import lu_unpack as lu_unpack
from polyhal.functions import masked_fill as masked_fill
from polyhal.functions import masked_scatter as masked_scatter
from polyhal.functions import masked_select as masked_select
from polyhal.functions import matmul as matmul
from polyhal.functions import matrix_exp as matrix_exp
from polyhal.functions import matrix_power as matrix_power
from polyhal.functions import matrix_transpose as matrix_transpose
from polyhal.functions import max as max
from polyhal.functions import max_pool2d as max_pool2d
from polyhal.functions import maximum as maximum
from polyhal.functions import mean as mean
from polyhal.functions import median as median
from polyhal.functions import meshgrid as meshgrid
from polyhal.functions import min as min
from polyhal.functions import minimum as minimum
from polyhal.functions import mish as mish
from polyhal.functions import mm as mm
from polyhal.functions import mode as mode
from polyhal.functions import moveaxis as moveaxis
from polyhal.functions import movedim as movedim
from polyhal.functions import msort as msort
from polyhal.functions import mul as mul
from polyhal.functions import multiply as multiply
from polyhal.functions import mv as mv
from polyhal.functions import mvlgamma as mvlgamma
from polyhal.functions import nan_to_num as nan_to_num
from polyhal.functions import nanmean as nanmean
from polyhal.functions import nanmedian as nanmedian
from polyhal.functions import nanquantile as nanquantile
from polyhal.functions import nansum as nansum
from polyhal.functions import narrow as narrow
from polyhal.functions import ne as ne
from polyhal.functions import neg as neg
from polyhal.functions import negative as negative
from polyhal.functions import nextafter as nextafter
from polyhal.functions import nonzero as nonzero
from polyhal.functions import nonzero_static as nonzero_static
from polyhal.functions import norm as norm
from polyhal.functions import not_equal as not_equal
from polyhal.functions import orgqr as orgqr
from polyhal.functions import ormqr as ormqr
from polyhal.functions import outer as outer
from polyhal.functions import pad as pad
from polyhal.functions import pairwise_distance as pairwise_distance
from polyhal.functions import pdist as pdist
from polyhal.functions import permute as permute
from polyhal.functions import permute_dims as permute_dims
from polyhal.functions import pinverse as pinverse
from polyhal.functions import polar as polar
from polyhal.functions import polygamma as polygamma
from polyhal.functions import positive as positive
from polyhal.functions import pow as pow
from polyhal.functions import prelu as prelu
from polyhal.functions import prod as prod
from polyhal.functions import put as put
from polyhal.functions import quantile as quantile
from polyhal.functions import rad2deg as rad2deg
from polyhal.functions import ravel as ravel
from polyhal.functions import real as real
from polyhal.functions import reciprocal as reciprocal
from polyhal.functions import relu as relu
from polyhal.functions import relu6 as relu6
from polyhal.functions import remainder as remainder
from polyhal.functions import renorm as renorm
from polyhal.functions import repeat as repeat
from polyhal.functions import repeat_interleave as repeat_interleave
from polyhal.functions import reshape as reshape
from polyhal.functions import reshape_as as reshape_as
from polyhal.functions import roll as roll
from polyhal.functions import rot90 as rot90
from polyhal.functions import round as round
from polyhal.functions import row_stack as row_stack
from polyhal.functions import rsqrt as rsqrt
from polyhal.functions import rsub as rsub
from polyhal.functions import scatter as scatter
from polyhal.functions import scatter_add as scatter_add
from polyhal.functions import scatter_reduce as scatter_reduce
from polyhal.functions import searchsorted as searchsorted
from polyhal.functions import segment_reduce as segment_reduce
from polyhal.functions import select as select
from polyhal.functions import select_scatter as select_scatter
from polyhal.functions import selu as selu
from polyhal.functions import sgn as sgn
from polyhal.functions import sigmoid as sigmoid
from polyhal.functions import sign as sign
from polyhal.functions import signbit as signbit
from polyhal.functions import silu as silu
from polyhal.functions import sin as sin
from polyhal.functions import sinc as sinc
from polyhal.functions import sinh as sinh
from polyhal.functions import slice_scatter as slice_scatter
from polyhal.functions import slogdet as slogdet
from polyhal.functions import softmax as softmax
from polyhal.functions import softplus as softplus
from polyhal.functions import softshrink as softshrink
from polyhal.functions import softsign as softsign
from polyhal.functions import sort as sort
from polyhal.functions import split as split
from polyhal.functions import split_with_sizes as split_with_sizes
from polyhal.functions import sqrt as sqrt
from polyhal.functions import square as square
from polyhal.functions import squeeze as squeeze
from polyhal.functions import stack as stack
from polyhal.functions import std as std
from polyhal.functions import std_mean as std_mean
from polyhal.functions import stft as stft
from polyhal.functions import sub as sub
from polyhal.functions import subtract as subtract
from polyhal.functions import sum as sum
from polyhal.functions import sum_to as sum_to
from polyhal.functions import sum_to_size as sum_to_size
from polyhal.functions import swapaxes as swapaxes
from polyhal.functions import swapdims as swapdims
from polyhal.functions import t as t
from polyhal.functions import take as take
from polyhal.functions import take_along_axis as take_along_axis
from polyhal.functions import take_along_dim as take_along_dim
from polyhal.functions import tan as tan
from polyhal.functions import tanh as tanh
from polyhal.functions import tanhshrink as tanhshrink
from polyhal.functions import tensor_split as tensor_split
from polyhal.functions import tensordot as tensordot
from polyhal.functions import threshold as threshold
from polyhal.functions import tile as tile
from polyhal.functions import topk as topk
from polyhal.functions import trace as trace
from polyhal.functions import transpose as transpose
from polyhal.functions import trapezoid as trapezoid
from polyhal.functions import trapz as trapz
from polyhal.functions import tril as tril
from polyhal.functions import triu as triu
from polyhal.functions import true_divide as true_divide
from polyhal.functions import trunc as trunc
from polyhal.functions import truncating_divide as truncating_divide
from polyhal.functions import unbind as unbind
from polyhal.functions import unflatten as unflatten
from polyhal.functions import unique as unique
from polyhal.functions import unique_all as unique_all
from polyhal.functions import unique_consecutive as unique_consecutive
from polyhal.functions import unique_counts as unique_counts
from polyhal.functions import unique_inverse as unique_inverse
from polyhal.functions import unique_values as unique_values
from polyhal.functions import unravel_index as unravel_index
from polyhal.functions import unsqueeze as unsqueeze
from polyhal.functions import unstack as unstack
from polyhal.functions import vander as vander
from polyhal.functions import var as var
from polyhal.functions import var_mean as var_mean
from polyhal.functions import vdot as vdot
from polyhal.functions import vecdot as vecdot
from polyhal.functions import view_as as view_as
from polyhal.functions import view_as_complex as view_as_complex
from polyhal.functions import view_as_real as view_as_real
from polyhal.functions import vsplit as vsplit
from polyhal.functions import vstack as vstack
from polyhal.functions import where as where
from polyhal.functions import xlogy as xlogy
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
from polyhal.creation import full as full
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
