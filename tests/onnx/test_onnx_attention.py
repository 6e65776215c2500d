"""Attention that a model writes out becomes one op where it is attention, and computes ONNX's results in every other case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from polyhal.hal.compile.ir.graph import Node
from polyhal.hal.compile.passes.pipeline import optimize
from polyhal.hal.system.discovery.registry import registry
from polyhal.onnx import OnnxModule, load
from polyhal.random import get_rng_state

SHAPE = 2, 3, 5, 4
KEYS = 2, 3, 4, 6
VALUES = 2, 3, 6, 7
SCORES = 2, 3, 5, 6
RNG = np.random.default_rng(0)
VISIBLE = RNG.random((5, 6)) > 0.3
VISIBLE[:, 0] = True
"""A mask that hides some pairs, and leaves each query a key."""


@dataclass(frozen=True)
class Written:
    """A form of attention: nodes between the product and the softmax, and around them."""

    between: list[tuple[str, list[str]]] = field(default_factory=list)
    """Operators with their inputs; `_` is the value so far."""
    constants: dict[str, Any] = field(default_factory=dict)
    factors: tuple[str, str] = ("", "")
    """Names of the factors of queries and keys."""
    clears_nan: bool = False
    attributes: dict[str, int] = field(default_factory=lambda: {"axis": -1})
    opset: int = 17
    outputs: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = (SHAPE, KEYS, VALUES)

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        nodes, names = [], {"q": "q", "k": "k"}
        for name, factor in zip("qk", self.factors, strict=True):
            if factor:
                names[name] = f"{name}s"
                nodes.append(helper.make_node("Mul", [name, factor], [names[name]]))
        nodes.append(helper.make_node("MatMul", [names["q"], names["k"]], ["scores"]))
        value = "scores"
        for index, (op, inputs) in enumerate(self.between):
            nodes.append(helper.make_node(op, [value if i == "_" else i for i in inputs], [f"s{index}"]))
            value = f"s{index}"
        nodes.append(helper.make_node("Softmax", [value], ["weights"], **self.attributes))
        value = "weights"
        if self.clears_nan:
            nodes.append(helper.make_node("IsNaN", [value], ["isnan"]))
            nodes.append(helper.make_node("Where", ["isnan", "zero", value], ["cleared"]))
            value = "cleared"
        nodes.append(helper.make_node("MatMul", [value, "v"], ["y"]))
        stored = self.constants | {"zero": np.float32(0)}
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("qkv", self.shapes, strict=True)],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", *self.outputs)],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


ROOT = np.float32(4**-0.25)
ADDED = np.where(VISIBLE, 0, -np.inf).astype(np.float32)
BIAS = RNG.standard_normal((3, 1, 6)).astype(np.float32)
HALF = np.float32(0.5)
INFINITE = np.float32(-np.inf)
LOWEST = np.finfo(np.float32).min

ATTENTION = {
    "plain": Written(),
    "factors of queries and keys": Written(factors=("root", "root"), constants={"root": ROOT}),
    "factor of scores": Written([("Mul", ["half", "_"])], {"half": HALF}),
    "divided scores": Written([("Div", ["_", "two"])], {"two": np.float32(2)}),
    "added mask": Written([("Mul", ["_", "half"]), ("Add", ["_", "mask"])], {"half": HALF, "mask": ADDED}),
    "bias before": Written([("Add", ["bias", "_"])], {"bias": BIAS}),
    "visible": Written([("Where", ["mask", "_", "low"])], {"mask": VISIBLE, "low": INFINITE}),
    "hidden": Written([("Where", ["mask", "low", "_"])], {"mask": ~VISIBLE, "low": INFINITE}),
    "lowest number": Written([("Where", ["mask", "_", "low"])], {"mask": VISIBLE, "low": LOWEST}),
    "rows without a key": Written(
        [("Where", ["mask", "_", "low"])], {"mask": VISIBLE & (np.arange(5) > 1)[:, None], "low": LOWEST}
    ),
    "cleared": Written(
        [("Add", ["_", "mask"])],
        {"mask": np.where(np.arange(5)[:, None] == 1, -np.inf, ADDED).astype(np.float32)},
        clears_nan=True,
    ),
    "softmax of old opsets": Written(attributes={"axis": 3}, opset=12),
}
"""Forms that become one op."""

OTHERS = {
    "another axis": Written(attributes={"axis": 2}),
    "small number in place of hidden scores": Written(
        [("Where", ["mask", "_", "low"])], {"mask": VISIBLE, "low": np.float32(-3)}
    ),
    "tensor of factors": Written([("Mul", ["_", "bias"])], {"bias": BIAS}),
    "factor with more axes": Written([("Mul", ["_", "wide"])], {"wide": np.full((1, 1, 1, 1, 1), 0.5, np.float32)}),
    "mask with more axes": Written([("Add", ["_", "wide"])], {"wide": np.zeros((2, 1, 1, 1, 1), np.float32)}),
    "values with more axes": Written(shapes=(SHAPE[2:], KEYS[2:], VALUES)),
}
"""Forms that are joined, and then computed as they are written."""

APART = {
    "scores are a result": Written(outputs=("scores",)),
    "weights are a result": Written(outputs=("weights",)),
    "softmax of something else": Written([("Relu", ["_"])]),
}
"""Forms whose nodes stay."""


def _compare(written: Written, device: str, ops: set[str]) -> None:
    model = written.model()
    module = load(model, device=device)
    given = [RNG.standard_normal(s).astype(np.float32) for s in written.shapes]
    with np.errstate(invalid="ignore"):  # of rows without a key
        expected = ReferenceEvaluator(model).run(None, dict(zip("qkv", given, strict=True)))
    found = module(*given)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        # products of 4 and of 6 terms of size 1 to 3, and an exponential, each with a few roundings of float32
        np.testing.assert_allclose(one.numpy(), other, rtol=2e-5, atol=2e-6)
    recorded = {node.op.name for step in module._steps.values() for g in step._step.graphs for node in g.nodes}
    assert module.eager_reason == ""
    assert ops <= recorded
    assert ("attention" in recorded) is ("attention" in ops)


@pytest.mark.parametrize("name", ATTENTION)
def test_written_attention_is_one_op(name: str) -> None:
    _compare(ATTENTION[name], "numpy", {"attention"})


@pytest.mark.parametrize("name", OTHERS)
def test_other_operands_are_computed_as_written(name: str) -> None:
    _compare(OTHERS[name], "numpy", {"matmul"})


@pytest.mark.parametrize("name", APART)
def test_values_that_others_use_are_computed(name: str) -> None:
    model = load(APART[name].model())
    assert "WrittenAttention" not in [node.op for node in model._model.graph.nodes]
    _compare(APART[name], "numpy", {"matmul"})


def test_softmax_of_flattened_rows_is_computed_as_written() -> None:
    """Before opset 13, the softmax of axis 2 normalizes over axes 2 and 3; ONNX's reference evaluator does not do so."""
    q, k, v = (RNG.standard_normal(s) for s in (SHAPE, KEYS, VALUES))
    e = np.exp(q @ k)
    expected = e / e.sum((2, 3), keepdims=True) @ v
    module = load(Written(attributes={"axis": 2}, opset=11).model(), device="numpy")
    found = module(*(x.astype(np.float32) for x in (q, k, v))).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


