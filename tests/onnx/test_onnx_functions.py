"""Functions that a model defines, as onnxscript writes them, agree with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")

import onnxruntime
from onnx import AttributeProto, TensorProto, helper

import polyhal
from polyhal.hal.errors import CorruptFileError
from polyhal.onnx import load

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("of.test", 1)]
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def function(name: str, nodes: list[Any], inputs: str, outputs: str, **defaults: float) -> Any:
    """Return a function; names of inputs and outputs are separated by spaces."""
    protos = [helper.make_attribute(k, v) for k, v in defaults.items()]
    return helper.make_function("of.test", name, inputs.split(), outputs.split(), nodes, OPSETS, [], protos)


def call(name: str, inputs: str, outputs: str, **attributes: float) -> Any:
    return helper.make_node(name, inputs.split(), outputs.split(), domain="of.test", **attributes)


def node(name: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(name, inputs.split(), [output], **attributes)


def parameter(output: str, name: str) -> Any:
    """Return a Constant whose value is an attribute of the function."""
    constant = helper.make_node("Constant", [], [output])
    constant.attribute.add(name="value_float", ref_attr_name=name, type=AttributeProto.FLOAT)
    return constant


def branch(*nodes: Any) -> Any:
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(nodes[-1].output[0], 1, None)])


SCALED = function("Scaled", [parameter("k", "factor"), node("Mul", "x k", "y")], "x", "y", factor=3.0)
TWICE = function("Twice", [call("Scaled", "x", "a"), call("Scaled", "a", "y", factor=0.5)], "x", "y")
CLIPPED = function("Clipped", [node("Clip", "x low high", "y")], "x low high", "y")
CHOSEN = function(
    "Chosen",
    [
        parameter("k", "limit"),
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum k", "more"),
        node(
            "If",
            "more",
            "y",
            then_branch=branch(node("Sub", "x k", "a")),
            else_branch=branch(call("Scaled", "x", "b")),
        ),
    ],
    "x",
    "y",
    limit=2.0,
)
NORMALIZED = function("Normalized", [node("MeanVarianceNormalization", "x", "y", axes=[0])], "x", "y")


def model(nodes: list[Any], *functions: Any) -> Any:
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["n", 4]), ("y", None))
    )
    graph = helper.make_graph(nodes, "graph", [x], [y])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


@pytest.mark.parametrize(
    "proto",
    [
        pytest.param(model([call("Scaled", "x", "y")], SCALED), id="default of an attribute"),
        pytest.param(model([call("Twice", "x", "y")], TWICE, SCALED), id="calls in a function"),
        pytest.param(model([call("Clipped", "x", "y")], CLIPPED), id="inputs left out"),
        pytest.param(
            model([call("Chosen", "x", "a", limit=50.0), call("Chosen", "a", "y", limit=-50.0)], CHOSEN, SCALED),
            id="calls in branches",
        ),
        pytest.param(model([call("Normalized", "x", "y")], NORMALIZED), id="an operator that ONNX defines by others"),
    ],
)
def test_functions_agree_with_onnxruntime(proto: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": X})
    result = load(proto)(polyhal.tensor(X))
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-6, atol=1e-6)  # few roundings of values of order 1


def test_a_call_without_a_required_attribute_is_an_error() -> None:
    nodes = [parameter("k", "factor"), node("Mul", "x k", "y")]
    required = helper.make_function("of.test", "Required", ["x"], ["y"], nodes, OPSETS, ["factor"])
    module = load(model([call("Required", "x", "y")], required))
    with pytest.raises(CorruptFileError, match="Constant has no value"):
        module(polyhal.tensor(X))
