"""The runtime of lowering functions: facts about a device, and launches of kernels by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.kernel_arguments import Bound, bind
from polyhal.backends.common.launching.kernel_signature import KernelSignature
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.opencl_c import language
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.program_texts import ProgramTexts
from polyhal.backends.opencl_c.ptx import Target
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.core.kernels.tuning import Tuning
from polyhal.hal.protocol import Launch, SimpleLaunch


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """A kernel of a file, and the build options of its program."""

    file: str
    kernel: str
    definitions: Definitions
    options: tuple[str, ...] = ()
    target: Target | None = None
    """Compilation target; one that rewrites PTX is for NVIDIA's devices only."""


class Runtime(ABC):
    """A device's interface for lowering functions: facts for choosing kernels, and launches."""

    programs: ProgramTexts

    def __init__(self, info: DeviceInfo, features: KernelFeatures, capabilities: Capabilities, tuning: Tuning) -> None:
        self.info = info
        self.features = features
        self.capabilities = capabilities
        self.tuning = tuning
        """Values of kernel families' tunables, which lowering functions query."""

    def launch(
        self,
        source: str,
        definitions: Definitions,
        args: Arguments,
        items: tuple[int, ...],
        group: tuple[int, ...],
        *,
        kernel: str = "",
        options: Sequence[str] = (),
        workspace: tuple[int, ...] = (),
        target: Target | None = None,
    ) -> Launch:
        """Return a launch of a kernel from shaders/opencl/`source`.cl.

        The kernel's name, by default the path with `_` for `/`, is also the launch's, which `explain` and the profiler
        show. `args` binds every parameter of the kernel by name (see `backends.opencl_c.lowering`). `items` is the number
        of work-items needed per axis; it is rounded up to whole groups, so the kernel must check its index. `group`
        must not depend on the data's size, because some drivers compile a kernel for each group size. A `target`
        that rewrites PTX is for NVIDIA's devices only. Raises KernelBuildError, and KernelArgumentError if `args` do not
        fit the kernel.
        """
        file, kernel = f"{source}.cl", kernel or source.replace("/", "_")
        options = (*language.options(definitions, self.features.language), *options)
        if not self.programs.passes_filter(file, kernel, definitions, options):
            return SimpleLaunch(kernel, _skip, workspace)
        signature = self.programs.signature(file, kernel, definitions)
        parameters = bind(signature, args, offsets=True)
        rounded = tuple(round_up(n, g) for n, g in zip(items, group, strict=True))
        request = KernelRequest(file, kernel, definitions, options, target)
        return self._launch(request, signature, parameters, rounded, group, workspace)

    @abstractmethod
    def _launch(
        self,
        request: KernelRequest,
        signature: KernelSignature,
        parameters: Sequence[Bound],
        items: tuple[int, ...],
        group: tuple[int, ...],
        workspace: tuple[int, ...],
    ) -> Launch:
        """Return a launch of a kernel whose parameters are bound; `items` is a multiple of `group`."""


def _skip(*args: Any) -> None:
    """No-op: another process builds and runs this program."""
