"""Convolution and its gradients as matrix products by cuBLAS, over columns that are laid out in a workspace.

A window of 1 x 1 needs no columns: the image already is the matrix. Where the columns of all images would take too much
memory, images are worked off in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Geometry
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy import blas
from polyhal_cupy.launch import Parameter, Pointer, ints, longs, uints, ulongs
from polyhal_cupy.lowering.gemm.cublas import Matrices, Product, Step, multiply
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_WARP = 32
_COLUMN_BYTES = 512 * 2**20
"""What the columns of one part of the images may take."""
_MOST_IMAGES = 64
"""Images per part of a grouped convolution, so that there are few calls for groups or for images."""
_UNWALKABLE = Declined("cuBLAS cannot walk the rows of an operand")


def _refusal(g: Geometry, first: InputSpec | None, *others: InputSpec | None) -> str:
    refusal = conv.refusal(g, first, *others)
    return refusal or (
        "" if first is not None and blas.supports(first.dtype) else "a dtype that cuBLAS does not multiply"
    )


def _depth(g: Geometry) -> int:
    """Rows of the columns of all groups."""
    return g.groups * g.taps


def _pointwise(g: Geometry) -> bool:
    return g.kernel == g.stride == (1, 1) and g.padding == (0, 0)


def _parts(g: Geometry, item: int) -> list[tuple[int, int]]:
    """(first image, images) of parts whose columns fit in memory."""
    most = max(1, min(_COLUMN_BYTES // (_depth(g) * g.pixels * item), g.images))
    if g.groups > 1:
        most = min(most, _MOST_IMAGES)
    return [(n, min(most, g.images - n)) for n in range(0, g.images, most)]


class _Work:
    """Steps over one argument list, with workspaces that begin at `first`."""

    def __init__(self, runtime: Runtime, geometry: Geometry, first: int) -> None:
        self._runtime = runtime
        self._geometry = geometry
        self._first = first
        self._steps: list[Step] = []
        self._sizes: list[int] = []
        self._failed = False

    def workspace(self, nbytes: int) -> int:
        """The place of a new workspace."""
        self._sizes.append(nbytes)
        return self._first + len(self._sizes) - 1

    def add(self, step: Step) -> None:
        self._steps.append(step)

    def multiply(self, product: Product, name: str) -> None:
        """Add a product."""
        step = multiply(self._runtime, product, name)
        if step is None:
            self._failed = True
        else:
            self._steps.append(step)

    def dense(self, place: int, spec: Spec) -> int:
        """The place of a contiguous form of an argument: itself, or a copy."""
        return place if spec.is_contiguous else self.copied(place, spec, contiguous(spec.dtype, spec.shape))

    def copied(self, place: int, view: Spec, target: Spec, offset: int = 0) -> int:
        """The place of a copy in a new workspace of a view of an argument that begins `offset` elements in it."""
        copy = copy_launch(self._runtime, view, target)
        made = self.workspace(target.nbytes)

        def run(*args: Any) -> None:
            given = args[place]
            copy(Ref(given.handle, view, given.offset + offset), Ref(args[made], target))

        self._steps.append(run)
        return made

    def unfold(self, x: Spec, place: int, target: int, part: tuple[int, int], p_step: int, n_step: int) -> None:
        """Add im2col of the images of a part."""
        g = self._geometry
        first, images = part
        line = min(_BLOCK, max(_WARP, power_of_two_at_least(g.pixels)))
        items = _depth(g) * images
        given: list[Parameter] = [Pointer(place, first * x.strides[0] * x.dtype.itemsize), Pointer(target)]
        self._columns(
            "im2col",
            x.dtype,
            given,
            items,
            images,
            p_step,
            n_step,
            ceil_div(items, _BLOCK // line),
            longs(*x.strides),
            line,
        )

    def fold(self, dx: Spec, source: int, target: int, part: tuple[int, int], p_step: int, n_step: int) -> None:
        """Add col2im to the images of a part."""
        first, images = part
        size = dx.size // dx.shape[0]
        given: list[Parameter] = [Pointer(source), Pointer(target, first * size * dx.dtype.itemsize)]
        blocks = ceil_div(images * size, _BLOCK)
        self._columns("col2im", dx.dtype, given, images * size, images, p_step, n_step, blocks, [], _WARP)

    def _columns(
        self, kernel: str, dtype: DType, given: list[Parameter], items: int, images: int, p_step: int, n_step: int,
        blocks: int, more: list[Parameter], line: int,
    ) -> None:  # fmt: skip
        g = self._geometry
        definitions: dict[str, str | int | bool] = {
            "DTYPE": dtype.name, "COLUMN_DTYPE": accumulator(dtype).name, "REAL": rows.real_type(dtype), "BLOCK": _BLOCK,
            "LINE": line, "UNIT_STRIDE": g.stride == (1, 1),
        }  # fmt: skip
        parameters = [
            *given, *ulongs(items), *uints(images, g.groups * g.channels),
            *ints(*g.size, *g.result, *g.kernel, *g.stride, *g.padding, *g.dilation), *longs(p_step, n_step), *more,
        ]  # fmt: skip
        self._steps.append(
            self._runtime.launch(kernel, "conv/im2col", definitions, parameters, blocks, _BLOCK, kernel=kernel)
        )

    def finished(self, name: str) -> Launch | Declined:
        return _UNWALKABLE if self._failed else LaunchSequence(name, self._steps, tuple(self._sizes))


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(x.shape, weight.shape, out.shape, params)
    refusal = _refusal(g, x, weight, *([] if bias is None else [bias]))
    if refusal:
        return Declined(refusal)
    work = _Work(runtime, g, 4)
    kernels = work.dense(1, weight)
    if isinstance(bias, Spec):
        # The products are added to the bias, so that half precision is rounded once.
        spread = Spec(bias.dtype, out.shape, (0, bias.strides[0], 0, 0), False)
        work.add(copy_launch(runtime, spread, out, (2, 3)))
    direct = _pointwise(g) and x.strides[3] == 1 and x.strides[2] == x.shape[3]
    parts = [(0, g.images)] if direct and g.groups == 1 else _parts(g, x.dtype.itemsize)
    span, image = _depth(g) * g.pixels, g.groups * g.filters * g.pixels
    columns = 0 if direct else work.workspace(parts[0][1] * span * x.dtype.itemsize)
    left = Matrices(kernels, g.taps, 1, (0, g.filters * g.taps))
    for first, images in parts:
        if direct:
            right = Matrices(0, x.strides[1], 1, (x.strides[0], g.channels * x.strides[1]), first * x.strides[0])
        else:
            work.unfold(x, 0, columns, (first, images), g.pixels, span)
            right = Matrices(columns, g.pixels, 1, (span, g.taps * g.pixels))
        target = Matrices(3, g.pixels, 1, (image, g.filters * g.pixels), first * image)
        work.multiply(
            Product(
                (images, g.groups), g.filters, g.pixels, g.taps, left, right, target, x.dtype, out.dtype, 1.0,
                float(bias is not None),
            ),
            "conv2d.product",
        )  # fmt: skip
    return work.finished("conv2d")


def _input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    grad, weight = inputs
    (dx,) = outputs
    if not isinstance(grad, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(dx.shape, weight.shape, grad.shape, params)
    refusal = _refusal(g, grad, weight)
    if refusal:
        return Declined(refusal)
    work = _Work(runtime, g, 3)
    slopes, kernels = work.dense(0, grad), work.dense(1, weight)
    direct = _pointwise(g)
    column_dtype = dx.dtype if direct else accumulator(dx.dtype)
    parts = [(0, g.images)] if direct and g.groups == 1 else _parts(g, column_dtype.itemsize)
    span, image = _depth(g) * g.pixels, g.groups * g.filters * g.pixels
    columns = 2 if direct else work.workspace(parts[0][1] * span * column_dtype.itemsize)
    left = Matrices(kernels, g.taps, 1, (0, g.filters * g.taps)).transposed
    for first, images in parts:
        right = Matrices(slopes, g.pixels, 1, (image, g.filters * g.pixels), first * image)
        target = Matrices(columns, g.pixels, 1, (span, g.taps * g.pixels), first * span if direct else 0)
        work.multiply(
            Product((images, g.groups), g.taps, g.pixels, g.filters, left, right, target, grad.dtype, column_dtype),
            "conv2d_input_grad.product",
        )
        if not direct:
            work.fold(dx, columns, 2, (first, images), g.pixels, span)
    return work.finished("conv2d_input_grad")


def _weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    grad, x = inputs
    (dw,) = outputs
    if not isinstance(grad, Spec) or not isinstance(x, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(x.shape, dw.shape, grad.shape, params)
    refusal = _refusal(g, grad, x)
    if refusal:
        return Declined(refusal)
    work = _Work(runtime, g, 3)
    parts = _parts(g, x.dtype.itemsize)
    columns = work.workspace(parts[0][1] * _depth(g) * g.pixels * x.dtype.itemsize)
    # Sums over several parts wait in float32, so that half precision is rounded once.
    wide = accumulator(dw.dtype) if len(parts) > 1 else dw.dtype
    target = work.workspace(dw.size * wide.itemsize) if wide is not dw.dtype else 2
    for i, (first, images) in enumerate(parts):
        # Images are laid side by side in the columns and in the slopes, so that one product sums over all of them.
        long = images * g.pixels
        work.unfold(x, 1, columns, (first, images), long, g.pixels)
        order = (g.groups * g.filters, images, *g.result)
        offset = first * grad.strides[0]
        view = Spec(
            grad.dtype, order, (grad.strides[1], grad.strides[0], *grad.strides[2:]),
            grad.aligned and offset % ALIGNMENT == 0,
        )  # fmt: skip
        slopes = work.copied(0, view, contiguous(grad.dtype, order), offset)
        work.multiply(
            Product(
                (g.groups,), g.filters, g.taps, long, Matrices(slopes, long, 1, (g.filters * long,)),
                Matrices(columns, long, 1, (g.taps * long,)).transposed,
                Matrices(target, g.taps, 1, (g.filters * g.taps,)), x.dtype, wide, 1.0, float(i > 0),
            ),
            "conv2d_weight_grad.product",
        )  # fmt: skip
    if wide is not dw.dtype:
        total = contiguous(wide, dw.shape)
        copy = copy_launch(runtime, total, dw)
        work.add(lambda *args: copy(Ref(args[target], total), args[2]))
    return work.finished("conv2d_weight_grad")


LOWERINGS: dict[str, LoweringFunction] = {
    "conv2d": _forward,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
}
