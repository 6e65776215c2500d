"""Captured steps loaded from files, to run on any device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal.graphs.saving import FORMAT, SCHEMA
from polyhal.hal.compile.capture.result import CapturedGraph, InputSource, StepInput
from polyhal.hal.compile.capture.scalar_records import replay_actions, restore
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph
from polyhal.hal.compile.ir.serialize import build
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.runtime_scalars import RandomStream, RuntimeScalar
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, ShapeError, message
from polyhal.hal.layout import ALIGNMENT, Ref, ScalarSpec, Spec, extent
from polyhal.hal.ops.tensor_like import Array
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.ops.traits import Trait
from polyhal.hal.system.diagnostics.explain_graph import explain
from polyhal.random import Generator
from polyhal.serialize import load
from polyhal.serialize.checkpoint import eager
from polyhal.steps.given import GivenTensor
from polyhal.steps.results import OutputIndex, fill_results
from polyhal.tensor import Tensor, wrap


@top_level
def load_graph(path: str | os.PathLike[str], device: Device | str | None = None) -> LoadedGraph:
    """Load a step of `save_graph`, ready to run on `device`.

    Without a device, a step that ran on several devices runs on those of the same names, any other on the default device.
    Raises CorruptFileError, which names the node, for a file that is damaged or was altered, IncompatibleFileError for one of
    another kind or version, and DeviceUnavailableError.
    """
    return LoadedGraph(path, read_graph(path), device)


def read_graph(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the content of a file of `save_graph`, with lazy state. Raises as `load_graph`."""
    data = load(path, Device("numpy"), lazy=True)
    kind = data.get("format") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind != FORMAT:
        raise IncompatibleFileError(message("load_graph", f"{path} holds no graph", expected="a file of save_graph"))
    if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
        raise IncompatibleFileError(
            message(
                "load_graph",
                f"{path} has schema {data.get('schema')}",
                expected=f"schema {SCHEMA}",
                fix="load it with the version of Polyhal that wrote it",
            )
        )
    missing = {"graph", "sources", "results", "numbers", "streams", "state"} - set(data)
    if missing:
        raise CorruptFileError(message("load_graph", f"{path} lacks {', '.join(sorted(missing))}"))
    return data  # type: ignore[no-any-return]


class LoadedGraph:
    """A loaded step. Call it with the tensors that the step takes; it returns the step's results."""

    def __init__(self, path: str | os.PathLike[str], data: Mapping[str, Any], device: Device | str | None) -> None:
        decoder = _Decoder(str(path), data, device)
        self._path = str(path)
        self.generators = decoder.generators
        """The generators of the step's random numbers, in the states in which they were saved."""
        self.argument_names = decoder.argument_names
        """Names of the tensor arguments, in order."""
        self.state = decoder.state
        """Weights, optimizer state and constants by name; runs update the step's state in place."""
        self.numbers = decoder.named
        """The numbers that may be set: `loaded.numbers["lr"] = 1e-4`."""
        self.captured = decoder.captured
        self.results = decoder.result(eager(data["results"]))
        inputs = [s for s in self.captured.sources if isinstance(s, StepInput)]
        self._inputs = sorted(inputs, key=lambda s: s.position)
        self.executable = Executable(self.captured)

    @property
    def graph(self) -> Graph:
        """The loaded graph, before passes."""
        return self.captured.graph

    def __call__(self, *args: Tensor) -> Any:
        """Run once. Arrays and lists become tensors.

        Raises ShapeError for arguments of other shapes or dtypes, and CaptureError inside a capture.
        """
        dispatch.require_execution("load_graph", "a loaded step is called in a capture", fix="call it outside")
        if len(args) != len(self._inputs):
            expected = f"the {len(self._inputs)} of the saved step"
            raise ShapeError(message("load_graph", f"got {len(args)} arguments", expected=expected))
        tensors: list[Any] = [None] * (1 + max((s.position for s in self._inputs), default=-1))
        for source, x in zip(self._inputs, args, strict=True):
            tensors[source.position] = _fitted(source, x)
        return fill_results(self.results, self.executable.run(tensors), tensors)

    def explain(self) -> str:
        """Describe the changes of each pass to the loaded graph, and how each op runs and why."""
        return explain(self.executable)

    @staticmethod
    def profile() -> StepProfile:
        """Time the captured steps inside a block, node by node: `with loaded.profile() as p: loaded(x)`."""
        return StepProfile()

    def __repr__(self) -> str:
        return f"LoadedGraph({self._path}: {len(self.graph.nodes)} ops, {len(self.state)} tensors)"


