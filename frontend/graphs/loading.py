"""Captured steps read from files, and run on any device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhal.graphs.saving import FORMAT, SCHEMA
from polyhal.hal import dispatch
from polyhal.hal.capture.result import CapturedConstant, CapturedGraph, InputSource, StepInput
from polyhal.hal.capture.runtime_scalars import RandomStream, RuntimeScalar
from polyhal.hal.capture.scalar_records import replay_actions, restore
from polyhal.hal.device import Device
from polyhal.hal.diagnostics.explain_graph import explain
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, ShapeError, message
from polyhal.hal.ir.graph import Graph, Value
from polyhal.hal.ir.serialize import build
from polyhal.hal.layout import ALIGNMENT, Ref, ScalarSpec, Spec, extent
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.scheduler.executable import Executable
from polyhal.hal.scheduler.profile import StepProfile
from polyhal.random import Generator
from polyhal.serialize import load
from polyhal.serialize.checkpoint import eager
from polyhal.steps.results import OutputIndex, fill_results
from polyhal.tensor import Tensor, wrap


def load_graph(path: str | os.PathLike[str], device: Device | str | None = None) -> LoadedGraph:
    """A step that `save_graph` saved, ready to run on `device`.

    Without a device, a step that ran on several goes to those of the same names, any other to the default device. Raises
    CorruptFileError for a file that is damaged or was altered, naming the node, IncompatibleFileError for one of another
    kind or version, and DeviceUnavailableError.
    """
    data = load(path, Device("numpy"), lazy=True)
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise IncompatibleFileError(message("load_graph", f"{path} holds no graph", expected="a file of save_graph"))
    if data["schema"] != SCHEMA:
        raise IncompatibleFileError(
            message(
                "load_graph",
                f"{path} has schema {data['schema']}",
                expected=f"schema {SCHEMA}",
                fix="load it with the version of Polyhal that wrote it",
            )
        )
    missing = {"graph", "sources", "results", "numbers", "streams", "state"} - set(data)
    if missing:
        raise CorruptFileError(message("load_graph", f"{path} lacks {', '.join(sorted(missing))}"))
    return LoadedGraph(path, data, device)


class LoadedGraph:
    """A loaded step. Call it with the tensors that the step took; it returns what the step returned."""

    def __init__(self, path: str | os.PathLike[str], data: Mapping[str, Any], device: Device | str | None) -> None:
        self._what = str(path)
        topology = eager(data["graph"])
        names = {str(p.get("device")) for p in topology.get("places", ())} if isinstance(topology, dict) else set()
        one = Device(device) if device is not None or len(names) < 2 else None
        graph = build(topology, self._what, lambda name: one or Device(name))
        self.generators: list[Generator] = []
        """Where the step's random numbers come from, in the states in which they were saved."""
        self.state: dict[str, Tensor] = {}
        """Weights, optimizer state and constants by name; runs change in place what the step changed."""
        streams = [self._stream(s) for s in eager(data["streams"])]
        numbers, self.numbers = restore(eager(data["numbers"]), streams, self._what)
        """The numbers that may be set: `loaded.numbers["lr"] = 1e-4`."""
        given = eager(data["sources"])
        if not isinstance(given, list) or len(given) != graph.inputs:
            raise self._corrupt(f"{len(given)} sources", f"one for each of {graph.inputs} inputs")
        devices = _devices(graph, one)
        sources = [
            self._source(entry, spec, devices[i], data["state"], numbers, i)
            for i, (entry, spec) in enumerate(zip(given, graph.specs, strict=False))
        ]
        positions = sorted(s.position for s in sources if isinstance(s, StepInput))
        self._arguments = sorted((s for s in sources if isinstance(s, StepInput)), key=lambda s: s.position)
        if len(set(positions)) != len(positions):
            raise self._corrupt(f"arguments {positions}", "each position once")
        self.results = self._pattern(eager(data["results"]), len(graph.outputs), numbers)
        written = [s.buffer for i, s in enumerate(sources) if isinstance(s, CapturedConstant) and i in graph.updates]
        notes = replay_actions(numbers, self.numbers, streams)
        self.captured = CapturedGraph(graph, sources, notes, [], list(range(len(graph.outputs))), written)
        self.executable = Executable(self.captured)

    @property
    def graph(self) -> Graph:
        """The loaded graph, before it was optimised."""
        return self.captured.graph

    def __call__(self, *args: Tensor) -> Any:
        """Run once. Arrays and lists become tensors.

        Raises ShapeError for arguments of other shapes or dtypes, and CaptureError inside a capture.
        """
        dispatch.thread.executor.require_execution(
            "load_graph", "a loaded step is called in a capture", fix="call it outside"
        )
        if len(args) != len(self._arguments):
            raise ShapeError(
                message(
                    "load_graph", f"got {len(args)} arguments", expected=f"the {len(self._arguments)} of the saved step"
                )
            )
        tensors: list[Any] = [None] * (1 + max((a.position for a in self._arguments), default=-1))
        for argument, x in zip(self._arguments, args, strict=True):
            tensors[argument.position] = _fitting(argument, x)
        outputs = self.executable.run(tensors)
        return fill_results(self.results, [wrap(device, buffer, ref) for device, buffer, ref in outputs])

    def explain(self) -> str:
        """What each pass made of the loaded graph, and how each op runs and why."""
        return explain(self.executable)

    @staticmethod
    def profile() -> StepProfile:
        """Device times by node of the captured steps that run inside: `with loaded.profile() as p: loaded(x)`."""
        return StepProfile()

    def _corrupt(self, problem: str, expected: str = "") -> CorruptFileError:
        return CorruptFileError(message("load_graph", f"{self._what}: {problem}", expected=expected))

    def _stream(self, data: Any) -> RandomStream:
        generator = Generator(0)
        try:
            generator.set_state(data["state"])
            blocks = int(data["blocks"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._corrupt(f"a random state is {data!r}") from error
        self.generators.append(generator)
        stream = RandomStream(generator)
        stream.blocks = blocks
        return stream

    def _source(
        self, entry: Any, spec: Any, device: Any, state: Mapping[str, Any], numbers: Sequence[RuntimeScalar], i: int
    ) -> InputSource:
        """Where input `i` comes from."""
        kind, value = _marked(entry)
        if kind == "number" and isinstance(spec, ScalarSpec) and type(value) is int and 0 <= value < len(numbers):
            found = numbers[value]
            if dispatch.scalar_dtype(found.value) is not spec.dtype:
                raise self._corrupt(f"input %{i} is {found.value!r}", str(spec))
            return found
        if kind == "argument" and isinstance(spec, Spec) and type(value) is int and 0 <= value < 2**16:
            return StepInput(value, spec, device)
        if kind == "state" and isinstance(spec, Spec) and isinstance(value, str) and value in state:
            return self._held(value, spec, device, state[value])
        raise self._corrupt(f"input %{i} ({spec}) comes from {entry!r}", "an argument, a number or saved state")

    def _held(self, name: str, spec: Spec, device: Device, saved: Any) -> CapturedConstant:
        array = saved.numpy() if isinstance(saved, Tensor) else np.asarray(saved)
        low, high = extent(spec.shape, spec.strides)
        wanted = spec.shape if spec.is_contiguous else (high - low + 1 if spec.size else 0,)
        if array.dtype != spec.dtype.numpy or array.shape != wanted:
            raise self._corrupt(f"{name} is {array.dtype}{list(array.shape)}", f"{spec.dtype.name}{list(wanted)}")
        offset = 0
        if not spec.is_contiguous:
            # The first element need not be the lowest in memory, and has to lie on the boundary that kernels count on.
            offset = -(low // ALIGNMENT) * ALIGNMENT
            array = np.concatenate([np.zeros(offset + low, array.dtype), array])
        buffer, ref = device.upload(array, spec.dtype)
        placed = Ref(ref.handle, spec, offset)
        self.state[name] = wrap(device, buffer, placed)
        return CapturedConstant(buffer, placed, device)

    def _pattern(self, data: Any, outputs: int, numbers: Sequence[RuntimeScalar]) -> Any:
        """What the step returns, from `_result_data`."""
        kind, value = _marked(data)
        if kind == "tensor" and type(value) is int and 0 <= value < outputs:
            return OutputIndex(value)
        if kind == "number" and type(value) is int and 0 <= value < len(numbers):
            return numbers[value]
        if kind == "state" and isinstance(value, str) and value in self.state:
            return self.state[value]
        if kind in ("list", "tuple") and isinstance(value, list):
            made = [self._pattern(x, outputs, numbers) for x in value]
            return made if kind == "list" else tuple(made)
        if kind == "dict" and isinstance(value, dict):
            return {k: self._pattern(x, outputs, numbers) for k, x in value.items()}
        if kind == "value" and (value is None or type(value) in (bool, int, float, str)):
            return value
        raise self._corrupt(f"a result is {data!r}")

    def __repr__(self) -> str:
        return f"LoadedGraph({self._what}: {len(self.graph.nodes)} ops, {len(self.state)} tensors)"


def _marked(data: Any) -> tuple[str, Any]:
    """The kind and the content of an object with one key; ("", None) for anything else."""
    if not isinstance(data, dict) or len(data) != 1:
        return "", None
    ((kind, value),) = data.items()
    return str(kind), value


def _devices(graph: Graph, one: Device | None) -> list[Any]:
    """The device of each input: that of the first node that reads it, other than to copy it elsewhere."""
    found: list[Any] = [one] * graph.inputs
    if one is None:
        for node in sorted(graph.nodes, key=lambda n: n.op is OPS["transfer"]):
            for x in node.inputs:
                if (
                    isinstance(x, Value)
                    and x.index < graph.inputs
                    and node.origin is not None
                    and found[x.index] is None
                ):
                    found[x.index] = node.origin.device
    return found


def _fitting(argument: StepInput, x: Any) -> Tensor:
    """An argument on its device and in its layout. Raises ShapeError."""
    tensor = x if isinstance(x, Tensor) else Tensor(x, device=argument.device)
    spec = argument.spec
    elsewhere = argument.device is not None and tensor.device is not argument.device  # None: nothing reads it
    if tensor.shape != spec.shape or tensor.dtype is not spec.dtype or elsewhere:
        raise ShapeError(
            message(
                "load_graph",
                f"argument {argument.position} is {tensor.spec} on {tensor.device}",
                expected=f"{spec} on {argument.device}",
            )
        )
    if tensor.spec == spec or tensor.spec._replace(aligned=False) == spec:
        return tensor
    if not spec.is_contiguous:
        raise ShapeError(
            message(
                "load_graph",
                f"argument {argument.position} has strides {tensor.strides}",
                expected=f"{list(spec.strides)}",
            )
        )
    with dispatch.executing(dispatch.EAGER):
        dense: Tensor = tensor.detach().copy()
    return dense
