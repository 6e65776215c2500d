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

_WORTHWHILE = 100
"""Runs: constants save about a tenth of the time of each, and a compilation takes as long as about ten of them."""
_POSITIONS = np.iinfo(np.int32)


class Program:
    """One graph on one device.

    It is compiled with the weights of its first run as constants. Weights that another run finds changed are inputs from
    then on, unless the constants have served for `_WORTHWHILE` runs: then the program is compiled with the new ones.
    """

    def __init__(self, core: openvino.Core, device: str, graph: GraphProgram) -> None:
        self._core, self._device, self._graph = core, device, graph
        self._constant = graph.captured
        self._compiled_with: list[tuple[int, Memory, int, int]] = []
        """Position, memory, offset and number of writes of each constant."""
        self._request: Any = None
        self._runs = 0
        """Since the program was compiled."""
        self._variable: list[int] = []
        """Positions of the inputs that are no constants."""
        self._staged: dict[int, np.ndarray] = {}
        """Arrays of the inputs that arrive as numbers or in another dtype, by position."""
        self._bound: dict[int, tuple[Memory, int]] = {}
        """Memory and offset of each input and output in the last run, by position: OpenVINO keeps them."""
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
            if self._runs < _WORTHWHILE:
                self._constant -= changed
            self._compile(refs[:count])
            self._runs = 0
        self._runs += 1
        request, outputs, replaced = self._request, refs[count:], []
        for place, i in enumerate(self._variable):
            if i in self._staged:
                _convert(refs[i], self._staged[i])
            elif self._is_new(i, refs[i]):
                request.set_input_tensor(place, _tensor(view(refs[i])))
        for place, k in enumerate(self._computed):
            if graph.donated[k] is not None:
                replaced.append((place, outputs[k]))
                continue
            outputs[k].handle.writes += 1
            if self._is_new(count + k, outputs[k]):
                request.set_output_tensor(place, _tensor(view(outputs[k])))
        if self._computed:
            request.infer()
        for k, i in self._copied:
            _convert(refs[i], view(outputs[k], changed=True))
        for place, ref in replaced:  # OpenVINO may read the input after it has written an output
            view(ref, changed=True)[...] = request.get_output_tensor(place).data

    def _is_new(self, position: int, ref: Ref) -> bool:
        """Return whether an input or output is in other memory than in the last run, and note its memory."""
        memory, offset = self._bound.get(position, (None, 0))
        if memory is ref.handle and offset == ref.offset:
            return False
        self._bound[position] = ref.handle, ref.offset
        return True

    def _compile(self, inputs: Sequence[Any]) -> None:
        constants = {i: self._constant_array(i, inputs[i]) for i in self._constant}
        model, self._computed, self._copied = build(self._graph, constants)
        self._request = self._core.compile_model(model, self._device, self._settings()).create_infer_request()
        self._bound.clear()
        self._variable = [i for i in range(len(inputs)) if i not in self._constant]
        self._staged.clear()
        for place, i in enumerate(self._variable):
            if (array := self._staging(i)) is not None:
                self._staged[i] = array
                self._request.set_input_tensor(place, _tensor(array))
        self._compiled_with = [
            (i, inputs[i].handle, inputs[i].offset, inputs[i].handle.writes) for i in sorted(self._constant)
        ]

    def _staging(self, i: int) -> np.ndarray | None:
        """Return an array for an input that the model receives in another form; None if it receives its memory."""
        spec = self._graph.inputs[i].spec
        kind = element_type(spec.dtype).to_dtype()
        return None if isinstance(spec, Spec) and spec.dtype.numpy == kind else np.empty(spec.shape, kind)

    def _constant_array(self, i: int, ref: Ref) -> np.ndarray:
        array = self._staging(i)
        if array is None:
            return view(ref)
        _convert(ref, array)
        return array

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


def _convert(x: Any, out: np.ndarray) -> None:
    """Store a number, or a tensor with as many elements, in `out`; integers of other sizes than 32 bits are positions."""
    if not isinstance(x, Ref):
        out[...] = wrapped(x, out.dtype)
    else:
        array = view(x).reshape(out.shape)
        if out.dtype == array.dtype:
            np.copyto(out, array)
        else:
            limits = np.iinfo(array.dtype)
            least, most = max(limits.min, _POSITIONS.min), min(limits.max, _POSITIONS.max)
            np.clip(array, least, most, out, casting="unsafe")


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
