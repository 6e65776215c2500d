"""The runtime of a described device: collects launches and checks them against the device's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.launching.kernel_arguments import Bound
from polyhal.backends.common.launching.kernel_signature import KernelSignature
from polyhal.backends.opencl.described.description import DescribedDevice, DeviceDescription
from polyhal.backends.opencl.described.noted_launch import NotedLaunch, argument_bytes, dynamic_local_memory
from polyhal.backends.opencl.described.noted_programs import NotedPrograms
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.runtime import KernelRequest, Runtime
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.core.kernels.tuning import Tuning
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.protocol import Launch, SimpleLaunch


class DescribedRuntime(Runtime):
    """A device without a driver."""

    programs: NotedPrograms

    def __init__(
        self,
        description: DeviceDescription,
        info: DeviceInfo,
        features: KernelFeatures,
        capabilities: Capabilities,
        tuning: Tuning,
    ) -> None:
        super().__init__(info, features, capabilities, tuning)
        self.device: DescribedDevice = description.device
        self.programs = NotedPrograms(lambda: self.features, info, description.compiler)

    def _launch(
        self,
        request: KernelRequest,
        signature: KernelSignature,
        parameters: Sequence[Bound],
        items: tuple[int, ...],
        group: tuple[int, ...],
        workspace: tuple[int, ...],
    ) -> Launch:
        """Note the launch. Raises KernelBuildError if the device could not run it."""
        noted = NotedLaunch(
            file=request.file,
            kernel=request.kernel,
            definitions=tuple(request.definitions.items()),
            options=tuple(self.programs.flags(request.options)),
            text=self.programs.text(request.file, request.definitions),
            group=group,
            local_memory=self.programs.local_memory(request.file, request.kernel, request.definitions)
            + dynamic_local_memory(parameters),
            argument_bytes=argument_bytes(parameters),
        )
        self.programs.note(noted)  # before the check, because a fallback kernel may replace one that does not fit
        if problems := list(noted.violations(self.device)):
            problem = f"{request.kernel} requires {' and '.join(problems)}"
            raise KernelBuildError(message(request.file, problem, device=self.info.name))
        return SimpleLaunch(request.kernel, _compute_nothing, workspace)


def _compute_nothing(*args: Any) -> None:
    """No-op: a described device cannot run a launch."""
