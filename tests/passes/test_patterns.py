"""Formulas in all known forms, on each device, against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.compile.ir.rewriter import can_fuse
from polyhal.hal.compile.passes.pipeline import optimize
from polyhal.hal.device import Device
from polyhal.steps.block import capture

from .rich_device import rich_device

F = ph.functions
Formula = Callable[[Any, Any, Any], Any]


def _softmax(x: Any, w: Any, b: Any) -> Any:
    e = F.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _softmax_of_columns(x: Any, w: Any, b: Any) -> Any:
    e = F.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def _log_softmax(x: Any, w: Any, b: Any) -> Any:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - F.log(F.exp(shifted).sum(axis=-1, keepdims=True))


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / F.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * w + b


def _layer_norm_by_var(x: Any, w: Any, b: Any) -> Any:
    return b + w * ((x - x.mean(axis=-1, keepdims=True)) * F.rsqrt(x.var(axis=-1, keepdims=True) + 1e-5))


def _layer_norm_by_sums(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    return centred / F.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def _rms_norm(x: Any, w: Any, b: Any) -> Any:
    return x * F.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * w


def _gelu(x: Any, w: Any, b: Any) -> Any:
    return 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_factored(x: Any, w: Any, b: Any) -> Any:
    return x * (0.5 * (1 + F.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))))


def _gelu_by_erf(x: Any, w: Any, b: Any) -> Any:
    return x * 0.5 * (1.0 + F.erf(x / math.sqrt(2)))


def _exact(op: str, x: np.ndarray, w: Any, b: Any) -> np.ndarray:
    from polyhal.hal.ops.opdef import OPS

    given: dict[str, tuple[Any, ...]] = {"layer_norm": (x, w, b), "rms_norm": (x, w)}
    params = {"layer_norm": {"eps": 1e-5}, "rms_norm": {"eps": 1e-6}}.get(op, {})
    made = OPS[op].reference(*given.get(op, (x,)), **params)
    return np.asarray(made[0] if isinstance(made, tuple) else made)


_CASES: list[tuple[Formula, str, Callable[[Any, Any, Any], np.ndarray]]] = [
    (_softmax, "softmax", lambda x, w, b: _exact("softmax", x, w, b)),
    (_softmax_of_columns, "softmax", lambda x, w, b: _exact("softmax", x.T, w, b).T),
    (_log_softmax, "log_softmax", lambda x, w, b: _exact("log_softmax", x, w, b)),
    (_layer_norm, "layer_norm", lambda x, w, b: _exact("layer_norm", x, w, b)),
    (_layer_norm_by_var, "layer_norm", lambda x, w, b: _exact("layer_norm", x, w, b)),
    (_layer_norm_by_sums, "layer_norm", lambda x, w, b: _exact("layer_norm", x, None, None)),
    (_rms_norm, "rms_norm", lambda x, w, b: _exact("rms_norm", x, w, b)),
    (_gelu, "gelu", lambda x, w, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    (_gelu_factored, "gelu", lambda x, w, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    (_gelu_by_erf, "gelu", lambda x, w, b: _exact("gelu", x, w, b)),
]


def _check(formula: Formula, op: str, exact: Callable[[Any, Any, Any], np.ndarray], device: Device) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-3, 3, s).astype(np.float32) for s in [(6, 32), (32,), (32,)]]
    tensors = [ph.Tensor(a, device=device) for a in arrays]
    with capture() as step:
        result = formula(*tensors)
    found = [n.op.name for n in optimize(step.graph).nodes]
    assert (found == [op]) == can_fuse(step.graph.nodes[0])
    wanted = exact(*[a.astype(np.float64) for a in arrays])
    np.testing.assert_allclose(result.numpy(), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("formula", "op", "exact"), _CASES)
def test_every_spelling(formula: Formula, op: str, exact: Any) -> None:
    _check(formula, op, exact, rich_device())


@pytest.mark.parametrize(("formula", "op", "exact"), [_CASES[i] for i in (0, 3, 6, 7)])
def test_on_each_device(formula: Formula, op: str, exact: Any, device: Device) -> None:
    _check(formula, op, exact, device)
