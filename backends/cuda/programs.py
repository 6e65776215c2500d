"""Programs: PTX and machine code of kernels, compiled once, cached in memory and on disk.

The disk cache holds PTX, which depends on the architecture only, and machine code, which depends on the driver's version too.
With cached PTX a program runs on a machine that has the CUDA driver and no compiler, as under WSL 2.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import NULL, CudaError, ffi
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.cuda.compiler import CompilationError, KernelCompiler
from polyhal.backends.cuda.errors import CudaErrors
from polyhal.backends.cuda.ptx import CudaCode, for_cuda
from polyhal.backends.opencl_c import ptx
from polyhal.backends.opencl_c.build_errors import build_error
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.program_texts import ProgramTexts
from polyhal.backends.opencl_c.ptx import Target
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels import background_build
from polyhal.hal.core.kernels.library import ProgramBuild
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import KernelBuildError, message

_LOG = logger("kernels")
_IMAGE = "facts, code"
"""Form of cached machine code: a line of JSON in front of it."""
_MOVES_REGISTERS = b"setmaxnreg"
"""Instruction that has no effect in relocatable code, which the linker assembles."""
_PTX_INPUT = 1
"""CU_JIT_INPUT_PTX."""
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
"""CU_JIT_ERROR_LOG_BUFFER and its size."""
_LOG_BYTES = 1 << 14
_BLOCK, _SHARED, _PRIVATE, _REGISTERS, _MAX_DYNAMIC_SHARED, _LARGE_CLUSTERS = 0, 1, 3, 4, 8, 14
"""CU_FUNC_ATTRIBUTE_... numbers; the last one is NON_PORTABLE_CLUSTER_SIZE_ALLOWED."""
_PORTABLE_CLUSTER = 8
"""Maximum groups of a cluster without that attribute."""
_SHARED_WITH_OPT_IN = 97
"""CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."""


class CudaKernel:
    """A kernel function of a program, which it keeps loaded."""

    __slots__ = ("_program", "dependent", "folded", "function", "largest_group", "name", "shared")

    def __init__(self, program: CudaProgram, name: str, cluster: int = 1) -> None:
        """Look up the function `name`, whose clusters have `cluster` groups. The context must be current. Raises CudaError."""
        driver = program.context.driver
        self._program = program
        self.name = name
        self.folded = program.folded
        self.function = driver.value("cuModuleGetFunction", "CUfunction *", program.module, name.encode())
        self.largest_group = self.attribute(_BLOCK)
        """Maximum threads per block, which is below the device's limit for a kernel with many registers."""
        self.shared = program.shared.get(name, 0)
        """Bytes of dynamic shared memory."""
        self.dependent = name in program.dependent
        """True if the kernel awaits its inputs itself (lib/dependent_launch.h)."""
        if self.shared:
            driver.call("cuFuncSetAttribute", self.function, _MAX_DYNAMIC_SHARED, self.shared)
        if cluster > _PORTABLE_CLUSTER:
            driver.call("cuFuncSetAttribute", self.function, _LARGE_CLUSTERS, 1)

    def attribute(self, attribute: int) -> int:
        """Return an attribute of the function. The context must be current. Raises CudaError."""
        return int(self._program.context.driver.value("cuFuncGetAttribute", "int *", attribute, self.function))

    def statistics(self) -> dict[str, int]:
        """Return figures by name, sizes in bytes."""
        with self._program.context:
            return {
                "max_group_size": self.largest_group,
                "registers": self.attribute(_REGISTERS),
                "local_bytes": self.attribute(_SHARED) + self.shared,
                "private_bytes": self.attribute(_PRIVATE),
            }


