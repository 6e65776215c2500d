"""The steps of a convolution as matrix products: im2col and col2im launches, copies and cuBLAS calls.

Kernel: kernels/conv/im2col.cu.
"""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Strided, Tensor, Workspace
from polyhal.backends.common.problems.conv import Geometry
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch
from polyhal_cupy.lowering.gemm.cublas import BatchedGemm, Step, multiply
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.lowering.support.arguments import window_lengths
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_WARP = 32


class ConvSteps:
    """Steps over one argument list, with workspaces starting at index `first`."""

    def __init__(self, runtime: Runtime, geometry: Geometry, first: int) -> None:
        self._runtime = runtime
        self._geometry = geometry
        self._first = first
        self._steps: list[Step] = []
        self._sizes: list[int] = []
        self._failed = False

    def workspace(self, nbytes: int) -> int:
        """Add a workspace, and return its argument index."""
        self._sizes.append(nbytes)
        return self._first + len(self._sizes) - 1

    def add(self, step: Step) -> None:
        self._steps.append(step)

    def multiply(self, product: BatchedGemm, name: str) -> None:
        """Add a product."""
        step = multiply(self._runtime, product, name)
        if step is None:
            self._failed = True
        else:
            self._steps.append(step)

    def make_contiguous(self, place: int, spec: Spec) -> int:
        """Return the index of an argument if it is contiguous, else of a contiguous copy."""
        return place if spec.is_contiguous else self.copy(place, spec, contiguous(spec.dtype, spec.shape))

    def copy(self, place: int, view: Spec, target: Spec, offset: int = 0) -> int:
        """Copy a view of an argument, at an offset in elements, to a new workspace, and return its index."""
        copy = copy_launch(self._runtime, view, target)
        workspace = self.workspace(target.nbytes)

        def run(*args: Any) -> None:
            source = args[place]
            copy(Ref(source.handle, view, source.offset + offset), Ref(args[workspace], target))

        self._steps.append(SimpleLaunch(copy.name, run))
        return workspace

    def im2col(self, x: Spec, place: int, target: int, part: tuple[int, int], p_step: int, n_step: int) -> None:
        """Add im2col of a part of the images: (first image, number of images)."""
        g = self._geometry
        first, images = part
        row_threads = min(_BLOCK, max(_WARP, power_of_two_at_least(g.pixels)))
        items = g.groups * g.taps * images
        strides = dict(zip(("image", "channel", "row", "column"), x.strides, strict=True))
        args: dict[str, Argument] = {
            "x": Strided(Tensor(place), strides), "x_offset": first * x.strides[0], "columns": Workspace(target),
            "items": items, "images": images, "p_step": p_step, "n_step": n_step,
        }  # fmt: skip
        self._launch("im2col", x.dtype, args, ceil_div(items, _BLOCK // row_threads), row_threads)

    def col2im(self, dx: Spec, source: int, target: int, part: tuple[int, int], p_step: int, n_step: int) -> None:
        """Add col2im to a part of the images: (first image, number of images)."""
        first, images = part
        size = dx.size // dx.shape[0]
        args: dict[str, Argument] = {
            "columns": Workspace(source), "dx": Tensor(target), "dx_offset": first * size, "items": images * size,
            "images": images, "p_step": p_step, "n_step": n_step,
        }  # fmt: skip
        self._launch("col2im", dx.dtype, args, ceil_div(images * size, _BLOCK), _WARP)

    def _launch(self, kernel: str, dtype: DType, args: dict[str, Argument], blocks: int, row_threads: int) -> None:
        """Add a launch; `args` are the arguments that do not follow from the geometry."""
        g = self._geometry
        definitions: dict[str, str | int | bool] = {
            "DTYPE": dtype.name, "COLUMN_DTYPE": accumulator(dtype).name, "REAL": rows.real_type(dtype), "BLOCK": _BLOCK,
            "ROW_THREADS": row_threads, "UNIT_STRIDE": g.stride == (1, 1),
        }  # fmt: skip
        lengths = window_lengths(*g.size, *g.result, *g.kernel, *g.stride, *g.padding, *g.dilation)
        args |= {"channels": g.groups * g.channels, **lengths}
        self._steps.append(
            self._runtime.launch(kernel, "conv/im2col", definitions, args, blocks, _BLOCK, kernel=kernel)
        )

    def build(self) -> Launch | Declined:
        """Return the launch, unless cuBLAS does not support the strides of an operand."""
        if self._failed:
            return Declined("cuBLAS does not support the strides of an operand")
        return LaunchSequence(self._steps, tuple(self._sizes))
