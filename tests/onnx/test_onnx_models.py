"""Models as modules: captured calls, values on the host, parameters, and errors of models that cannot run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")

import onnx
from onnx import TensorProto, helper, numpy_helper

import polyhal
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, PolyhalError, UnsupportedOpError
from polyhal.onnx import load

pytestmark = pytest.mark.slow

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)


def _value(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: list[onnx.NodeProto], inputs: Any, outputs: Any, stored: Any = (), opset: int = 17
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", list(inputs), list(outputs), list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _linear(**changes: Any) -> onnx.ModelProto:
    """Return a model with a product, whose result is reshaped to lengths that it computes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["r", "target"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(WEIGHT, "w"),
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([-1]), "minus"),
    ]
    return _model(nodes, [_value("x", ["n", 2, 4])], [_value("y", ["n", 6])], stored, **changes)


@pytest.mark.parametrize("device", ["numpy", "opencl"])
def test_calls_with_equal_shapes_replay_a_captured_step(device: str) -> None:
    module = load(_linear(), device=device)
    for n in (2, 2, 5, 2):
        x = RNG.standard_normal((n, 2, 4)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ WEIGHT, 0).reshape(n, 6)
        # four products and three sums of float32 per result
        np.testing.assert_allclose(module(x).numpy(), expected, rtol=4 * 2**-23, atol=1e-6)
    assert module.eager_reason == ""
    assert len(module._steps) == 2  # one for each shape
    assert [name for name, _ in module.named_parameters()] == ["w"]


def test_lengths_that_are_inputs_stay_on_the_host() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    module = load(_model(nodes, [_value("x", [6]), _value("shape", [2], TensorProto.INT64)], [_value("y", None)]))
    x = np.arange(6, dtype=np.float32)
    assert [module(x, np.array(s)).shape for s in ((2, 3), (3, 2), (-1, 1))] == [(2, 3), (3, 2), (6, 1)]
    assert module.eager_reason == ""


def test_a_model_whose_shapes_depend_on_elements_runs_op_by_op() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    module = load(_model(nodes, [_value("x", [4])], [_value("y", None, TensorProto.INT64)]))
    assert module(np.array([0, 1, 0, 2], np.float32)).tolist() == [[1, 3]]
    assert "NonZero" in module.eager_reason


def test_parameters_of_a_trainable_model_receive_gradients() -> None:
    module = load(_linear(), trainable=True)
    x = polyhal.tensor(RNG.standard_normal((3, 2, 4)).astype(np.float32))
    for _ in range(2):
        module.zero_grad()
        module(x).sum().backward()
        active = (x.numpy().astype(np.float64) @ WEIGHT > 0).reshape(6, 3)
        expected = x.numpy().reshape(6, 4).T.astype(np.float64) @ active
        np.testing.assert_allclose(module.w.grad.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_all_nodes_without_a_function_are_listed() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Nonsense", ["a"], ["b"], name="first", domain="com.example"),
        helper.make_node("ImageDecoder", ["b"], ["y"], name="second"),
    ]
    with pytest.raises(UnsupportedOpError, match=r"2 nodes cannot run: first \(Nonsense.*; second \(ImageDecoder"):
        load(_model(nodes, [_value("x", [1])], [_value("y", [1])], opset=20))


@pytest.mark.parametrize("opset", [6, 999])
def test_opsets_that_are_too_old_or_too_new_are_refused(opset: int) -> None:
    with pytest.raises(IncompatibleFileError, match=f"opset {opset}; expected 7 to"):
        load(_linear(opset=opset))


def _external(folder: Path, location: str, **entries: Any) -> Path:
    model = _linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read_from_the_folder_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"12345678" + WEIGHT.tobytes())
    module = load(_external(tmp_path, "weights.bin", offset=8, length=48))
    np.testing.assert_array_equal(module.w.numpy(), WEIGHT)


@pytest.mark.parametrize(
    ("location", "entries", "problem"),
    [
        ("../../../../etc/passwd", {}, "relative path"),
        ("/etc/passwd", {}, "relative path"),
        ("link.bin", {}, "relative path"),
        ("", {}, "relative path"),
        ("missing.bin", {}, "is not a file"),
        (".", {}, "is not a file"),
        ("short.bin", {}, "at most 8 bytes"),
        ("short.bin", {"length": 8}, "expected 48"),
        ("short.bin", {"offset": -8}, "at most 8 bytes"),
        ("short.bin", {"offset": "many"}, "integers"),
    ],
)
def test_external_data_elsewhere_is_refused(
    tmp_path: Path, location: str, entries: dict[str, Any], problem: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    (folder / "short.bin").write_bytes(b"12345678")
    with pytest.raises(CorruptFileError, match=problem):
        load(_external(folder, location, **entries))


def _damaged() -> dict[str, tuple[Any, str]]:
    relu = helper.make_node("Relu", ["a"], ["b"], name="one")
    back = helper.make_node("Relu", ["b"], ["a"], name="two")
    x, y = [_value("x", [2])], [_value("y", [2])]
    huge, negative = _linear(), _linear()
    huge.graph.initializer[0].dims[0] = 1 << 60
    negative.graph.initializer[0].dims[0] = -4
    return {
        "truncated": (_linear().SerializeToString()[:-40], "not a complete ONNX model"),
        "empty": (b"", "no graph"),
        "text": (b"not a model at all", "not a complete ONNX model|no graph"),
        "huge": (huge, "has 48 bytes; expected"),
        "negative": (negative, "lengths of 0 or more"),
        "cycle": (_model([relu, back], x, [_value("b", [2])]), "reads 'a', which no input or earlier node defines"),
        "missing": (_model([helper.make_node("Relu", ["z"], ["y"])], x, y), "reads 'z'"),
        "result": (_model([helper.make_node("Relu", ["x"], ["z"])], x, y), "result 'y' is not computed"),
        "name": (_linear().SerializeToString().replace(b"MatMul", b"Mat\xfful"), "is not UTF-8 text"),
        "twice": (_model([helper.make_node("Relu", ["x"], ["y"])] * 2, x, y), "computed twice"),
    }


@pytest.mark.parametrize("kind", sorted(_damaged()))
def test_damaged_models_are_refused(kind: str) -> None:
    model, problem = _damaged()[kind]
    with pytest.raises(PolyhalError, match=problem):
        load(model)


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({}, "got 0 arguments; expected the inputs x: FLOAT"),
        ({"x": np.ones((1, 2, 4)), "z": 1}, "0 arguments, x, z"),
        ({"x": np.ones((1, 2, 4))}, "'x' is float64"),
        ({"x": "a"}, "the input 'x' is 'a'; expected FLOAT"),
        ({"x": np.ones((1, 2, 5), np.float32)}, r"float32\[1, 2, 5\]; expected FLOAT\[n, 2, 4\]"),
    ],
)
def test_wrong_inputs_are_refused(inputs: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolyhalError, match=problem):
        load(_linear())(**inputs)


def test_inputs_that_do_not_fit_an_operator_name_the_node() -> None:
    model = _model(
        [helper.make_node("MatMul", ["x", "z"], ["y"], name="product")],
        [_value("x", None), _value("z", None)],
        [_value("y", None)],
    )
    with pytest.raises(PolyhalError) as caught:
        load(model)(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    assert "product" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
