"""Gradient clipping, parameters as one vector, parametrizations of weights, and packed sequences (`utils.rnn`)."""

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
    "CHUNK", "chunks", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "total_norm", "vector_to_parameters",
]  # fmt: skip
