"""Property-based tests: random shapes, views and dtypes against NumPy. Skipped if `hypothesis` is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.samples import Tolerance
from polyhal.hal.system.reference.tolerances import EXACT, Bound, check_close
from polyhal.hal.testing.kit.sample_calls import cast_sample
from polyhal.hal.testing.kit.scope import Scope
from polyhal.tensor import Tensor

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

_DTYPES = (dtypes.float32, dtypes.float16, dtypes.int32, dtypes.uint8, dtypes.int64)
_MAX_LENGTH = 7
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "less": np.less,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "max": np.max}


def _run(body: Any, scope: Scope, *strategies: Any) -> None:
    """Call `body` with drawn values, which are equal in every run, so that a failure can be reproduced."""
    if scope.few_shapes:
        pytest.skip("the shapes are random")
    settings = hypothesis.settings(
        max_examples=10 if scope.small else 200 if scope.full else 40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.given(*strategies)(body))()


def _dtype(draw: Any, device: Device) -> DType:
    dtype: DType = draw(st.sampled_from([d for d in _DTYPES if d in device.capabilities.storage]))
    return dtype


def _array(draw: Any, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return cast_sample(rng.uniform(-4, 4, shape), dtype)


def _shape(draw: Any, min_axes: int = 0) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0 if not min_axes else 1, _MAX_LENGTH), min_size=min_axes, max_size=4)))


def _view(draw: Any, array: np.ndarray, tensor: Tensor) -> tuple[np.ndarray, Tensor]:
    """Apply equal random views to an array and a tensor."""
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["permute", "slice", "new axis", "broadcast", "index"]))
        if kind == "permute":
            axes = tuple(draw(st.permutations(range(array.ndim))))
            array, tensor = array.transpose(axes), FUNCTIONS["permute"](tensor, axes)
        elif kind == "slice" and array.ndim:
            index = tuple(
                slice(draw(st.integers(0, n)), None, draw(st.sampled_from([1, 2])))
                if draw(st.booleans())
                else slice(None, None, -1)
                for n in array.shape
            )
            array, tensor = array[index], tensor[index]
        elif kind == "new axis" and array.ndim < 5:
            array, tensor = array[..., None], tensor[..., None]
        elif kind == "broadcast" and array.ndim < 5:
            shape = (draw(st.integers(1, 3)), *array.shape)
            array, tensor = np.broadcast_to(array, shape), FUNCTIONS["broadcast_to"](tensor, shape)
        elif kind == "index" and array.ndim and array.shape[0]:
            i = draw(st.integers(0, array.shape[0] - 1))
            array, tensor = np.asarray(array[i]), tensor[i]
    return array, tensor


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if as_dtype(array.dtype).is_floating_point else array


def test_views(polyhal_device: Device, polyhal_scope: Scope) -> None:
    """Check chains of views, copied to the host."""

    def body(data: Any) -> None:
        array = _array(data.draw, _shape(data.draw), _dtype(data.draw, polyhal_device))
        array, tensor = _view(data.draw, array, Tensor(array, device=polyhal_device))
        check_close(tensor.numpy(), array, tensor.dtype, Bound(EXACT), f"view {tensor.spec}")
        check_close(tensor.clone().numpy(), array, tensor.dtype, Bound(EXACT), f"copy of {tensor.spec}")

    _run(body, polyhal_scope, st.data())


def test_elementwise(polyhal_device: Device, polyhal_scope: Scope) -> None:
    """Check binary ops on views of broadcastable shapes."""

    def body(data: Any) -> None:
        dtype = _dtype(data.draw, polyhal_device)
        x = _array(data.draw, _shape(data.draw), dtype)
        x, left = _view(data.draw, x, Tensor(x, device=polyhal_device))
        tail = x.shape[data.draw(st.integers(0, x.ndim)) :]
        y = _array(data.draw, tuple(1 if data.draw(st.booleans()) else n for n in tail), dtype)
        right = Tensor(y, device=polyhal_device)
        name = data.draw(st.sampled_from(sorted(_ELEMENTWISE)))
        out = FUNCTIONS[name](left, right)
        bound = Bound(Tolerance(0.5) if name in ("add", "subtract", "multiply") else EXACT)
        check_close(
            out.numpy(),
            _ELEMENTWISE[name](_wide(x), _wide(y)),
            out.dtype,
            bound,
            f"{name} of {left.spec} and {right.spec}",
        )

    _run(body, polyhal_scope, st.data())


def test_reductions(polyhal_device: Device, polyhal_scope: Scope) -> None:
    """Check reductions of views over random axes."""

    def body(data: Any) -> None:
        x = _array(data.draw, _shape(data.draw, 1), _dtype(data.draw, polyhal_device))
        x, tensor = _view(data.draw, x, Tensor(x, device=polyhal_device))
        axes = tuple(a for a in range(x.ndim) if data.draw(st.booleans()))
        name = data.draw(st.sampled_from(sorted(_REDUCTIONS) if x.size else ["sum"]))
        keepdims = data.draw(st.booleans())
        out = FUNCTIONS[name](tensor, axes, keepdims)
        wide = _wide(x)
        terms = max(x.size // max(out.size, 1), 1)
        bound = (
            Bound(EXACT)
            if name == "max"
            else Bound(Tolerance(1.0), terms, np.abs(wide).sum(axis=axes, keepdims=keepdims))
        )
        check_close(
            out.numpy(),
            _REDUCTIONS[name](wide, axis=axes, keepdims=keepdims),
            out.dtype,
            bound,
            f"{name} of {tensor.spec} over {axes}",
        )

    _run(body, polyhal_scope, st.data())


def test_matmul(polyhal_device: Device, polyhal_scope: Scope) -> None:
    """Check matrix products of transposed, sliced and broadcast operands."""
    max_length = 9 if polyhal_scope.small else 40

    def body(data: Any) -> None:
        m, k, n = (data.draw(st.integers(1, max_length)) for _ in range(3))
        batch = data.draw(st.sampled_from([(), (2,), (2, 3), (1, 3)]))
        x, y = _array(data.draw, (*batch, m, k), dtypes.float32), _array(data.draw, (*batch[1:], k, n), dtypes.float32)
        left, right = Tensor(x, device=polyhal_device), Tensor(y, device=polyhal_device)
        if data.draw(st.booleans()):
            left = Tensor(np.ascontiguousarray(np.swapaxes(x, -1, -2)), device=polyhal_device).mT
        if data.draw(st.booleans()):
            wide = Tensor(np.repeat(y, 2, axis=-1), device=polyhal_device)
            right = wide[..., ::2]
        out = left @ right
        bound = Bound(Tolerance(1.0), k, np.abs(_wide(x)) @ np.abs(_wide(y)))
        check_close(out.numpy(), _wide(x) @ _wide(y), out.dtype, bound, f"{left.spec} @ {right.spec}")

    _run(body, polyhal_scope, st.data())
