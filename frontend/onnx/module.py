"""`load`, which makes a module of an ONNX model. Calls with the same shapes replay a captured step."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from polyhal.default_device import get_default_device
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError, PolyhalError, ShapeError, UnsupportedDTypeError, message
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.onnx.attention_nodes import HIDDEN, mask_constants
from polyhal.onnx.element_types import device_dtype, name_of, numpy_dtype
from polyhal.onnx.evaluation import Evaluator
from polyhal.onnx.graph import GraphInput
from polyhal.onnx.reader import Model, read_model
from polyhal.onnx.registration import Value
from polyhal.onnx.stored import Initializer
from polyhal.random import get_rng_state, set_rng_state
from polyhal.steps.jit import Jitted
from polyhal.steps.jit import jit as captured
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_SMALL = 4096
"""Number of elements of integer constants that stay on the host."""
_LARGEST_MASK = 1 << 26
"""Maximum size in bytes of a mask that stays on the host."""
_MAX_STEPS = 8
_ON_DEVICE = object()
"""Stands for a result of a captured step that is a tensor."""


class OnnxModule(Module):
    """An ONNX model. Its parameters are the model's initializers, under their names.

    Inputs are tensors, arrays or numbers, in the model's order or by name. Integers from which shapes are computed stay on
    the host: other values of them are captured as another step.
    """

    def __init__(self, model: Model, device: Device, *, trainable: bool = False, capture: bool = True) -> None:
        super().__init__()
        self.training = False
        self._model = model
        self._device = device
        self._capture = capture
        self._constants: dict[str, np.ndarray] = {}
        self._places: dict[str, tuple[Module, str]] = {}
        self._steps: OrderedDict[object, _Step] = OrderedDict()
        self._recorded = self._replayed = 0
        self.eager_reason = ""
        """The reason why calls run op by op, if they do: a part of the model depends on values of tensors."""
        masks = mask_constants(model.graph)
        for name, stored in model.graph.stored.items():
            self._store(name, stored, trainable, name in masks)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(i.name for i in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the results."""
        return self._model.graph.outputs

    @property
    def output_types(self) -> tuple[int, ...]:
        """ONNX's element types of the results; 0 for unknown ones."""
        return self._model.graph.output_types

    @property
    def inputs(self) -> tuple[GraphInput, ...]:
        """The inputs without those that have an initializer: their names, element types and shapes."""
        stored = self._model.graph.stored
        return tuple(i for i in self._model.graph.inputs if i.name not in stored)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model. Returns its result, or a tuple of its results."""
        results = self._results(args, kwargs, only_captured=False)
        return results[0] if len(results) == 1 else tuple(results)

    def capture_ahead(self) -> bool:
        """Capture the step of a model whose inputs have fixed shapes, by a run on zeros. Returns whether it was captured.

        Other models are captured by their first call: shapes of inputs, or integers from which shapes are computed, vary.
        """
        on_host = self._model.graph.on_host
        if not self._capture or dispatch.thread.executor.recorder is not None:
            return False
        try:
            zeros = {i.name: i.zeros() for i in self.inputs if i.name not in on_host}
        except MemoryError:
            return False
        if len(zeros) < len(self.inputs) or any(z is None for z in zeros.values()):
            return False
        state = get_rng_state()
        with contextlib.suppress(PolyhalError, MemoryError):  # the first call raises it
            # Not op by op: a loop whose condition is a value may not end on zeros.
            self._results((), zeros, only_captured=True)
        set_rng_state(state)
        return bool(self._steps)

    def _is_differentiable(self, given: Iterable[Value]) -> bool:
        if not dispatch.thread.grad_enabled:
            return False
        tensors = itertools.chain(self.parameters(), (v for v in given if isinstance(v, Tensor)))
        return any(t.requires_grad for t in tensors)

    def _results(self, args: Sequence[Any], kwargs: dict[str, Any], *, only_captured: bool) -> list[Any]:
        """Run the model on the arguments of a call; with `only_captured`, return no results if it cannot be captured."""
        device = next((p.device for p in self.parameters()), self._device)
        on_host = self._model.graph.on_host
        given = {i.name: _arrived(i, v, device, i.name in on_host) for i, v in self._bound(args, kwargs)}
        with contextlib.nullcontext() if self._is_differentiable(given.values()) else no_grad():
            return [_returned(r, device) for r in self._computed(given, device, only_captured)]

    def _computed(self, given: dict[str, Value], device: Device, only_captured: bool) -> list[Value]:
        if not self._capture or self.eager_reason or dispatch.thread.executor.recorder is not None:
            return self._run(given, device)
        key = device, dispatch.thread.grad_enabled, tuple(_key(v) for v in given.values())
        step = self._steps.get(key)
        if step is None:
            self._recorded += 1
            if self._recorded > 4 * _MAX_STEPS and self._recorded > self._replayed:
                self.eager_reason = "lengths that the inputs contain differ in most calls"
                return self._run(given, device)
            step = self._steps[key] = _Step(self, given, device)
            if len(self._steps) > _MAX_STEPS:
                self._steps.popitem(last=False)
        else:
            self._replayed += 1
        self._steps.move_to_end(key)
        try:
            return step.run(given)
        except CaptureError as error:
            self.eager_reason = "; ".join((str(error), *getattr(error, "__notes__", ())))
            self._steps.clear()
            return [] if only_captured else self._run(given, device)

    def _run(self, given: dict[str, Value], device: Device) -> list[Value]:
        """Run the graph op by op."""
        stored = {name: getattr(owner, leaf) for name, (owner, leaf) in self._places.items()}
        return Evaluator(device).run(self._model.graph, self._constants | stored | given)

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[GraphInput, Any]]:
        graph = self._model.graph
        named = dict(zip(self.input_names, args, strict=False)) | kwargs
        known = {i.name: i for i in graph.inputs}
        unknown = sorted(kwargs.keys() - known.keys())
        missing = [i for i in self.input_names if i not in named and not known[i].optional]
        if unknown or missing or len(args) > len(self.input_names) or len(named) < len(args) + len(kwargs):
            found = ", ".join([f"{len(args)} arguments", *kwargs])
            listed = ", ".join(f"{i.name}: {_wanted(i)}" for i in self.inputs)
            raise ShapeError(message("onnx", f"got {found}", expected=f"the inputs {listed or 'none'}"))
        return [
            (i, named.get(i.name))
            for i in graph.inputs
            if i.name in named or (i.optional and i.name not in graph.stored)
        ]

    def _store(self, name: str, stored: Initializer, trainable: bool, is_mask: bool) -> None:
        """Keep an initializer: as a parameter, as a buffer, or on the host."""
        number = device_dtype(stored.dtype)
        floating = number is not None and number.is_floating_point
        small = stored.size <= (_SMALL if not floating else 0 if trainable else 1)
        if number is None or name in self._model.graph.on_host or small:
            self._constants[name] = np.array(stored.read())
            return
        elements = stored.read()
        if is_mask and elements.nbytes <= _LARGEST_MASK and _hides_or_shows(elements):
            self._constants[name] = np.array(elements)
            return
        tensor = Tensor(elements, device=self._device)
        owner, leaf = _place(self, name)
        if floating:
            owner.register_parameter(leaf, Parameter(tensor, requires_grad=trainable))
        else:
            owner.register_buffer(leaf, tensor)
        self._places[name] = owner, leaf


class _Step:
    """A captured call. Results that are on the host do not change: they depend on shapes and constants."""

    def __init__(self, module: OnnxModule, given: dict[str, Value], device: Device) -> None:
        constants = {name: v for name, v in given.items() if not isinstance(v, Tensor)}
        self._names = [name for name in given if name not in constants]
        self._host: list[Value] = []

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            results = module._run(constants | dict(zip(self._names, tensors, strict=True)), device)
            self._host = [_ON_DEVICE if isinstance(r, Tensor) else r for r in results]
            if any(isinstance(r, list) for r in results):
                raise CaptureError(message("onnx", "a result is a sequence", expected="tensors"))
            return tuple(r for r in results if isinstance(r, Tensor))

        self._step: Jitted[..., tuple[Tensor, ...]] = captured(step, warm_up=False)

    def run(self, given: dict[str, Value]) -> list[Value]:
        """Run the step, which is recorded by its first run."""
        tensors = iter(self._step(*(given[name] for name in self._names)))
        return [next(tensors) if h is _ON_DEVICE else h for h in self._host]


def load(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    device: Device | str | None = None,
    trainable: bool = False,
    capture: bool = True,
) -> OnnxModule:
    """Make a module of an ONNX model: a file, its bytes, or a message of the package onnx.

    Calls with the same shapes replay a step, unless `capture` is false: it is captured here if the model's inputs have fixed
    shapes, else by the first call. With `trainable` the parameters require gradients. External data is read tensor by tensor,
    from the folder of the file only.

    Raises UnsupportedOpError with all nodes that cannot run, CorruptFileError for damaged files, and IncompatibleFileError
    for opsets before 7 or after the newest one of the installed package.
    """
    target = get_default_device() if device is None else Device(device) if isinstance(device, str) else device
    module = OnnxModule(read_model(model), target, trainable=trainable, capture=capture)
    module.capture_ahead()
    return module


def _place(root: Module, name: str) -> tuple[Module, str]:
    """Return the module and the member for a name with dots, making modules on the way. Names that do not fit lose dots."""
    *path, leaf = name.split(".")
    if not all(part and not hasattr(Module, part) for part in (*path, leaf)):
        path, leaf = [], "_" + name.replace(".", "_")
    owner = root
    for part in path:
        inner = owner.__dict__.get(part)
        if inner is None:
            inner = Module()
            owner.add_module(part, inner)
        if not isinstance(inner, Module) or isinstance(inner, OnnxModule):
            return _place(root, "_" + name.replace(".", "_"))
        owner = inner
    while leaf in owner.__dict__:
        leaf += "_"
    return owner, leaf


def _hides_or_shows(mask: np.ndarray) -> bool:
    """Return whether all elements hide a pair, or leave its score as it is: no biases, which could be trained."""
    if not device_dtype(mask.dtype) or mask.dtype.kind in "biu":
        return True
    numbers = mask.astype(np.float32)
    return bool(np.all((numbers == 0) | (numbers == 1) | (numbers <= HIDDEN)))


def _arrived(declared: GraphInput, value: Any, device: Device, on_host: bool) -> Value:
    """Return an input as a tensor of the model's device, or as an array of the host."""
    if value is None or (isinstance(value, list) and not declared.element_type):
        if value is None and not declared.optional:
            raise ShapeError(message("onnx", f"the input {declared.name!r} is None", expected=_wanted(declared)))
        return None if value is None else [_arrived(declared, v, device, on_host) for v in value]
    dtype = numpy_dtype(declared.element_type) if declared.element_type else None
    if isinstance(value, Tensor):
        found = value.dtype.numpy
        fits = dtype is None or found == dtype or device_dtype(dtype) in device.stand_ins
    else:
        array = np.asarray(value)
        if dtype is not None and not isinstance(value, np.ndarray | np.generic):
            try:
                array = array.astype(dtype)
            except (TypeError, ValueError) as cause:
                problem = f"the input {declared.name!r} is {value!r:.80}"
                raise UnsupportedDTypeError(message("onnx", problem, expected=_wanted(declared))) from cause
        value, found = array, array.dtype
        fits = dtype is None or found == dtype or (dtype.kind == "O" and found.kind in "USO")
    shape = tuple(value.shape)
    expected = declared.shape
    same = expected is None or (
        len(expected) == len(shape)
        and all(not isinstance(e, int) or e == s for e, s in zip(expected, shape, strict=True))
    )
    if not fits or not same:
        error = UnsupportedDTypeError if not fits else ShapeError
        problem = f"the input {declared.name!r} is {found.name}{list(shape)}"
        raise error(message("onnx", problem, expected=_wanted(declared), fix="cast or reshape it"))
    if on_host:
        return value.numpy() if isinstance(value, Tensor) else value
    if isinstance(value, Tensor):
        return value if value.device is device else value.to(device)
    return Tensor(value, device=device) if device_dtype(value.dtype) is not None else value


def _returned(result: Value, device: Device) -> Value:
    """Return a result that was computed on the host as a tensor of its own, if there are tensors of its dtype."""
    if isinstance(result, np.ndarray | np.generic) and device_dtype(result.dtype) is not None:
        return Tensor(result, device=device)
    return result


def _wanted(declared: GraphInput) -> str:
    if not declared.element_type:
        return "a sequence or an optional value"
    shape = "" if declared.shape is None else f"[{', '.join(str(d or '?') for d in declared.shape)}]"
    return f"{name_of(declared.element_type)}{shape}"


def _key(value: Value) -> object:
    """Return the facts about an input on which a captured step depends."""
    if isinstance(value, Tensor):
        return value.dtype, value.shape
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, tuple(value.ravel()) if value.dtype == object else value.tobytes()
    return tuple(map(_key, value)) if isinstance(value, list) else value
