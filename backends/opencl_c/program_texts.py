"""The texts of programs: kernel files with their headers and definitions, as passed to the device's compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from polyhal.backends.common.codegen.templating import Definitions, SourceFolder
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.common.launching.kernel_signature import KernelSignature, KernelSignatures
from polyhal.backends.common.quirks import definitions as quirk_definitions
from polyhal.backends.opencl_c import language
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.quirks import DriverQuirks
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels.library import BuildFilter, KernelOverrides
from polyhal.hal.errors import KernelBuildError, message

_CLWB_PROLOGUE = """#if defined(__AVX512F__) && !defined(__CLWB__)
#pragma clang attribute push(__attribute__((target("clwb"))), apply_to = function)
#endif
"""
_CLWB_EPILOGUE = """
#if defined(__AVX512F__) && !defined(__CLWB__)
#pragma clang attribute pop
#endif
"""
"""Text for the quirk `target_clwb`: it enables an unused instruction, so that built-in functions are inlined.

Only compilers for the host's processor define these macros.
"""


class ProgramTexts:
    """The kernel files of one device, and the program texts for given definitions. Builds nothing."""

    def __init__(self, features: Callable[[], KernelFeatures], info: DeviceInfo) -> None:
        """`features` returns the facts that lowering functions use, so that kernels are compiled with equal quirks."""
        opened = features()
        self._features = features
        self._name = info.name
        self._language: Definitions = {"HAVE_FP64": opened.fp64, "HAVE_PTX": opened.inline_ptx}
        """Definitions of the compiler's real capabilities, independent of features that tests override."""
        self.overrides = KernelOverrides(info)
        self._sources = SourceFolder("polyhal.shaders.opencl", self.overrides.text)
        self._declared = KernelSignatures(self._sources.read)
        self._signatures: dict[tuple[Any, ...], KernelSignature] = {}
        self._lock = threading.Lock()
        self.build_filter: BuildFilter | None = None

    @property
    def _quirks(self) -> DriverQuirks:
        return self._features().quirks

    @property
    def _device_definitions(self) -> Definitions:
        return {**self._language, **quirk_definitions(self._quirks)}

    def signature(self, source: str, name: str, definitions: Definitions) -> KernelSignature:
        """Return the parameters of a kernel of the file `source` with these definitions. Raises KernelBuildError."""
        key = (source, tuple(definitions.items()), self._quirks, name)
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

    def passes_filter(self, source: str, kernel: str, definitions: Definitions, options: Sequence[str] = ()) -> bool:
        """Return whether this process builds and runs a program (see `KernelLibrary.build_filter`)."""
        if self.build_filter is None:
            return True
        return self.build_filter(source, DiskCache.key([*options, self.text(source, definitions, kernel)]))

    @staticmethod
    def flags(options: Sequence[str] = ()) -> list[str]:
        """Return the options that a program is compiled with."""
        return language.flags(options)

    def names(self) -> list[str]:
        """Return the paths of all source files."""
        return self._sources.names()

    def shipped(self, name: str) -> str:
        """Return the original text of a file. Raises FileNotFoundError."""
        return self._sources.shipped(name)

    def parts(self, name: str) -> frozenset[str]:
        """Return a file and everything that it includes."""
        return self._sources.closure(name)

    def reload(self) -> None:
        """Read all files again."""
        with self._lock:
            self._sources.forget()
            self._declared.forget()
            self._signatures.clear()

    def text(self, source: str, definitions: Definitions, kernel: str = "") -> str:
        """Return the program of a file with these definitions, by default with all of its kernels."""
        text = self._sources.assemble(source, {**self._device_definitions, **definitions}, kernel)
        return f"{_CLWB_PROLOGUE}{text}{_CLWB_EPILOGUE}" if self._quirks.target_clwb else text
