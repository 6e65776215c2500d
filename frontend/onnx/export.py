"""`export`, which writes a module as an ONNX model: its ops are captured once, for the shapes of the arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant
from polyhal.hal.errors import CaptureError, UnsupportedOpError, message
from polyhal.hal.protocol import Number
from polyhal.nn.module import Module
from polyhal.onnx import exporting as _exporting  # noqa: F401  fills the table of exporters
from polyhal.onnx.exporting.writer import GraphWriter, element_type
from polyhal.steps.jit import jit as captured
from polyhal.steps.results import OutputIndex
from polyhal.steps.tree import map_tree
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

OPSET = 20
IR_VERSION = 9
_LARGEST = 1 << 31
"""Size in bytes that a message of protobuf cannot reach."""


def export(
    module: Module,
    args: Tensor | Sequence[Tensor],
    path: str | os.PathLike[str] | None = None,
    *,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
) -> ModelProto:
    """Return a module as an ONNX model of opset 20 for inputs with the shapes of `args`, checked by `onnx.checker`.

    With a `path` the model is written to a file; weights of 2 GiB and more go to a file beside it. The module is run in
    evaluation mode. Parameters keep their names.

    Raises UnsupportedOpError with all ops that have no form in ONNX, and CaptureError for a module that changes its state
    or cannot be captured.
    """
    given = (args,) if isinstance(args, Tensor) else tuple(args)
    graph, results = _captured(module, given)
    names = list(input_names) or [f"x{i}" if len(given) > 1 else "x" for i in range(len(given))]
    writer = GraphWriter()
    operands: list[str | Number | None] = []
    weights: list[TensorProto] = []
    for number, source in enumerate(graph.sources):
        if isinstance(source, StepInput):
            operands.append(names[source.position])
        elif isinstance(source, CapturedConstant):
            name = _unique(graph.graph.names.get(number, "constant"), [*names, *(w.name for w in weights)])
            weights.append(numpy_helper.from_array(source.device.download(source.ref), name))
            operands.append(name)
        else:
            raise CaptureError(
                message("onnx", "the module computes a number in each run", expected="tensors and constants")
            )
    made = writer.write(graph.graph, operands)
    if writer.refused:
        problem = f"{len(writer.refused)} ops have no form in ONNX: {', '.join(writer.refused)}"
        raise UnsupportedOpError(message("onnx", problem, fix="compute them outside of the exported module"))
    titles = list(output_names) or [f"y{i}" if len(results) > 1 else "y" for i in range(len(results))]
    for title, index in zip(titles, results, strict=True):
        writer.nodes.append(helper.make_node("Identity", [str(made[index])], [title], f"result_{title}"))
    specs = [graph.graph.tensor(graph.graph.outputs[i]) for i in results]
    nodes, stored = _needed(writer, titles)
    proto = helper.make_graph(
        nodes,
        type(module).__name__,
        [helper.make_tensor_value_info(n, element_type(x.dtype), x.shape) for n, x in zip(names, given, strict=True)],
        [helper.make_tensor_value_info(n, element_type(s.dtype), s.shape) for n, s in zip(titles, specs, strict=True)],
        [*weights, *stored],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model: ModelProto = helper.make_model(proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="polyhal")
    _check_and_write(model, path)
    return model


def _needed(writer: GraphWriter, results: Sequence[str]) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return the nodes and constants on which the results depend: statistics of norms, for example, are often not used."""
    read = set(results)
    nodes = []
    for node in reversed(writer.nodes):
        if read & set(node.output):
            nodes.append(node)
            read |= set(node.input)
    return nodes[::-1], [t for t in writer.stored if t.name in read]


def _captured(module: Module, given: tuple[Tensor, ...]) -> tuple[CapturedGraph, list[int]]:
    """Capture a call of the module in evaluation mode. Returns its graph, and the numbers of the outputs that it returns."""
    training = module.training
    step = captured(lambda *xs: map_tree(module(*xs), _new), warm_up=False)
    try:
        module.eval()
        with no_grad():
            step(*given)
    finally:
        module.train(training)
    recorded = step.steps[0]
    if recorded.captured.graph.updates:
        raise CaptureError(message("onnx", "the module changes its state in each call", expected="a pure function"))
    return recorded.captured, _outputs(recorded.results)


def _new(value: Any) -> Any:
    """Return a tensor as a new one: the module may return an argument, or a view of it."""
    return value.clone() if isinstance(value, Tensor) else value


def _outputs(results: Any) -> list[int]:
    if isinstance(results, OutputIndex):
        return [results.index]
    if isinstance(results, dict):
        return [i for part in results.values() for i in _outputs(part)]
    if isinstance(results, (list, tuple)):
        return [i for part in results for i in _outputs(part)]
    problem = f"the module returns a {type(results).__name__} that it does not compute"
    raise CaptureError(message("onnx", problem, expected="new tensors, and lists, tuples and dictionaries of them"))


def _unique(name: str, taken: list[str]) -> str:
    found, count = name, 1
    while found in taken:
        found, count = f"{name}_{count}", count + 1
    return found


def _check_and_write(model: ModelProto, path: str | os.PathLike[str] | None) -> None:
    large = model.ByteSize() >= _LARGEST
    if not large:
        onnx.checker.check_model(model, full_check=True)
    if path is None:
        return
    target = Path(path)
    options: dict[str, Any] = {"save_as_external_data": True, "location": f"{target.name}.data"} if large else {}
    onnx.save_model(model, str(target), **options)
    if large:
        onnx.checker.check_model(str(target), full_check=True)
