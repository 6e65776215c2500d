"""Programs: built once per device, kept in memory, and as binaries on disk where the driver gains by it.

`polyhal prebuild` and the tools around changed kernels see them as a `polyhal.hal.kernels.library.KernelLibrary`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from polyhal.backends.common.codegen.templating import Definitions, SourceFolder
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.common.launching.kernel_signature import KernelSignature, KernelSignatures
from polyhal.backends.common.quirks import definitions as quirk_definitions
from polyhal.backends.opencl import ptx
from polyhal.backends.opencl.capabilities import OpenCLFeatures
from polyhal.backends.opencl.kernel_statistics import statistics
from polyhal.backends.opencl.ptx import Target
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.kernels import background_build
from polyhal.hal.kernels.library import Built, Claim, Overrides
from polyhal.hal.settings import env

_CONTEXT_LINES = 4
_BASE_OPTIONS = ("-cl-std=CL1.2", "-w")
"""Version, and no warnings: some drivers print their number on stderr for each program. Errors come all the same."""


_CLWB_PROLOGUE = """#if defined(__AVX512F__) && !defined(__CLWB__)
#pragma clang attribute push(__attribute__((target("clwb"))), apply_to = function)
#endif
"""
_CLWB_EPILOGUE = """
#if defined(__AVX512F__) && !defined(__CLWB__)
#pragma clang attribute pop
#endif
"""
"""The workaround `target_clwb`: claims an instruction for persistent memory that no kernel uses, so that built-in functions are
inlined. Only a compiler for the host's own processor defines these names."""


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

    def __init__(self, context: cl.Context, device: cl.Device, features: OpenCLFeatures, info: DeviceInfo) -> None:
        self._context = context
        self._device = device
        self._features = features
        self._name = info.name
        self._device_definitions: Definitions = {
            "HAVE_FP64": features.fp64,
            "HAVE_PTX": features.inline_ptx,
            **quirk_definitions(features.quirks),
        }
        self.overrides = Overrides(info)
        self._sources = SourceFolder("polyhal.shaders.opencl", self.overrides.text)
        self._declared = KernelSignatures(self._sources.read)
        self._signatures: dict[tuple[Any, ...], KernelSignature] = {}
        self._programs: dict[tuple[Any, ...], cl.Program] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._lock = threading.Lock()
        self._depends_on: tuple[str, ...] = ()
        self.claim: Claim | None = None
        self._built: list[Built] = []
        use_disk = not features.quirks.skip_binary_cache and not env.no_program_cache()
        self.disk = DiskCache(env.cache_dir() / "opencl" / "programs") if use_disk else None
        # Where the driver has a cache of its own, this remembers what must be in it.
        self._marks = None if use_disk else DiskCache(env.cache_dir() / "opencl" / "built")
        self._ahead = (
            background_build.helpers(f"{info.backend}:{info.selector}") if not env.no_program_cache() else None
        )

    @property
    def ready_when_built(self) -> bool:
        return not self._features.quirks.skip_binary_cache

    @property
    def built(self) -> Sequence[Built]:
        return self._built

    @property
    def builds(self) -> int:
        """Programs compiled from source."""
        return sum(b.compiled for b in self._built)

    def kernel(
        self,
        source: str,
        name: str,
        definitions: Definitions,
        types: tuple[Any, ...],
        options: Sequence[str] = (),
        target: Target | None = None,
    ) -> Kernel:
        """A kernel of the file `source`, built with these definitions; the same object for the same request.

        `types` holds, per kernel parameter, the NumPy scalar type or None for memory. Raises KernelBuildError.
        """
        key = (source, tuple(definitions.items()), tuple(options), target, name)
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                program = self._program(key[:4], source, definitions, options, target)
                kernel = self._kernels[key] = Kernel(program, name, types)
        assert kernel.types == types, f"{name} was bound before as {kernel.types}, now as {types}"
        return kernel

    def signature(self, source: str, name: str, definitions: Definitions) -> KernelSignature:
        """The parameters of a kernel of the file `source` with these definitions. Raises KernelBuildError."""
        key = (source, tuple(definitions.items()), name)
        with self._lock:
            signature = self._signatures.get(key)
            if signature is None:
                try:
                    signature = self._declared.of(source, name, {**self._device_definitions, **definitions})
                except ValueError as error:
                    problem = f"the parameters of the kernel cannot be read: {error}"
                    raise KernelBuildError(message(source, problem, device=self._name)) from None
                self._signatures[key] = signature
            return signature

    def claimed(self, source: str, definitions: Definitions, options: Sequence[str] = ()) -> bool:
        """Whether this process is to build and run that program (see `KernelLibrary.claim`)."""
        if self.claim is None:
            return True
        text = self._text(source, definitions)
        return self.claim(source, DiskCache.key([*options, text]))

    def names(self) -> list[str]:
        return self._sources.names()

    def shipped(self, name: str) -> str:
        return self._sources.shipped(name)

    def parts(self, name: str) -> frozenset[str]:
        return self._sources.closure(name)

    def statistics(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            found = [(key[1], key[2], k) for key, k in self._kernels.items() if key[0] == name]
        return [
            {"kernel": kernel.name, "definitions": dict(defined)}
            | statistics(
                self._context, self._device, kernel.cl, self._text(name, dict(defined)), (*_BASE_OPTIONS, *options)
            )
            for defined, options, kernel in found
        ]

    def forget(self) -> None:
        """Read all files again and build all programs anew, from the disk where their text is unchanged."""
        with self._lock:
            self._sources.forget()
            self._declared.forget()
            self._signatures.clear()
            self._programs.clear()
            self._kernels.clear()

    def _text(self, source: str, definitions: Definitions) -> str:
        text = self._sources.assemble(source, {**self._device_definitions, **definitions})
        return f"{_CLWB_PROLOGUE}{text}{_CLWB_EPILOGUE}" if self._features.quirks.target_clwb else text

    def _program(
        self,
        key: tuple[Any, ...],
        source: str,
        definitions: Definitions,
        options: Sequence[str],
        target: Target | None,
    ) -> cl.Program:
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self.build(source, self._text(source, definitions), options, target)
        return program

    def build(self, label: str, text: str, options: Sequence[str] = (), target: Target | None = None) -> cl.Program:
        """The program of a text, from disk or the compiler; `label` names it in errors. Raises KernelBuildError."""
        flags = [*_BASE_OPTIONS, *options]
        begun = time.perf_counter()
        key = DiskCache.key([*self._identity(), " ".join(flags), *([str(target)] if target else []), text])
        marked = self._marks is not None and self._marks.load(key) is not None
        program = self._stored(key, flags)
        if program is None and not marked and self._ahead is not None:
            self._ahead.turn(label, DiskCache.key([*options, text]))
            program = self._stored(key, flags)
        compiled = program is None and not marked
        if program is None:
            program = self._compile(label, text, flags)
            if target is not None:
                program = self._assemble(label, ptx.rewritten(_binary(program), target), flags)
            if self.disk is not None:
                self.disk.store(key, _binary(program))
            elif self._marks is not None and not marked:
                self._marks.store(key, b"")
        self._built.append(Built(label, key, time.perf_counter() - begun, compiled))
        return program

    def _stored(self, key: str, flags: list[str]) -> cl.Program | None:
        """The program that the disk has under a key, if the driver takes it."""
        binary = self.disk.load(key) if self.disk is not None else None
        if self.disk is None or binary is None:
            return None
        program = self._from_binary(binary, flags)
        if program is None:
            self.disk.discard(key)
        return program

    def _identity(self) -> tuple[str, ...]:
        """What binaries depend on besides their source. The driver is asked once."""
        if not self._depends_on:
            self._depends_on = tuple(self._asked())
        return self._depends_on

    def _asked(self) -> list[str]:
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
        program = cl.Program(self._context, text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                # pyopencl's own cache would store the program again and ignores the driver's version. False turns it
                # off, which its annotation does not say.
                program.build(flags, cache_dir=False)  # type: ignore[arg-type]
                return program
        except cl.RuntimeError as error:
            raise KernelBuildError(self._explain(label, text, flags, str(error))) from None

    def _assemble(self, label: str, binary: bytes, flags: list[str]) -> cl.Program:
        """The program of PTX that is not the compiler's own any more."""
        program = cl.Program(self._context, [self._device], [binary])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                program.build(flags)
                return program
        except cl.Error as error:
            raise KernelBuildError(self._explain(label, binary.decode(errors="replace"), flags, str(error))) from None

    def _explain(self, label: str, text: str, flags: list[str], log: str) -> str:
        """The driver's words with the numbered source lines that they speak of, as the files number them."""
        lines = text.split("\n")
        places = [("generated", n) for n in range(1, len(lines) + 1)]
        changed: list[str] = []
        if label in self.names():
            changed = sorted(part for part in self.parts(label) if self._sources.is_replaced(part))
            origins = self._sources.origins(label)
            first = text[: max(text.find(self._sources.assemble(label, {})), 0)].count("\n")
            places[first : first + len(origins)] = origins
        said = _told(log)
        match = _LINE.search(said)
        centre = min(int(match.group(1)) if match else 1, len(lines))
        shown = "\n".join(
            f"{'>' if n == centre else ' '} {places[n - 1][0]}:{places[n - 1][1]:<4d} | {lines[n - 1]}"
            for n in range(max(1, centre - _CONTEXT_LINES), min(len(lines), centre + _CONTEXT_LINES) + 1)
        )
        fix = "report this with the log below: it names a driver's limit or our mistake"
        if changed:
            fix = f"mend {' and '.join(changed)}, which you have changed; the log below says what is wrong"
        problem = message(label, "the driver refused the kernel", fix=fix, device=self._name)
        return f"{problem}\noptions: {' '.join(flags)}\nsource:\n{shown}\nlog:\n{said}"


def _binary(program: cl.Program) -> bytes:
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0])


_LINE = re.compile(r":(\d+):\d+")
_IDLE_WORDS = re.compile(r"clBuildProgram failed|Build on <|Compilation (started|failed)|\(options: |\(source saved")
"""How lines begin that pyopencl and drivers put around what a compiler says."""


def _told(log: str) -> str:
    """What the compiler says, without the words around it, unless there is nothing else."""
    kept = [line for line in log.splitlines() if line.strip() and not _IDLE_WORDS.match(line)]
    return "\n".join(kept) or log.strip()
