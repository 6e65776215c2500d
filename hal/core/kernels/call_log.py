"""The kernel-call log: calls of `lower` for which a device had to build programs, kept for `polyhal prebuild`.

There is one file per device, which survives driver updates. Each call is one line of JSON, appended in a single write, so that
processes share the file without a lock. Invalid lines are skipped; failures to write are ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core.fingerprint import model_key
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.core.settings.trust import read_regular
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import CorruptFileError
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.capabilities import DeviceInfo
    from polyhal.hal.device import Device

_TYPICAL = ("classifier", "transformer")
"""Programs whose first training step is in `typical_*.jsonl`, as devices log it: `benchmarks.first_step`, and the calls
that small models of the kinds of GPT and BERT have in common, op by op in PyTorch."""
_MAX_BYTES = 4 * 2**20
"""Maximum size of a log; no calls are added to a larger one until it is deleted."""
_LARGE = 2**26
"""Maximum bytes of tensors of a call to run; larger calls are only built."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of `lower`."""

    op: str
    inputs: tuple[InputSpec | None, ...]
    outputs: tuple[Spec, ...]
    params: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data. Raises ValueError for parameters that cannot be represented."""
        return {
            "op": self.op,
            "inputs": [_plain_spec(s) for s in self.inputs],
            "outputs": [_plain_spec(s) for s in self.outputs],
            "params": {k: _plain(v) for k, v in self.params.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> KernelCall:
        """Return the call that `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        inputs, outputs = (tuple(_spec(s) for s in value[k]) for k in ("inputs", "outputs"))
        if not all(isinstance(s, Spec) for s in outputs):
            raise ValueError(f"outputs are {outputs}")
        return cls(str(value["op"]), inputs, outputs, {k: _value(v) for k, v in value["params"].items()})  # type: ignore[arg-type]

    def run(self, device: Device, *, launch: bool = True) -> None:
        """Build the launch, and with `launch` run it on new memory unless it is large. Raises the device's errors."""
        kernel = device.backend.lower(self.op, self.inputs, self.outputs, self.params)  # type: ignore[attr-defined]
        if isinstance(kernel, Declined) or not launch:
            return
        tensors = [s for s in (*self.inputs, *self.outputs) if isinstance(s, Spec)]
        if sum(_reach(s)[1] for s in tensors) + sum(kernel.workspace) > _LARGE:
            return
        buffers: list[Any] = []  # kept alive until the work is done
        arguments: list[Any] = []
        for s in (*self.inputs, *self.outputs):
            if isinstance(s, Spec):
                first, nbytes = _reach(s)
                buffers.append(device.pool.take(bucket(nbytes)))
                device.backend.copy_to_device(memoryview(bytes(nbytes)), buffers[-1].handle, 0)
                arguments.append(Ref(buffers[-1].handle, s, first))
            else:
                arguments.append(None if s is None else 1)
        for nbytes in kernel.workspace:
            buffers.append(device.pool.take(bucket(nbytes)))
            arguments.append(buffers[-1].handle)
        kernel(*arguments)
        device.synchronize()


class KernelCallLog:
    """The log of one device."""

    def __init__(self, info: DeviceInfo) -> None:
        self._path = env.cache_dir() / "calls" / f"{model_key(info, driver=False)}.jsonl"
        self._known: set[str] | None = None

    def add(self, call: KernelCall, programs: Iterable[str]) -> None:
        """Log a call that built programs with these digests, unless all digests are known."""
        digests = list(programs)
        if self._known is None:
            self._known = {p for line in self._lines() for p in line.get("programs", ())}
        if self._known.issuperset(digests):
            return
        self._known.update(digests)
        with contextlib.suppress(OSError, ValueError):
            line = json.dumps({**call.to_json(), "programs": digests}, allow_nan=False) + "\n"
            _append(self._path, line.encode())

    def calls(self) -> list[KernelCall]:
        """Return all calls, each once."""
        calls = {}
        for line in self._lines():
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
                line.pop("programs", None)
                calls[json.dumps(line, sort_keys=True)] = KernelCall.from_json(line)
        return list(calls.values())

    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for text in read_regular(self._path).decode().splitlines():
                with contextlib.suppress(CorruptFileError):
                    line = json_store.parse(text, self._path)
                    programs = line.get("programs") if isinstance(line, dict) else None
                    if isinstance(programs, list) and all(isinstance(p, str) for p in programs):
                        lines.append(line)
        return lines


def typical_calls() -> list[list[KernelCall]]:
    """Return the calls of first training steps, a list for each typical program."""
    folder = resources.files("polyhal.hal.core.kernels")
    texts = ((folder / f"typical_{name}.jsonl").read_text(encoding="utf-8") for name in _TYPICAL)
    return [[KernelCall.from_json(json.loads(line)) for line in text.splitlines()] for text in texts]


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size:  # a full disk may have truncated the last line
            os.lseek(handle, size - 1, os.SEEK_SET)
            data = data if os.read(handle, 1) == b"\n" else b"\n" + data
        if size < _MAX_BYTES:
            os.write(handle, data)
    finally:
        os.close(handle)


def _reach(spec: Spec) -> tuple[int, int]:
    """Return the minimum offset of a layout in a separate allocation, and the bytes of the allocation."""
    first = sum(-s * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True) if s < 0)
    last = first + sum(s * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True) if s > 0)
    return first, (last + 1) * spec.dtype.itemsize


def _plain_spec(spec: InputSpec | None) -> Any:
    if isinstance(spec, Spec):
        return [spec.dtype.name, list(spec.shape), list(spec.strides), spec.aligned]
    return None if spec is None else spec.dtype.name


def _spec(value: Any) -> InputSpec | None:
    if value is None:
        return None
    if isinstance(value, str):
        return ScalarSpec(dtypes.as_dtype(value))
    name, shape, strides, aligned = value
    if len(shape) != len(strides) or not all(isinstance(n, int) for n in (*shape, *strides)):
        raise ValueError(f"{value!r} is not a spec")
    return Spec(dtypes.as_dtype(name), tuple(shape), tuple(strides), bool(aligned))


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{value!r} cannot be represented as plain data")


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return dtypes.as_dtype(value["dtype"])
    return tuple(_value(v) for v in value) if isinstance(value, list) else value