class _Decoder:
    """Makes a captured graph from the data of a file, which may have any shape. Raises CorruptFileError."""

    def __init__(self, path: str, data: Mapping[str, Any], device: Device | str | None) -> None:
        self._path = path
        self.generators: list[Generator] = []
        self.argument_names: list[str] = self._list(data, "arguments") if "arguments" in data else []
        if not all(isinstance(name, str) for name in self.argument_names):
            raise self._corrupt(f"arguments have the names {self.argument_names!r}", "a list of strings")
        self.state: dict[str, Tensor] = {}
        graph, target = self._graph(eager(data["graph"]), device)
        streams = [self._stream(s) for s in self._list(data, "streams")]
        self._scalars, self.named = restore(self._list(data, "numbers"), streams, path)
        if not isinstance(data["state"], Mapping):
            raise self._corrupt("the state is no dictionary")
        sources = self._sources(graph, target, self._list(data, "sources"), data["state"])
        mutated = [s.buffer for i, s in enumerate(sources) if isinstance(s, CapturedConstant) and i in graph.updates]
        actions = replay_actions(self._scalars, self.named, streams)
        self.captured = CapturedGraph(graph, sources, actions, [], list(range(len(graph.outputs))), mutated)

    def _list(self, data: Mapping[str, Any], name: str) -> list[Any]:
        value = eager(data[name])
        if not isinstance(value, list):
            raise self._corrupt(f"{name} is a {type(value).__name__}", "a list")
        return value

    def result(self, data: Any) -> Any:
        """The structure of the step's results."""
        kind, value = _tagged(data)
        if kind == "tensor" and _is_index(value, len(self.captured.graph.outputs)):
            return OutputIndex(value)
        if kind == "number" and _is_index(value, len(self._scalars)):
            return self._scalars[value]
        if kind == "state" and isinstance(value, str) and value in self.state:
            return self.state[value]
        if kind == "argument" and (spec := self._spec_of(data)) is not None:
            return GivenTensor(value, spec, 0, is_source=True)
        if kind == "view" and isinstance(value, list) and len(value) == 4:
            return self._view(*value)
        if kind in ("list", "tuple") and isinstance(value, list):
            parts = [self.result(x) for x in value]
            return parts if kind == "list" else tuple(parts)
        if kind == "dict" and isinstance(value, dict):
            return {k: self.result(x) for k, x in value.items()}
        if kind == "value" and (value is None or type(value) in (bool, int, float, str)):
            return value
        raise self._corrupt(f"a result is {data!r}")

    def _view(self, source: Any, shape: list[int], strides: list[int], distance: int) -> GivenTensor:
        """Return a view of an argument or of the state, which must be within its memory."""
        lists = isinstance(shape, list) and isinstance(strides, list) and len(shape) == len(strides)
        whole = self._spec_of(source)
        if whole is None or not lists or not all(type(n) is int for n in (*shape, *strides, distance)):
            raise self._corrupt(f"a result is a view of {source!r}")
        spec = Spec(whole.dtype, tuple(shape), tuple(strides), False)
        (low, high), (first, last) = extent(whole.shape, whole.strides), extent(spec.shape, spec.strides)
        if min(shape, default=0) < 0 or (spec.size and not low <= first + distance <= last + distance <= high):
            raise self._corrupt(f"a view reaches elements {first + distance} to {last + distance}", f"{low} to {high}")
        kind, value = _tagged(source)
        return GivenTensor(value if kind == "argument" else self.state[value], spec, distance)

    def _spec_of(self, data: Any) -> Spec | None:
        """Return the layout of an argument or of a part of the state; None for anything else."""
        kind, value = _tagged(data)
        if kind == "state" and isinstance(value, str) and value in self.state:
            return self.state[value].spec
        inputs = (s.spec for s in self.captured.sources if isinstance(s, StepInput) and s.position == value)
        return next(inputs, None) if kind == "argument" and type(value) is int else None

    def _graph(self, topology: Any, device: Device | str | None) -> tuple[Graph, Device | None]:
        """The graph, and the device on which all of it runs, if there is only one."""
        places = topology.get("places") if isinstance(topology, dict) else None
        names = {str(p.get("device")) for p in places if isinstance(p, dict)} if isinstance(places, list) else set()
        target = Device(device) if device is not None or len(names) < 2 else None
        graph = build(topology, self._path, lambda name: target or Device(name))
        for number, node in enumerate(graph.nodes):
            if node.origin is None:
                raise self._corrupt(f"node {number} ({node.op.name}) has no place", "the device that it runs on")
        return graph, target

    def _stream(self, data: Any) -> RandomStream:
        generator = Generator(0)
        try:
            generator.set_state(data["state"])
            blocks = int(data["blocks"])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._corrupt(f"a random state is {data!r}") from error
        self.generators.append(generator)
        stream = RandomStream(generator)
        stream.blocks = blocks
        return stream

    def _sources(
        self, graph: Graph, target: Device | None, entries: list[Any], state: Mapping[str, Any]
    ) -> list[InputSource]:
        """Where each input comes from."""
        if len(entries) != graph.inputs:
            raise self._corrupt(f"{len(entries)} sources", f"one for each of {graph.inputs} inputs")
        devices = _input_devices(graph, target)
        inputs = enumerate(zip(entries, graph.specs, strict=False))
        sources = [self._source(i, entry, spec, devices[i], state) for i, (entry, spec) in inputs]
        positions = sorted(s.position for s in sources if isinstance(s, StepInput))
        if len(set(positions)) != len(positions):
            raise self._corrupt(f"arguments {positions}", "each position once")
        return sources

    def _source(self, i: int, entry: Any, spec: Any, device: Device, state: Mapping[str, Any]) -> InputSource:
        kind, value = _tagged(entry)
        if kind == "number" and isinstance(spec, ScalarSpec) and _is_index(value, len(self._scalars)):
            scalar: RuntimeScalar = self._scalars[value]
            if dispatch.scalar_dtype(scalar.value) is not spec.dtype:
                raise self._corrupt(f"input %{i} is {scalar.value!r}", str(spec))
            return scalar
        if kind == "argument" and isinstance(spec, Spec) and _is_index(value, 2**16):
            return StepInput(value, spec, device)
        if kind == "state" and isinstance(spec, Spec) and isinstance(value, str) and value in state:
            return self._constant(value, spec, device, state[value])
        raise self._corrupt(f"input %{i} ({spec}) comes from {entry!r}", "an argument, a number or saved state")

    def _constant(self, name: str, spec: Spec, device: Device, saved: Tensor) -> CapturedConstant:
        array = saved.numpy() if isinstance(saved, Tensor) else np.asarray(saved)
        low, high = extent(spec.shape, spec.strides)
        shape = spec.shape if spec.is_contiguous else (high - low + 1 if spec.size else 0,)
        if array.dtype != spec.dtype.numpy or array.shape != shape:
            raise self._corrupt(f"{name} is {array.dtype}{list(array.shape)}", f"{spec.dtype.name}{list(shape)}")
        offset = 0
        if not spec.is_contiguous:
            # The first element need not be the lowest in memory, and must be on the boundary that kernels assume.
            offset = -(low // ALIGNMENT) * ALIGNMENT
            array = np.concatenate([np.zeros(offset + low, array.dtype), array])
        device.check_dtype(spec.dtype)  # the graph was recorded for this dtype, not for its stand-in
        buffer, ref = device.upload(array, spec.dtype)
        placed = Ref(ref.handle, spec, offset)
        self.state[name] = wrap(device, buffer, placed)
        return CapturedConstant(buffer, placed, device)

    def _corrupt(self, problem: str, expected: str = "") -> CorruptFileError:
        return CorruptFileError(message("load_graph", f"{self._path}: {problem}", expected=expected))


def _tagged(data: Any) -> tuple[str, Any]:
    """The key and the value of a dictionary with one key; ("", None) for anything else."""
    if not isinstance(data, dict) or len(data) != 1:
        return "", None
    ((kind, value),) = data.items()
    return str(kind), value


def _is_index(value: int, count: int) -> bool:
    return type(value) is int and 0 <= value < count


def _input_devices(graph: Graph, target: Device | None) -> list[Any]:
    """The device of each input: `target`, or that of the first node that uses it, preferably not for a transfer."""
    devices: list[Any] = [target] * graph.inputs
    if target is None:
        for node in sorted(graph.nodes, key=lambda n: Trait.CROSS_DEVICE in n.op.traits):
            for value in node.reads:
                if value < graph.inputs and devices[value] is None and node.origin is not None:
                    devices[value] = node.device
    return devices


def _fitted(source: StepInput, x: Tensor | Array) -> Tensor:
    """An argument on its device and in its layout. Raises ShapeError."""
    tensor = x if isinstance(x, Tensor) else Tensor(x, device=source.device)
    spec = source.spec
    elsewhere = source.device is not None and tensor.device is not source.device  # None: no node uses it
    if tensor.shape != spec.shape or tensor.dtype is not spec.dtype or elsewhere:
        raise ShapeError(
            message(
                "load_graph",
                f"argument {source.position} is {tensor.spec} on {tensor.device}",
                expected=f"{spec} on {source.device}",
            )
        )
    if tensor.spec == spec or tensor.spec._replace(aligned=False) == spec:
        return tensor
    if not spec.is_contiguous:
        problem = f"argument {source.position} has strides {tensor.strides}"
        raise ShapeError(message("load_graph", problem, expected=f"{list(spec.strides)}"))
    with dispatch.executing(dispatch.EAGER):
        dense: Tensor = tensor.detach().copy()
    return dense
