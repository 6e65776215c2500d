"""Programs of OpenVINO: a graph of ops becomes a model, which is compiled when its weights are known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import GraphProgram, GraphValue
from polyhal_openvino.memory import Memory, view
from polyhal_openvino.models import build, element_type, wrapped
from polyhal_openvino.weights import weights

_POSITIONS = np.iinfo(np.int32)


class Program:
    """One graph on one device.

    It is compiled with the weights of its first run as constants. Weights that another run finds changed are inputs from
    then on.
    """

    def __init__(self, core: openvino.Core, device: str, graph: GraphProgram) -> None:
        self._core, self._device, self._graph = core, device, graph
        self._constant = weights(graph)
        self._compiled_with: list[tuple[int, Memory, int, int]] = []
        """Position, memory, offset and number of writes of each constant."""
        self._request: Any = None
        _, self._computed, self._copied = build(graph, {})  # OpenVINO's errors belong to the planning of a step

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes of the copy of the weights, which OpenVINO packs, and of the temporaries alive at once."""
        constants = sum(v.spec.nbytes for i, v in enumerate(self._graph.inputs) if i in self._constant)
        return constants, _temporaries(self._graph)

    def run(self, *refs: Any) -> None:
        """Run once on inputs and outputs. Raises RuntimeError if OpenVINO does."""
        graph, count = self._graph, len(self._graph.inputs)
        changed = set()
        for i, memory, offset, writes in self._compiled_with:
            ref = refs[i]
            if ref.handle is not memory or memory.writes != writes or ref.offset != offset:
                changed.add(i)
        if changed or self._request is None:
            self._constant -= changed
            self._compile(refs[:count])
        request = self._request
        variable = [i for i in range(count) if i not in self._constant]
        arrays = [_input(refs[i], graph.inputs[i]) for i in variable]  # OpenVINO keeps no reference to their memory
        for place, array in enumerate(arrays):
            request.set_input_tensor(place, _tensor(array))
        outputs, replaced = refs[count:], []
        for place, k in enumerate(self._computed):
            if graph.donated[k] is None:
                request.set_output_tensor(place, _tensor(view(outputs[k], changed=True)))
            else:
                replaced.append((place, outputs[k]))
        if self._computed:
            request.infer()
        for k, i in self._copied:
            view(outputs[k], changed=True)[...] = _input(refs[i], graph.inputs[i]).reshape(outputs[k].shape)
        for place, ref in replaced:  # OpenVINO may read the input after it has written an output
            view(ref, changed=True)[...] = request.get_output_tensor(place).data

    def _compile(self, inputs: Sequence[Any]) -> None:
        model, self._computed, self._copied = build(self._graph, {i: view(inputs[i]) for i in self._constant})
        self._request = self._core.compile_model(model, self._device, self._settings()).create_infer_request()
        self._compiled_with = [
            (i, inputs[i].handle, inputs[i].offset, inputs[i].handle.writes) for i in sorted(self._constant)
        ]

    def _settings(self) -> dict[str, Any]:
        """Return float32, as the values of the graph are, latency of one call, and the threads that the process may use."""
        supported = self._core.get_property(self._device, "SUPPORTED_PROPERTIES")
        threads = int(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0] or 0)
        wanted = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,  # 0: all
        }
        return {name: value for name, value in wanted.items() if name in supported}


def _input(x: Any, value: GraphValue) -> np.ndarray:
    """Return an input in the dtype of its parameter; integers of other sizes are positions."""
    if not isinstance(x, Ref):
        return np.array(wrapped(x, value.spec.dtype))
    array = view(x)
    if array.dtype == element_type(value.spec.dtype).to_dtype():
        return array
    return np.asarray(np.clip(array, _POSITIONS.min, _POSITIONS.max)).astype(np.int32)


def _tensor(array: np.ndarray) -> openvino.Tensor:
    return openvino.Tensor(array, shared_memory=True)


def _temporaries(graph: GraphProgram) -> int:
    """Return the most bytes of intermediate values that are alive at once, in the order of the graph."""
    last = {x: k for k, node in enumerate(graph.nodes) for x in node.operands if isinstance(x, GraphValue)}
    stored = {*graph.inputs, *graph.outputs}
    alive, most = 0, 0
    ends: dict[int, int] = {}
    for k, node in enumerate(graph.nodes):
        for value in node.results:
            if value in last and value not in stored and isinstance(value.spec, Spec):
                alive += value.spec.nbytes
                ends[last[value]] = ends.get(last[value], 0) + value.spec.nbytes
        most = max(most, alive)
        alive -= ends.pop(k, 0)
    return most
