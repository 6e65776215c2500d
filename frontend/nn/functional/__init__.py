"""Layers as functions: everything that `polyhal.nn` modules compute, with parameters as arguments."""

from polyhal.nn.functional.activation import (
    dropout,
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
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
from polyhal.nn.functional.attention import scaled_dot_product_attention
from polyhal.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from polyhal.nn.functional.distance import cosine_similarity, pairwise_distance, pdist
from polyhal.nn.functional.grid import affine_grid, grid_sample
from polyhal.nn.functional.interpolation import interpolate, upsample, upsample_bilinear, upsample_nearest
from polyhal.nn.functional.linear import embedding, linear, one_hot
from polyhal.nn.functional.loss import (
    Reduction,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from polyhal.nn.functional.norm import batch_norm, group_norm, layer_norm, normalize, rms_norm
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
from polyhal.nn.functional.unpooling import (
    fractional_max_pool2d,
    fractional_max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__all__ = [
    "Reduction", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "binary_cross_entropy_with_logits", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "cross_entropy", "dropout",
    "elu", "embedding", "fold", "fractional_max_pool2d", "fractional_max_pool3d", "gelu", "grid_sample", "group_norm",
    "interpolate", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mse_loss",
    "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
    "relu", "rms_norm", "scaled_dot_product_attention", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softmin",
    "softplus", "tanh", "unfold", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
