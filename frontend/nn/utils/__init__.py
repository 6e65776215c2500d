"""Gradient clipping, parameters as one vector, fused batch norms, parametrizations, and packed sequences (`utils.rnn`)."""

from polyhal.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from polyhal.nn.utils.gradients import (
    CHUNK,
    chunks,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    total_norm,
    vector_to_parameters,
)

__all__ = [
    "CHUNK", "chunks", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "total_norm", "vector_to_parameters",
]  # fmt: skip
