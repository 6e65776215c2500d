"""`polyhal run`: inputs from files and the command line, and one sentence for models and inputs that are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")

from onnx import TensorProto, helper, numpy_helper

from .conftest import Command

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model that doubles a matrix of two columns."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"], name="twice")], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_inputs_of_all_kinds(polyhal: Command, model: Path, tmp_path: Path) -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", other=x + 1, x=x)
    Path("x.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for source in ("x.npy", "x.npz", "x.pb", "[[1, 2], [3, 4]]"):
        done = polyhal("run", model, "--input", f"x={source}", "--device", "numpy", "--output", "results")
        assert done.code == 0, done.err
        assert "y: [[2.0, 4.0], [6.0, 8.0]]" in done.out
        np.testing.assert_array_equal(np.load("results/y.npy"), 2 * x)
    found = json.loads(polyhal("run", model, "--input", "x=x.npy", "--device", "numpy", "--repeat", "2", "--json").out)
    assert found["seconds"] > 0
    assert found["results"] == [
        {
            "name": "y",
            "dtype": "float32",
            "shape": [2, 2],
            "least": 2,
            "mean": 5,
            "greatest": 8,
            "values": [[2, 4], [6, 8]],
        }
    ]
    done = polyhal("run", model, "-i", "x=random:3x2", "--device", "numpy", "--repeat", 2)
    assert done.code == 0
    assert "3x2" in done.out
    assert "the shortest of 2 runs" in done.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected the inputs x: FLOAT[n, 2]"),
        (["-i", "z=x.npy"], "NAME one of x"),
        (["-i", "x=missing.npy"], "No such file"),
        (["-i", "x=bad.npy"], "does not contain an array"),
        (["-i", "x=bad.pb"], "does not contain an array"),
        (["-i", "x=[1, 2"], "expected numbers"),
        (["-i", "x=random:ax2"], "expected random:2x3"),
        (["-i", "x=[1, 2, 3]"], "float32[3]; expected FLOAT[n, 2]"),
    ],
)
def test_wrong_inputs_are_one_sentence(polyhal: Command, model: Path, arguments: list[str], expected: str) -> None:
    Path("bad.npy").write_bytes(b"\x93NUMPY, but not an array")
    Path("bad.pb").write_bytes(b"\xff\xff\xff")
    done = polyhal("run", model, "--device", "numpy", *arguments)
    assert done.code == 2
    assert expected in done.err
    assert "Traceback" not in done.err
    assert done.err.startswith("error: ")


def test_a_damaged_model_is_one_sentence(polyhal: Command, model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-20])
    done = polyhal("run", model, "--device", "numpy")
    assert done.code == 2
    assert "is not a complete ONNX model" in done.err
    assert len(done.err.splitlines()) == 1
