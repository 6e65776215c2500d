"""`declare_along_axis`: ops along one `axis`, for which a tensor without axes counts as a vector of one element.

NumPy and PyTorch accept axis 0 or -1 there. Rules, references, decompositions and gradients of such ops see the vector, so
that none of them needs a case for it; the planner asks no native kernel for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from polyhal.hal.layout import AxisRangeError, Spec
from polyhal.hal.ops.declare import (
    OPS,
    Decompose,
    OpFunction,
    OpOptions,
    Output,
    Samples,
    Specs,
    Trait,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.opdef import InferRule
from polyhal.hal.ops.tensor_like import TensorLike


def declare_along_axis(
    reference: Callable[..., Any],
    *,
    name: str,
    family: str,
    infer: InferRule,
    decompose: Callable[..., Any],
    widen: bool = True,
    outputs: tuple[str, ...] = ("out",),
    samples: Samples,
    doc: str = "",
    **options: Unpack[OpOptions],
) -> OpFunction:
    """Declare an op with a parameter `axis`. `decompose` and `widen` are those of the strategy `Decompose`.

    Tensors of other ranks than the first are left as they are.
    """
    options["traits"] = options.get("traits", Trait.NONE) | Trait.ALONG_AXIS
    if "gradient" in options:
        declared = options["gradient"]
        options["gradient"] = (
            tuple(f and _gradient(f) for f in declared) if isinstance(declared, tuple) else _gradient(declared)
        )
    return declare(
        _reference(reference),
        name=name,
        doc=doc,
        family=family,
        infer=_infer(infer),
        lowering=Decompose(_decompose(name, decompose), widen=widen),
        outputs=outputs,
        samples=samples,
        **options,
    )


def _infer(rule: InferRule) -> InferRule:
    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        if first_tensor(specs).ndim:
            return list(rule(specs, params))
        if params["axis"] not in (0, -1):
            raise AxisRangeError(f"axis {params['axis']} is out of range for a tensor of 0 axes")
        vectors = tuple(_vector_spec(s) for s in specs)
        return [(dtype, () if shape == (1,) else shape) for dtype, shape in rule(vectors, params)]

    return infer


def _vector_spec(spec: Any) -> Any:
    return Spec(spec.dtype, (1,), (1,), spec.aligned) if isinstance(spec, Spec) and not spec.ndim else spec


def _reference(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def reference(*arrays: Any, **params: Any) -> Any:
        if np.ndim(arrays[0]):
            return function(*arrays, **params)
        result = function(*(np.reshape(x, 1) for x in arrays), **params)
        return tuple(map(_without_axis, result)) if isinstance(result, tuple) else _without_axis(result)

    return reference


def _decompose(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decompose(*inputs: Any, **params: Any) -> Any:
        if inputs[0].ndim:
            return function(*inputs, **params)
        result = OPS[name].call(*map(_vector, inputs), **params)
        return tuple(map(_without_axis, result)) if isinstance(result, tuple) else _without_axis(result)

    return decompose


def _gradient(rule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(rule)
    def gradient(*inputs: Any, **params: Any) -> Any:
        if all(x.ndim for x in inputs if hasattr(x, "ndim")):
            return rule(*inputs, **params)
        result = rule(*(_vector_spec(x) if isinstance(x, Spec) else _vector(x) for x in inputs), **params)
        return tuple(map(_without_axis, result)) if isinstance(result, tuple) else _without_axis(result)

    return gradient


def _vector(x: TensorLike) -> Any:
    return reshape(x, (1,)) if hasattr(x, "spec") and not x.ndim else x


def _without_axis(x: TensorLike) -> Any:
    """A vector of one element without its axis; anything else as it is."""
    if isinstance(x, np.ndarray):
        return x.reshape(()) if x.shape == (1,) else x
    return reshape(x, ()) if hasattr(x, "spec") and x.shape == (1,) else x