_CAUSAL = np.tri(96, dtype=bool)  # more elements than integers of shapes have
_LONG = (1, 2, 96, 4), (1, 2, 4, 96), (1, 2, 96, 7)
CAUSAL = {
    "added": Written(
        [("Add", ["_", "mask"])], {"mask": np.where(_CAUSAL, 0, -np.inf).astype(np.float32)}, shapes=_LONG
    ),
    "lowest number added": Written(
        [("Add", ["_", "mask"])], {"mask": np.where(_CAUSAL, 0, LOWEST).astype(np.float32)}, shapes=_LONG
    ),
    "visible": Written([("Where", ["mask", "_", "low"])], {"mask": _CAUSAL, "low": INFINITE}, shapes=_LONG),
    "hidden": Written([("Where", ["mask", "low", "_"])], {"mask": ~_CAUSAL[None], "low": INFINITE}, shapes=_LONG),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_constant_causal_masks_are_left_out(name: str) -> None:
    _compare(CAUSAL[name], "numpy", {"attention"})
    module = load(CAUSAL[name].model(), device="numpy")
    assert not module.state_dict()
    ((call,),) = _attention_calls(module)
    assert call.bound["causal"]
    assert call.inputs[call.op.schema.inputs.index("mask")] is None


@pytest.mark.parametrize("changed", [(0, 1, 0.0), (5, 3, -np.inf), (5, 3, 0.5)])
def test_masks_that_are_not_causal_stay(changed: tuple[int, int, float]) -> None:
    """One more visible pair, one more hidden one, and a bias, which is a parameter."""
    mask = np.where(_CAUSAL, 0, -np.inf).astype(np.float32)
    mask[changed[:2]] = changed[2]
    written = Written([("Add", ["_", "mask"])], {"mask": mask}, shapes=_LONG)
    _compare(written, "numpy", {"attention"})
    module = load(written.model(), device="numpy")
    assert bool(module.state_dict()) is (changed[2] == 0.5)
    ((call,),) = _attention_calls(module)
    assert call.inputs[call.op.schema.inputs.index("mask")] is not None


def test_a_mask_that_something_else_reads_is_a_parameter() -> None:
    written = Written(
        [("Add", ["_", "mask"]), ("Mul", ["_", "one"])],
        {"mask": np.where(_CAUSAL, 0, LOWEST).astype(np.float32), "one": np.ones((96, 96), np.float32)},
        shapes=_LONG,
    )
    assert set(load(written.model(), device="numpy").state_dict()) == {"mask", "one"}


def _attention_calls(module: OnnxModule) -> list[list[Node]]:
    """Return the optimized calls of attention in each captured step."""
    graphs = [optimize(g) for step in module._steps.values() for g in step._step.graphs]
    return [[node for node in g.nodes if node.op.name == "attention"] for g in graphs]


@pytest.mark.skipif(not registry().probe("opencl"), reason="needs an OpenCL device")
def test_a_kernel_computes_attention() -> None:
    _compare(ATTENTION["added mask"], "opencl:0", {"attention"})


def test_fixed_shapes_are_captured_when_a_model_is_loaded() -> None:
    module = load(Written().model(), device="numpy")
    assert len(module._steps) == 1
    module(*(np.ones(s, np.float32) for s in (SHAPE, KEYS, VALUES)))
    assert len(module._steps) == 1, "the step of the load is replayed"
    assert not load(Written().model(), device="numpy", capture=False)._steps


def test_open_shapes_are_captured_by_the_first_call() -> None:
    model = Written().model()
    for x in model.graph.input:
        x.type.tensor_type.shape.dim[0].dim_param = "batch"
    module = load(model, device="numpy")
    assert not module._steps
    module(*(np.ones(s, np.float32) for s in (SHAPE, KEYS, VALUES)))
    assert len(module._steps) == 1


def _loaded(nodes: list[onnx.NodeProto], inputs: tuple[str, ...], **stored: Any) -> OnnxModule:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), device="numpy")


def test_loops_that_do_not_end_on_zeros_are_loaded() -> None:
    """`while x < 10: x += by`, which runs op by op, does not end for the zeros that capture a model at its load."""
    state = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("before", TensorProto.BOOL, []),
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [1]),
    ]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "by"], ["b"]),
            helper.make_node("Less", ["b", "ten"], ["less"]),
            helper.make_node("Squeeze", ["less"], ["goes_on"]),
        ],
        "body",
        state,
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1]),
        ],
    )
    loop = helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)
    module = _loaded([loop], ("x", "by"), true=np.bool_(True), ten=np.float32([10]))
    assert module(np.float32([1]), np.float32([4])).numpy() == [13]


def test_a_load_leaves_the_random_numbers() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    before = get_rng_state()
    module = _loaded(nodes, ("x",))
    assert module._steps
    assert get_rng_state() == before
