"""Layers as functions: everything that `polyhal.nn` modules compute, with parameters as arguments."""

from types import ModuleType as _ModuleType

from polyhal.nn.functional.activation import (
    elu,
    gelu,
    glu,
    gumbel_softmax,
    hardtanh,
    leaky_relu,
    log_softmax,
    prelu,
    relu,
    relu6,
    rrelu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    tanh,
)
from polyhal.nn.functional.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from polyhal.nn.functional.attention import capped_attention, scaled_dot_product_attention
from polyhal.nn.functional.classification import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    linear_cross_entropy,
    nll_loss,
)
from polyhal.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from polyhal.nn.functional.ctc import ctc_loss
from polyhal.nn.functional.distance import cosine_similarity, pairwise_distance, pdist
from polyhal.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from polyhal.nn.functional.embedding import embedding, embedding_bag
from polyhal.nn.functional.generation import penalize, sample_tokens
from polyhal.nn.functional.grid import affine_grid, grid_sample
from polyhal.nn.functional.inplace import (
    celu_,
    elu_,
    hardtanh_,
    leaky_relu_,
    relu_,
    rrelu_,
    selu_,
    threshold_,
)
from polyhal.nn.functional.interpolation import interpolate, upsample, upsample_bilinear, upsample_nearest
from polyhal.nn.functional.linear import bilinear, linear, one_hot
from polyhal.nn.functional.margin import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from polyhal.nn.functional.multihead import (
    merge_heads,
    multi_head_attention_forward,
    split_heads,
    split_projection,
)
from polyhal.nn.functional.norm import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from polyhal.nn.functional.padding import pad
from polyhal.nn.functional.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from polyhal.nn.functional.rearranging import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unfold
from polyhal.nn.functional.reduction import Reduction
from polyhal.nn.functional.regression import (
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from polyhal.nn.functional.smooth_activation import (
    celu,
    hardshrink,
    hardsigmoid,
    hardswish,
    logsigmoid,
    mish,
    selu,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from polyhal.nn.functional.unpooling import (
    fractional_max_pool2d,
    fractional_max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__all__ = sorted(n for n, value in globals().items() if not n.startswith("_") and not isinstance(value, _ModuleType))
"""Every imported function; type checkers read the names in `__init__.pyi`."""
