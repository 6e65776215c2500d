"""ONNX's own node tests: which a device can store, and how each ends."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from polyhal.hal.device import Device
from polyhal.hal.errors import IncompatibleFileError, UnsupportedOpError
from polyhal.onnx import backend
from polyhal.onnx.attention_nodes import DOMAIN as JOINED
from polyhal.onnx.element_types import device_dtype
from polyhal.onnx.narrow_types import is_narrow
from polyhal.onnx.registration import TABLE


@functools.cache
def cases() -> dict[str, TestCase]:
    """Return ONNX's node tests by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some compute infinities
        return {case.name: case for case in load_model_tests(kind="node")}


def plain(name: str) -> bool:
    """Return whether a test contains an operator itself, not its definition by others."""
    return "_expanded" not in name


def missing_dtype(case: TestCase, device: Device) -> str:
    """Return an element type of inputs or results that a device cannot store, or an empty text."""
    assert case.model is not None
    for value in (*case.model.graph.input, *case.model.graph.output):
        for number in _element_types(value.type):
            array = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
            dtype = device_dtype(array)
            stored = device.backend.capabilities.storage
            if is_narrow(array):  # an array of the host on all devices
                continue
            if dtype is None or not (dtype in stored or dtype in device.stand_ins):
                return str(onnx.TensorProto.DataType.Name(number))
    return ""


def _element_types(kind: onnx.TypeProto) -> list[int]:
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return _element_types(getattr(kind, which).elem_type)
    return [kind.tensor_type.elem_type] if which == "tensor_type" else []


def run(case: TestCase, device: str, capture: bool = False) -> None:
    """Run a test. Raises AssertionError if a result differs."""
    prepared = backend.prepare(case.model, device, capture=capture)
    for inputs, expected in case.data_sets or ():
        given = [_array(x) for x in inputs]
        wanted = [_array(x) for x in expected]
        Runner.assert_similar_outputs(wanted, prepared.run(given), case.rtol, case.atol)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return [_array(v) for v in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """How a test ended: passed, failed, or an operator or an element type is not supported."""

    name: str
    kind: str
    reason: str = ""


def outcome(case: TestCase, device: str, capture: bool = False) -> Outcome:
    """Run a test, and return how it ended."""
    if missing := missing_dtype(case, Device(device)):
        return Outcome(case.name, "dtype", missing)
    try:
        run(case, device, capture)
    except (UnsupportedOpError, IncompatibleFileError) as error:
        return Outcome(case.name, "operator", str(error))
    except Exception as error:
        return Outcome(case.name, "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Outcome(case.name, "passed")


def operators_table() -> str:
    """Return the operators with a function as a table in Markdown, one row per file of the table."""
    rows: dict[str, dict[str, list[int]]] = {}
    for (domain, name), versions in sorted(TABLE.items()):
        for found in versions if domain != JOINED else ():
            room = found.function.__module__.rpartition(".")[2].replace("_", " ")
            rows.setdefault(room, {}).setdefault(f"{domain}.{name}" if domain else name, []).append(found.since)
    lines = ["| file | operators |", "|---|---|"]
    for room, names in sorted(rows.items()):
        listed = (f"{n} ({', '.join(map(str, sorted(v)))})" if max(v) > 1 else n for n, v in sorted(names.items()))
        lines.append(f"| {room} | {', '.join(listed)} |")
    return "\n".join(lines)
