"""Elements of 8 bits and fewer in models: casts by the formats' own tables, quantized weights, and activations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")

from onnx import TensorProto, helper, numpy_helper

from polyhal.onnx import OnnxModule, load
from polyhal.onnx.narrow_types import narrowed
from tests.onnx.page import PAGE, with_table
from tests.onnx.page import load as recorded_counts

FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")


def _values(dtype: np.dtype) -> np.ndarray:
    """Return all finite numbers of a format, in order."""
    bits = np.arange(16 if "float4" in dtype.name else 256, dtype=np.uint8).view(dtype).astype(np.float64)
    return np.unique(bits[np.isfinite(bits)])


@pytest.mark.parametrize("name", FLOAT8)
def test_numbers_round_to_the_nearest_of_the_format(name: str) -> None:
    """Between all neighbours: a little below the middle, a little above, and on both."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = _values(dtype)
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    step = (high - low) / 64
    for given, expected in ((low, low), (high, high), (middle - step, low), (middle + step, high)):
        np.testing.assert_array_equal(narrowed(given.astype(np.float32), dtype).astype(np.float64), expected)
    ties = narrowed(middle.astype(np.float32), dtype)
    even = np.where(low.astype(dtype).view(np.uint8) % 2 == 0, low, high)
    np.testing.assert_array_equal(np.abs(ties.astype(np.float64)), np.abs(even))


@pytest.mark.parametrize("name", FLOAT8)
def test_larger_numbers_saturate_unless_told_otherwise(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    largest = _values(dtype)[-1]
    given = np.float32([2 * largest, -2 * largest, np.inf, -np.inf])
    np.testing.assert_array_equal(narrowed(given, dtype).astype(float), [largest, -largest, largest, -largest])
    other = narrowed(given, dtype, saturate=False).astype(float)
    if name == "float8_e5m2":
        np.testing.assert_array_equal(other, given * np.inf)
    elif name != "float4_e2m1fn":  # which has neither infinities nor NaN
        assert np.isnan(other).all()


@pytest.mark.parametrize(
    ("mode", "expected"), [("up", [1, 2, 2, 4]), ("down", [1, 1, 1, 2]), ("nearest", [1, 1, 2, 4])]
)
def test_powers_of_two(mode: str, expected: list[float]) -> None:
    dtype = np.dtype(ml_dtypes.float8_e8m0fnu)
    given = np.float32([1, 1.25, 1.75, 3.5])
    np.testing.assert_array_equal(narrowed(given, dtype, round_mode=mode).astype(float), expected)
    ends = narrowed(np.float32([0, -1, np.inf, np.nan]), dtype).astype(float)
    np.testing.assert_array_equal(ends, [2.0**-127, np.nan, 2.0**127, np.nan])


def _loaded(nodes: list[Any], output: int, stored: dict[str, np.ndarray]) -> OnnxModule:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), device="numpy")


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e4m3fn", "float4_e2m1fn"])
def test_quantized_weights_are_part_of_a_captured_step(name: str) -> None:
    """`x @ (w - zero) * scale`, whose weights are stored transposed."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    weights = np.arange(-6, 6).reshape(3, 4) if not name.startswith("u") else np.arange(12).reshape(3, 4)
    stored = {
        "w": weights.astype(dtype),
        "scale": np.float32([0.5, 2.0, 0.25]),
        "zero": np.array([1, 0, 2] if "int" in name else [0, 0, 0]).astype(dtype),
    }
    module = _loaded(
        [
            helper.make_node("Transpose", ["w"], ["wt"]),
            helper.make_node("DequantizeLinear", ["wt", "scale", "zero"], ["d"], axis=1),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ],
        TensorProto.FLOAT,
        stored,
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    exact = (stored["w"].astype(float).T - stored["zero"].astype(float)) * stored["scale"]
    np.testing.assert_array_equal(module(x).numpy(), x @ exact)  # few bits: each sum is exact
    assert module.eager_reason == ""


def test_activations_that_are_quantized_run_op_by_op() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=TensorProto.FLOAT8E4M3FN),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"]),
    ]
    module = _loaded(nodes, TensorProto.FLOAT, {"scale": np.float32(0.5)})
    x = np.float32([[0.1, 1, 300, -7.3], [0, -0.01, 1e6, 5]])
    expected = np.clip(2 * x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) / 2
    np.testing.assert_array_equal(module(x).numpy(), expected)
    assert "in the node" in module.eager_reason
    assert "QuantizeLinear" in module.eager_reason


def test_a_narrow_result_is_an_array_of_ml_dtypes() -> None:
    module = _loaded([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)], TensorProto.INT4, {})
    found = module(np.float32([[1.7, -1.7, 7, -8], [0, 1, 2, 3]]))
    assert found.dtype == ml_dtypes.int4
    assert found.astype(int).tolist() == [[1, -1, 7, -8], [0, 1, 2, 3]]


def test_other_operators_name_the_type_that_they_do_not_take() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=TensorProto.FLOAT8E5M2),
        helper.make_node("Neg", ["q"], ["y"]),
    ]
    module = _loaded(nodes, TensorProto.FLOAT8E5M2, {})
    with pytest.raises(TypeError, match=r"\(Neg\) has an input of float8_e5m2, which tensors cannot store"):
        module(np.zeros((2, 4), np.float32))


def test_the_page_shows_the_recorded_counts() -> None:
    """At least 98 % of the supported tests pass, and at least 900 plain ones are supported."""
    text, counts = PAGE.read_text(encoding="utf-8"), recorded_counts()
    assert with_table(text, counts) == text
    assert all(c.share >= 98 for c in counts)
    assert all(c.supported >= 900 for c in counts if c.kind == "plain")
