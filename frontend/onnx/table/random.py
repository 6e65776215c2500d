"""Random numbers: of Polyhal's generators, whose seed is `polyhal.manual_seed`, not an attribute of a node."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.element_types import device_dtype, numpy_dtype
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


def _dtype(element_type: int | None, like: Value = None) -> Any:
    found = None if element_type is None else numpy_dtype(element_type)
    return (like.dtype if like is not None else ph.float32) if found is None else device_dtype(found)


@operator("RandomNormal", foldable=False)
def random_normal(
    *, shape: Value, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Value = None, node: NodeFacts
) -> Any:
    return (ph.randn(*shape, device=node.device) * scale + mean).to(_dtype(dtype))


@operator("RandomNormalLike", foldable=False)
def random_normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: Value = None
) -> Any:
    return (ph.randn(*x.shape, device=x.device) * scale + mean).to(_dtype(dtype, x))


@operator("RandomUniform", foldable=False)
def random_uniform(
    *, shape: Value, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: Value = None, node: NodeFacts
) -> Any:
    return (ph.rand(*shape, device=node.device) * (high - low) + low).to(_dtype(dtype))


@operator("RandomUniformLike", foldable=False)
def random_uniform_like(
    x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: Value = None
) -> Any:
    return (ph.rand(*x.shape, device=x.device) * (high - low) + low).to(_dtype(dtype, x))


@operator("Multinomial", foldable=False)
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: Value = None) -> Any:
    return ph.multinomial(ph.softmax(x, -1), sample_size, True).to(_dtype(dtype))


@operator("Dropout", host=("ratio", "training_mode"), foldable=False)
def dropout(x: Tensor, ratio: Value = None, training_mode: Value = None, *, seed: Value = None, node: NodeFacts) -> Any:
    share = 0.5 if ratio is None else float(np.asarray(ratio).reshape(-1)[0])
    training = training_mode is not None and bool(integers(training_mode)[0])
    if not training or not share:
        return (x, ph.ones(x.shape, dtype=ph.bool_, device=x.device)) if node.uses(1) else x
    kept = ph.rand(*x.shape, device=x.device) >= share
    return ph.where(kept, x / (1 - share), 0.0), kept
