"""Programs: built once per device, kept in memory, and as binaries on disk where the driver gains by it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pyopencl as cl

from polyhal.backends.common.disk_cache import DiskCache
from polyhal.backends.common.templating import Definitions, SourceFolder
from polyhal.backends.opencl.capabilities import Features
from polyhal.hal import config
from polyhal.hal.errors import KernelBuildError, message

_CONTEXT_LINES = 4
_BASE_OPTIONS = ("-cl-std=CL1.2", "-w")
"""Version, and no warnings: some drivers print their number on stderr for each program. Errors come all the same."""


class Kernel:
    """One kernel function of a program. Argument state is part of the OpenCL object, hence the lock around its use."""

    __slots__ = ("cl", "lock", "name", "types")

    def __init__(self, program: cl.Program, name: str, types: tuple[Any, ...]) -> None:
        self.cl = cl.Kernel(program, name)
        # Without declared types pyopencl examines every scalar at every launch, at ten times the cost.
        self.cl.set_arg_types(types)
        self.lock = threading.Lock()
        self.name = name
        self.types = types


class ProgramStore:
    """The programs of one device."""

    def __init__(self, context: cl.Context, device: cl.Device, features: Features, device_name: str) -> None:
        self._context = context
        self._device = device
        self._features = features
        self._name = device_name
        self._sources = SourceFolder("polyhal.shaders.opencl")
        self._programs: dict[tuple[Any, ...], cl.Program] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._lock = threading.Lock()
        self.builds = 0
        """Programs compiled from source, for tests and `doctor`."""
        use_disk = features.binaries and not config.no_program_cache()
        self.disk = DiskCache(config.cache_dir() / "opencl" / "programs") if use_disk else None

    def kernel(
        self,
        source: str,
        name: str,
        definitions: Definitions,
        types: tuple[Any, ...],
        options: Sequence[str] = (),
    ) -> Kernel:
        """A kernel of the file `source`, built with these definitions; the same object for the same request.

        `types` holds, per kernel parameter, the NumPy scalar type or None for memory. Raises KernelBuildError.
        """
        key = (source, tuple(definitions.items()), tuple(options), name)
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                program = self._program(key[:3], source, definitions, options)
                kernel = self._kernels[key] = Kernel(program, name, types)
        assert kernel.types == types, f"{name} was bound before as {kernel.types}, now as {types}"
        return kernel

    def _program(
        self, key: tuple[Any, ...], source: str, definitions: Definitions, options: Sequence[str]
    ) -> cl.Program:
        program = self._programs.get(key)
        if program is None:
            with_features: Mapping[str, str | int | bool] = {"HAVE_FP64": self._features.fp64, **definitions}
            text = self._sources.assemble(source, with_features)
            program = self._programs[key] = self.build(source, text, options)
        return program

    def build(self, label: str, text: str, options: Sequence[str] = ()) -> cl.Program:
        """The program of a text, from disk or the compiler; `label` names it in errors. Raises KernelBuildError."""
        flags = [*_BASE_OPTIONS, *options]
        key = ""
        if self.disk is not None:
            key = DiskCache.key([*self._identity(), " ".join(flags), text])
            binary = self.disk.load(key)
            if binary is not None:
                program = self._from_binary(binary, flags)
                if program is not None:
                    return program
                self.disk.discard(key)
        program = self._compile(label, text, flags)
        if self.disk is not None:
            self.disk.store(key, _binary(program))
        return program

    def _identity(self) -> list[str]:
        device = self._device
        return [
            importlib.metadata.version("polyhal"),
            device.platform.name,
            device.platform.version,
            device.name,
            device.version,
            device.driver_version,
            hashlib.sha256(device.extensions.encode()).hexdigest(),
        ]

    def _from_binary(self, binary: bytes, flags: list[str]) -> cl.Program | None:
        """The program, or None where the driver refuses the binary, as after an update that kept its version."""
        try:
            program = cl.Program(self._context, [self._device], [binary])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                program.build(flags)
                return program
        except cl.Error:
            return None

    def _compile(self, label: str, text: str, flags: list[str]) -> cl.Program:
        self.builds += 1
        program = cl.Program(self._context, text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                # pyopencl's own cache would store the program again and ignores the driver's version. False turns it
                # off, which its annotation does not say.
                program.build(flags, cache_dir=False)  # type: ignore[arg-type]
                return program
        except cl.RuntimeError as error:
            raise KernelBuildError(_explain(label, text, flags, str(error), self._name)) from None


def _binary(program: cl.Program) -> bytes:
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0])


_LINE = re.compile(r":(\d+):\d+")


def _explain(label: str, text: str, flags: list[str], log: str, device: str) -> str:
    """The driver's words with the numbered source lines that they speak of."""
    lines = text.splitlines()
    match = _LINE.search(log)
    centre = int(match.group(1)) if match else 1
    first, last = max(1, centre - _CONTEXT_LINES), min(len(lines), centre + _CONTEXT_LINES)
    shown = "\n".join(f"{'>' if n == centre else ' '}{n:5d} | {lines[n - 1]}" for n in range(first, last + 1))
    fix = "report this with the log below: it names a driver's limit or our mistake"
    problem = message(label, "the driver refused the kernel", fix=fix, device=device)
    return f"{problem}\noptions: {' '.join(flags)}\nsource:\n{shown}\nlog:\n{log.strip()}"
