"""Gradient clipping, parameters as one vector, fused batch norms, parametrizations, summaries, and packed sequences."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyhal.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from polyhal.nn.utils.gradients import (
    CHUNK,
    chunks,
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    total_norm,
    vector_to_parameters,
)

if TYPE_CHECKING:
    from polyhal.nn.utils.model_summary import summary
    from polyhal.nn.utils.reparametrize import (
        remove_spectral_norm,
        remove_weight_norm,
        spectral_norm,
        weight_norm,
    )

_LATER = {
    "remove_spectral_norm": "reparametrize",
    "remove_weight_norm": "reparametrize",
    "spectral_norm": "reparametrize",
    "summary": "model_summary",
    "weight_norm": "reparametrize",
}
"""Names that are imported lazily: their modules need layers, which need this package."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


__all__ = [
    "CHUNK", "chunks", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector",
    "remove_spectral_norm", "remove_weight_norm", "spectral_norm", "summary", "total_norm", "vector_to_parameters",
    "weight_norm",
]  # fmt: skip
