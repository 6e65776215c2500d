"""Programs: built once per device, cached in memory, and as binaries on disk if that helps with the driver.

The command line uses them through `polyhal.hal.core.kernels.library.KernelLibrary`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl import builtin_declarations, mesa_hints, struct_sizes
from polyhal.backends.opencl.driver import create_kernel
from polyhal.backends.opencl.kernel_statistics import statistics
from polyhal.backends.opencl_c import compiler_warnings, language, ptx
from polyhal.backends.opencl_c.build_errors import build_error
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.program_texts import ProgramTexts
from polyhal.backends.opencl_c.ptx import Target
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels import background_build
from polyhal.hal.core.kernels.library import ProgramBuild
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.system.discovery.processor import instruction_sets

_LOG = logger("kernels")


@dataclass(frozen=True, slots=True)
class ProgramOrigin:
    """Text and options from which a program was built, for exports."""

    text: Callable[[], str]
    """Function that assembles the text again: programs do not keep it."""
    flags: tuple[str, ...]
    target: Target | None = None
    """Compilation target, for which the compiler's output was changed; only for NVIDIA's devices."""


class CompiledKernel:
    """A kernel function of a program. Its arguments are state of the OpenCL object, hence the lock around its use."""

    __slots__ = ("_largest_group", "_program", "cl", "declared", "lock", "name", "origin", "types")

    def __init__(
        self, program: cl.Program, name: str, declared: tuple[Any, ...], origin: ProgramOrigin | None = None
    ) -> None:
        """`declared` holds, per kernel parameter, the NumPy type of scalars and structs, or None for memory."""
        self.origin = origin
        self.cl = create_kernel(program, name)
        self._program = program  # drivers do not retain it
        self.declared = declared
        self.types = tuple(self._passed(place, kind) for place, kind in enumerate(declared))
        """Types of the arguments that are passed to the driver."""
        # Without declared types pyopencl inspects every scalar at every launch, which takes ten times as long.
        self.cl.set_arg_types(self.types)
        self.lock = threading.Lock()
        self.name = name
        self._largest_group: int | None = None

    def _passed(self, place: int, kind: Any) -> Any:
        if not isinstance(kind, np.dtype):
            return kind
        # Structs are declared by size only: pyopencl caches code by the list of types, in which it compares structs by
        # size.
        return np.dtype((np.void, struct_sizes.taken(self.cl, place, kind)))

    def largest_group(self, device: cl.Device) -> int:
        """Return the maximum work-items per group, which is below the device's limit for a kernel with many registers.

        The driver is queried once.
        """
        if self._largest_group is None:
            parameter = cl.kernel_work_group_info.WORK_GROUP_SIZE
            self._largest_group = int(self.cl.get_work_group_info(parameter, device))  # type: ignore[call-overload]
        return self._largest_group


class ProgramCache(ProgramTexts):
    """The programs of one device. Implements `polyhal.hal.core.kernels.library.KernelLibrary`."""

    def __init__(
        self, context: cl.Context, device: cl.Device, features: Callable[[], KernelFeatures], info: DeviceInfo
    ) -> None:
        """`features` returns the facts that lowering functions use, so that kernels are compiled with equal quirks."""
        super().__init__(features, info)
        self._context = context
        self._device = device
        self._kernels: dict[tuple[Any, ...], CompiledKernel] = {}
        self._driver_id: tuple[str, ...] = ()
        self._is_processor = info.type is DeviceType.CPU
        self._builds: list[ProgramBuild] = []
        use_disk = not self._quirks.skip_binary_cache and not env.no_program_cache()
        self.disk = DiskCache(env.cache_dir() / "opencl" / "programs") if use_disk else None
        # Records the programs that should be in the driver's own cache, if it has one.
        self._markers = None if use_disk else DiskCache(env.cache_dir() / "opencl" / "built")
        self.background = (
            background_build.background_builder(f"{info.backend}:{info.selector}")
            if not env.no_program_cache()
            else None
        )
        self._expects_builds = False

    def expect_builds(self) -> None:
        """Start to build programs ahead if no process has built one yet. Only the first call has an effect."""
        if self.background is None or self._expects_builds:
            return
        self._expects_builds = True
        cache = self.disk or self._markers
        if cache is not None and cache.is_empty():
            self.background.start()

    @property
    def ready_when_built(self) -> bool:
        """Return whether building a program fully compiles its kernels.

        Drivers with their own cache finish at the first launch.
        """
        return not self._quirks.skip_binary_cache

    @property
    def program_builds(self) -> Sequence[ProgramBuild]:
        """Programs that this process has built or loaded so far."""
        return self._builds

    @property
    def compilations(self) -> int:
        """Number of programs that were compiled from source."""
        return sum(b.compiled for b in self._builds)

    def kernel(
        self,
        source: str,
        name: str,
        definitions: Definitions,
        types: tuple[Any, ...],
        options: Sequence[str] = (),
        target: Target | None = None,
    ) -> CompiledKernel:
        """Return a kernel of the file `source`, built with these definitions. Equal requests return the same object.

        `types` holds the declared parameter types, see CompiledKernel. Raises KernelBuildError.
        """
        key = (source, tuple(definitions.items()), tuple(options), target, self._quirks, name)
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                program = self.build(source, self.text(source, definitions, name), options, target)
                text = partial(self.text, source, dict(definitions), name)
                origin = ProgramOrigin(text, tuple(self.flags(options)), target)
                kernel = self._kernels[key] = CompiledKernel(program, name, types, origin)
        assert kernel.declared == types, f"{name} was bound before as {kernel.declared}, now as {types}"
        return kernel

    def statistics(self, name: str) -> list[dict[str, Any]]:
        """Return the driver's figures for each kernel of a file that this process has built."""
        with self._lock:
            kernels = [(key[1], key[2], k) for key, k in self._kernels.items() if key[0] == name]
        return [
            {"kernel": kernel.name, "definitions": dict(definitions)}
            | statistics(
                self._context,
                self._device,
                kernel.cl,
                self.text(name, dict(definitions), kernel.name),
                self.flags(options),
            )
            for definitions, options, kernel in kernels
        ]

    def reload(self) -> None:
        """Read all files and build all programs again. Programs with unchanged text are loaded from disk."""
        super().reload()
        with self._lock:
            self._kernels.clear()

    def build(self, label: str, text: str, options: Sequence[str] = (), target: Target | None = None) -> cl.Program:
        """Return a kernel file's program, from disk or the compiler. `label` names it in errors. Raises KernelBuildError."""
        return self._built(label, text, options, target, self._compile_declared)

    def build_as_written(self, label: str, text: str, options: Sequence[str] = ()) -> cl.Program:
        """Return a user's program, which may use all of OpenCL C. Otherwise as `build`."""
        return self._built(label, text, options, None, self._compile)

    def _built(
        self,
        label: str,
        text: str,
        options: Sequence[str],
        target: Target | None,
        compiler: Callable[[str, str, list[str]], cl.Program],
    ) -> cl.Program:
        flags = self.flags(options)
        start = time.perf_counter()
        key = DiskCache.key([*self._identity(), " ".join(flags), *([str(target)] if target else []), text])
        in_driver_cache = self._markers is not None and self._markers.load(key) is not None
        program = self._load(key, flags)
        if program is None and not in_driver_cache and self.background is not None:
            self.background.wait_for_turn(label, DiskCache.key([*options, text]))
            program = self._load(key, flags)
        compiled = program is None and not in_driver_cache
        if program is None:
            program = compiler(label, text, flags)
            if target is not None:
                program = self._assemble(label, ptx.retarget(self._binary(program), target), flags)
            binary = self._binary(program) if self.disk is not None or self._quirks.run_loaded_binaries else b""
            if self.disk is not None:
                self.disk.store(key, binary)
            elif self._markers is not None and not in_driver_cache:
                self._markers.store(key, b"")
            if self._quirks.run_loaded_binaries:
                program = self._from_binary(binary, flags) or program
        seconds = time.perf_counter() - start
        self._builds.append(ProgramBuild(label, key, seconds, compiled))
        _LOG.info("%s %s in %.1f ms on %s", "compiled" if compiled else "loaded", label, 1e3 * seconds, self._name)
        return program

    def _load(self, key: str, flags: list[str]) -> cl.Program | None:
        """Return the program stored under a key; None if it is missing or the driver refuses it."""
        binary = self.disk.load(key) if self.disk is not None else None
        if self.disk is None or binary is None:
            return None
        program = self._from_binary(binary, flags)
        if program is None:
            self.disk.discard(key)
        return program

    def _identity(self) -> tuple[str, ...]:
        """Return everything except the source on which binaries depend. Queries the driver once."""
        if not self._driver_id:
            device = self._device
            self._driver_id = (
                importlib.metadata.version("polyhal"),
                device.platform.name,
                device.platform.version,
                device.name,
                device.version,
                device.driver_version,
                hashlib.sha256(device.extensions.encode()).hexdigest(),
                # Processors of one name may differ, as in virtual machines that share a home directory.
                " ".join(sorted(instruction_sets())) if self._is_processor else "",
            )
        return self._driver_id

    def _from_binary(self, binary: bytes, flags: list[str]) -> cl.Program | None:
        """Return the program of a binary; None if the driver refuses it, as after an update that kept its version."""
        try:
            return self._build_binary(binary, flags)
        except cl.Error:
            return None

    def _compile(self, label: str, text: str, flags: list[str]) -> cl.Program:
        try:
            return self._from_source(text, flags)
        except cl.RuntimeError as error:
            raise self._error(label, text, flags, error) from None

    def _compile_declared(self, label: str, text: str, flags: list[str]) -> cl.Program:
        """Compile without the header of built-in functions if the compiler would parse it for each program."""
        if self._quirks.parses_all_builtins and language.BASE in flags:
            declared = builtin_declarations.declarations(text, bool(self._language["HAVE_FP64"]))
            try:
                return self._from_source(declared + text, [*flags, builtin_declarations.SKIP_HEADER])
            except cl.RuntimeError as error:
                _LOG.info("%s needs the compiler's header on %s: %s", label, self._name, error)
        return self._compile(label, text, flags)

    def _from_source(self, text: str, flags: list[str]) -> cl.Program:
        program = cl.Program(self._context, text)
        with compiler_warnings.ignored:
            # pyopencl's own cache would store the program a second time and ignores the driver's version. False disables it,
            # although its annotation does not include False.
            program.build(flags, [self._device], cache_dir=False)  # type: ignore[arg-type]
        return program

    def _assemble(self, label: str, binary: bytes, flags: list[str]) -> cl.Program:
        """Return the program of PTX that was changed after compilation."""
        try:
            return self._build_binary(binary, flags)
        except cl.Error as error:
            raise self._error(label, binary.decode(errors="replace"), flags, error) from None

    def _build_binary(self, binary: bytes, flags: list[str]) -> cl.Program:
        program = cl.Program(self._context, [self._device], [binary])
        with compiler_warnings.ignored:
            program.build(flags)
        return program

    def _binary(self, program: cl.Program) -> bytes:
        """Return the compiler's output. A program has a binary for each device of its context."""
        info: Any = program.get_info
        devices, binaries = info(cl.program_info.DEVICES), info(cl.program_info.BINARIES)
        return bytes(binaries[devices.index(self._device)])

    def _error(self, label: str, text: str, flags: list[str], error: cl.Error) -> KernelBuildError:
        log = str(error)
        return build_error(
            self._sources, label, text, flags, log, self._name, mesa_hints.header_remedy(log, self._name)
        )