class CudaProgram:
    """Loaded machine code, unloaded with this object."""

    __slots__ = ("context", "dependent", "errors", "folded", "module", "shared")

    def __init__(self, context: PrimaryContext, errors: CudaErrors, image: bytes, folded: bool) -> None:
        """Load an image, which `_image` made. The context must be current. Raises CudaError, and ValueError for others."""
        self.context = context
        self.errors = errors
        self.folded = folded
        """True if its kernels run in folded grids (see `grids`)."""
        header, _, code = image.partition(b"\n")
        facts = json.loads(header)
        if facts.keys() != {"shared", "dependent"}:
            raise ValueError(f"an image with the facts {sorted(facts)}")
        self.dependent: frozenset[str] = frozenset(facts["dependent"])
        """Kernels that await their inputs themselves."""
        self.shared: dict[str, int] = facts["shared"]
        """Bytes of dynamic shared memory by kernel."""
        self.module = context.driver.value("cuModuleLoadDataEx", "CUmodule *", ffi.from_buffer(code), 0, NULL, NULL)

    def kernel(self, name: str, cluster: int = 1) -> CudaKernel:
        """Return a kernel of the program, whose clusters have `cluster` groups.

        Raises BackendError if it declares more local memory than the device has.
        """
        driver, declared = self.context.driver, self.shared.get(name, 0)
        try:
            if declared and declared > (limit := driver.attribute(_SHARED_WITH_OPT_IN, self.context.device)):
                raise self.errors.local_memory(name, declared, limit)
            with self.context:
                return CudaKernel(self, name, cluster)
        except CudaError as error:
            raise self.errors.translate(error, f"loading the kernel {name}") from error

    def __del__(self) -> None:
        if hasattr(self, "module"):
            with self.context:
                self.context.driver.lib.cuCtxSynchronize()  # a launch may still run
                self.context.driver.lib.cuModuleUnload(self.module)


