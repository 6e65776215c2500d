"""The members of a backend whose kernels are in OpenCL C: lowering of ops, and users' kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.core_methods import CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.backends.opencl_c import lowering
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.backends.opencl_c.user_kernel import BuildsUserKernels, UserKernelCompiler
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.library import KernelLibrary
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch, UserKernel

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


class KernelMethods(CoreMethods):
    """Lowering and users' kernels, and the arithmetic members. A backend inherits them and adds memory and submission."""

    def __init__(self, runtime: Runtime, kernels: KernelLibrary, builder: BuildsUserKernels) -> None:
        """`kernels` are the programs of `runtime`, and `builder` is the runtime as the builder of users' kernels."""
        super().__init__(runtime, lowering.BUILDERS)
        self.kernels = kernels
        self._kernel_runtime = runtime
        self._call_log = KernelCallLog(runtime.info)
        self._lowerings = lowering.table()
        self._user_kernels = UserKernelCompiler(builder, runtime.info.name)

    @property
    def features(self) -> KernelFeatures:
        """The device facts by which kernels and launches are chosen."""
        return self._kernel_runtime.features

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Return a native kernel for `op`, or the reason for declining it. Logs calls that build programs."""
        known = len(self.kernels.program_builds)
        launch = lower(self._lowerings, self._kernel_runtime, op, inputs, outputs, params)
        if builds := self.kernels.program_builds[known:]:
            self._call_log.add(KernelCall(op, inputs, outputs, params), [b.digest for b in builds if b.compiled])
        return launch

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Params,
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Return a launch of a user's kernel, or the reason for declining it. Raises KernelBuildError."""
        return self._user_kernels.compile(kernel, inputs, outputs, params, grid, group)