class CudaPrograms(ProgramTexts):
    """The programs of one device. Implements `polyhal.hal.core.kernels.library.KernelLibrary`."""

    ready_when_built = True

    def __init__(
        self,
        context: PrimaryContext,
        errors: CudaErrors,
        compiler: KernelCompiler | None,
        features: Callable[[], KernelFeatures],
        info: DeviceInfo,
    ) -> None:
        """`features` returns the facts that lowering functions use, so that kernels are compiled with equal quirks."""
        super().__init__(features, info)
        self._context = context
        self._errors = errors
        self._compiler = compiler
        self._architecture = f"sm_{features().compute_capability}"
        self._kernels: dict[tuple[Any, ...], CudaKernel] = {}
        self._builds: list[ProgramBuild] = []
        on_disk = not env.no_program_cache()
        folder = env.cache_dir() / "cuda"
        self._ptx = DiskCache(folder / "ptx") if on_disk else None
        self.disk = DiskCache(folder / "programs") if on_disk else None
        """Machine code."""
        self.background = background_build.background_builder(f"{info.backend}:{info.selector}") if on_disk else None

    @property
    def program_builds(self) -> Sequence[ProgramBuild]:
        """Programs that this process has built or loaded so far."""
        return self._builds

    @property
    def compilations(self) -> int:
        """Number of programs that were compiled or assembled."""
        return sum(b.compiled for b in self._builds)

    def kernel(
        self,
        source: str,
        name: str,
        definitions: Definitions,
        options: Sequence[str] = (),
        target: Target | None = None,
        *,
        folded: bool = False,
    ) -> CudaKernel:
        """Return a kernel of the file `source`, built with these definitions. Equal requests return the same object.

        Raises KernelBuildError.
        """
        key = (source, tuple(definitions.items()), tuple(options), target, folded, self._quirks, name)
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                program = self.build(source, self.text(source, definitions, name), options, target, folded=folded)
                kernel = self._kernels[key] = program.kernel(name, target.cluster if target else 1)
        return kernel

    def statistics(self, name: str) -> list[dict[str, Any]]:
        """Return the driver's figures for each kernel of a file that this process has built."""
        with self._lock:
            kernels = [(key[1], k) for key, k in self._kernels.items() if key[0] == name]
        return [
            {"kernel": kernel.name, "definitions": dict(definitions)} | kernel.statistics()
            for definitions, kernel in kernels
        ]

    def reload(self) -> None:
        """Read all files and build all programs again. Programs with unchanged text are loaded from disk."""
        super().reload()
        with self._lock:
            self._kernels.clear()

    def build(
        self,
        label: str,
        text: str,
        options: Sequence[str] = (),
        target: Target | None = None,
        *,
        folded: bool = False,
    ) -> CudaProgram:
        """Return the program of a text, from disk or the compiler. `label` names it in errors. Raises KernelBuildError."""
        flags = self.flags(options)
        start = time.perf_counter()
        version = importlib.metadata.version("polyhal")
        parts = [version, self._architecture, " ".join(flags), *([str(target)] if target else []), text]
        ptx_key = DiskCache.key(parts)
        key = DiskCache.key([_IMAGE, str(self._context.driver.version), *(["folded"] if folded else []), *parts])
        program = self._load(key, folded)
        if program is None and self.background is not None:
            self.background.wait_for_turn(label, DiskCache.key([*options, text]))
            program = self._load(key, folded)
        compiled = program is None
        if program is None:
            code = self._stored_ptx_assembled(ptx_key, label, flags, target, folded)
            if code is None:
                output = self._compile(ptx_key, label, text, flags, target)
                code = self._assembled(label, output, flags, target, folded)
            if self.disk is not None:
                self.disk.store(key, code)
            program = self._loaded(label, code, folded)
        seconds = time.perf_counter() - start
        self._builds.append(ProgramBuild(label, key, seconds, compiled))
        _LOG.info("%s %s in %.1f ms on %s", "compiled" if compiled else "loaded", label, 1e3 * seconds, self._name)
        return program

    def _load(self, key: str, folded: bool) -> CudaProgram | None:
        """Return the program whose machine code is stored under a key; None without one, or if the driver refuses it."""
        code = self.disk.load(key) if self.disk is not None else None
        if self.disk is None or code is None:
            return None
        try:
            with self._context:
                return CudaProgram(self._context, self._errors, code, folded)
        except (CudaError, ValueError):
            self.disk.discard(key)
            return None

    def _loaded(self, label: str, code: bytes, folded: bool) -> CudaProgram:
        try:
            with self._context:
                return CudaProgram(self._context, self._errors, code, folded)
        except CudaError as error:
            raise self._errors.translate(error, f"loading {label}") from error

    def _stored_ptx_assembled(
        self, key: str, label: str, flags: list[str], target: Target | None, folded: bool
    ) -> bytes | None:
        """Return the image of the PTX that is stored under a key; None without it.

        PTX that the driver refuses, because it was stored with a newer driver, is compiled again if possible.
        """
        stored = self._ptx.load(key) if self._ptx is not None else None
        if self._ptx is None or stored is None:
            return None
        try:
            return self._assembled(label, stored, flags, target, folded)
        except KernelBuildError:
            if self._compiler is None:
                raise
            self._ptx.discard(key)
            return None

    def _compile(self, key: str, label: str, text: str, flags: list[str], target: Target | None) -> bytes:
        """Return the PTX of a program for this device, and store it. Raises KernelBuildError."""
        if self._compiler is None:
            problem = "this kernel is not in the program cache, and there is no compiler for it"
            fix = "install NVIDIA's OpenCL driver, or copy the folder `cuda` of Polyhal's cache from a machine that has one"
            raise KernelBuildError(message(label, problem, fix=fix, device=self._name))
        try:
            output = self._compiler.compile(text, flags)
        except CompilationError as error:
            raise build_error(self._sources, label, text, flags, str(error), self._name) from None
        result = ptx.retarget(output, target) if target else output
        if self._ptx is not None:
            self._ptx.store(key, result)
        return result

    def _assembled(self, label: str, output: bytes, flags: list[str], target: Target | None, folded: bool) -> bytes:
        """Return the image of a compiler's output. Raises KernelBuildError."""
        source = for_cuda(output, folded=folded)
        if _MOVES_REGISTERS in source.text or (target is not None and target.whole):
            # Loading assembles PTX as a whole program, which the driver caches.
            return _image(source, source.text)
        return _image(source, self._assemble(label, source.text, flags))

    def _assemble(self, label: str, text: bytes, flags: list[str]) -> bytes:
        """Return the machine code of PTX. Raises KernelBuildError with the assembler's log."""
        driver = self._context.driver
        log = ffi.new("char[]", _LOG_BYTES)
        names = ffi.new("int[]", [_ERROR_LOG, _ERROR_LOG_BYTES])
        values = ffi.new("void *[]", [log, ffi.cast("void *", _LOG_BYTES)])
        try:
            with self._context:
                created = ffi.new("CUlinkState *")
                driver.call("cuLinkCreate_v2", 2, names, values, created)
                state = created[0]
                try:
                    image = ffi.from_buffer(text)
                    driver.call("cuLinkAddData_v2", state, _PTX_INPUT, image, len(text), label.encode(), 0, NULL, NULL)
                    code, size = ffi.new("void **"), ffi.new("size_t *")
                    driver.call("cuLinkComplete", state, code, size)
                    return bytes(ffi.buffer(code[0], size[0]))
                finally:
                    driver.lib.cuLinkDestroy(state)
        except CudaError as error:
            written = ffi.string(log).decode(errors="replace") or str(error)
            source = text.decode(errors="replace")
            raise build_error(self._sources, label, source, flags, written, self._name) from None


def _image(source: CudaCode, code: bytes) -> bytes:
    """Return machine code, or PTX, with a line in front that has the facts about its kernels."""
    facts = {"shared": source.shared, "dependent": sorted(source.dependent)}
    return json.dumps(facts).encode() + b"\n" + code
