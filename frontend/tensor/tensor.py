"""The tensor: a buffer seen through a layout on a device, with a position on the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from polyhal.conversion import to_numpy
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.methods import Methods
from polyhal.hal.ops.returns import Returns, returns
from polyhal.shapes import ElementCount, element_count
from polyhal.tape.rebase import detached_index
from polyhal.tensor.arrangement import Rearrangements
from polyhal.tensor.arrivals import arrived
from polyhal.tensor.casting import Conversions
from polyhal.tensor.copying import Copies
from polyhal.tensor.exporting import Exports
from polyhal.tensor.inplace_methods import InPlaceMethods
from polyhal.tensor.random_methods import RandomMethods

if TYPE_CHECKING:
    from polyhal.tape.tape import GradNode

_cast, _copy = FUNCTIONS["cast"], FUNCTIONS["copy"]


class Tensor(Array, Conversions, Copies, Exports, Rearrangements, Methods, InPlaceMethods, RandomMethods):
    """An n-dimensional array on a device.

    `Tensor(data, dtype=None, device=None, requires_grad=False)` copies nested lists, NumPy arrays, numbers or another
    tensor. Python floats become float32 and Python integers int64, NumPy arrays keep their dtype. Raises TypeError for
    complex numbers, which `polyhal.tensor` converts to tensors.
    """

    __slots__ = ("hooks", "index", "node", "stored_grad")

    buffer: Buffer
    device: Device
    ref: Ref
    requires_grad: bool
    stored_grad: Tensor | None
    """The value of `grad`."""
    node: GradNode | None
    """Node that created the tensor, if it is on the tape; None for leaves."""
    index: int
    """Which output of `node` the tensor is."""
    hooks: dict[int, Callable[[Tensor], Tensor | None]] | None
    is_batched: ClassVar[bool] = False
    """True if the tensor stands for a batch inside `vmap`."""

    def __init__(
        self, data: Any, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False
    ) -> None:
        kind = None if dtype is None else as_dtype(dtype)
        data = arrived(data, device, copy=True)
        if isinstance(data, Tensor):
            target = data.device if device is None else Device(device)
            source = data.detach().to(target) if data.device is not target else _copy(data.detach())
            if kind is not None and source.dtype is not kind:
                source = _cast(source, kind)
            self.buffer, self.ref, self.device = source.buffer, source.ref, target
            if (recorder := dispatch.thread.executor.recorder) is not None:
                recorder.track(self)
        else:
            target = dispatch.target_device(device)
            array, kind = to_numpy(data, kind)
            if kind.kind == "complex":
                raise TypeError(message("tensor", "the numbers are complex", fix="use polyhal.tensor"))
            self.buffer, self.ref = target.upload(array, kind)
            self.device = target
            if (recorder := dispatch.thread.executor.recorder) is not None:
                recorder.capture_constant(self)
        self.requires_grad = False
        self.stored_grad = None
        self.node = None
        self.index = 0
        self.hooks = None
        if requires_grad:
            self.requires_grad_()

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> Spec:
        """Dtype, shape and strides."""
        return self.ref.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self.ref.spec.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.ref.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.ref.spec.shape)

    @property
    def size(self) -> ElementCount:
        """The number of elements. Calls of it, `x.size()` and `x.size(0)`, return the shape and the length of an axis."""
        return element_count(self.ref.spec.shape)

    def numel(self) -> int:
        """Return the number of elements; also `nelement`, and as a property `size`."""
        return self.ref.spec.size

    nelement = numel

    def dim(self) -> int:
        """Number of dimensions; also `ndimension`."""
        return len(self.ref.spec.shape)

    ndimension = dim

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return self.ref.spec.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Return distances between neighbours along each axis, or along one, in elements."""
        return self.ref.spec.strides if dim is None else self.ref.spec.strides[dim]

    def is_floating_point(self) -> bool:
        """Return whether the elements are floating point."""
        return self.ref.spec.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Return whether the elements are complex."""
        return self.ref.spec.dtype.is_complex

    def is_signed(self) -> bool:
        """Return whether the elements can be negative."""
        return self.ref.spec.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Return whether the only element is not 0. Raises ValueError for other sizes."""
        return bool(self)

    def is_same_size(self, other: Tensor) -> bool:
        """Return whether another tensor has the same shape."""
        return self.shape == other.shape

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return self.ref.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes, whatever the strides."""
        return self.ref.spec.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances between neighbours along each axis, in elements."""
        return self.ref.spec.strides

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are adjacent in row-major order."""
        return self.ref.spec.is_contiguous

    @property
    def is_leaf(self) -> bool:
        """True if no op on the tape made the tensor."""
        return self.node is None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        for i in range(len(self)):
            yield self[i]

    def __contains__(self, value: Tensor | float) -> bool:
        """Return True if an element equals `value`, a number or a tensor that broadcasts. Waits for the device."""
        return bool((self == value).any())

    # --- values on the host -----------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """Copy the elements to a new NumPy array. Waits for the device."""
        return dispatch.thread.executor.read(self)

    def item(self) -> Any:
        """Return the only element as a Python number. Raises ValueError for other sizes."""
        if self.size != 1:
            raise ValueError(f"[item] a tensor of shape {self.shape} has {self.size} elements; expected 1")
        return self.numpy().reshape(-1)[0].item()

    def tolist(self) -> Any:
        """Return the elements as nested Python lists."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integral:
            raise TypeError(f"a {self.dtype.name} tensor cannot be an index; expected integers")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"a tensor of shape {self.shape} is neither true nor false; use .any() or .all()")
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        """Format the only element under `spec`, as in `f"{loss:.3f}"`. Without a spec, as `repr` does."""
        from polyhal.printing import formatted

        return formatted(self, spec)

    def __repr__(self) -> str:
        from polyhal.printing import render

        return render(self)

    def _share(self, source: Tensor) -> None:
        """Become a leaf in the memory of `source`."""
        self.buffer, self.ref, self.device = source.buffer, source.ref, source.device
        self.requires_grad = False
        self.stored_grad = None
        self.node = None
        self.index = 0
        self.hooks = None
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.track(self)

    # --- autograd ---------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """The sum of the gradients of all backward passes; None if there is none."""
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.before_gradient_read(self)
        return self.stored_grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.before_gradient_write(self)
        self.stored_grad = value

    @returns(Returns.VIEW)
    def detach(self) -> Tensor:
        """Take the elements off the tape."""
        result: Tensor = dispatch.thread.executor.alias(self)
        result.index = detached_index()
        return result

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switch gradients for this leaf on or off. Raises AutogradError for results of ops and for integers."""
        if self.node is not None:
            raise AutogradError(
                message(
                    None,
                    "requires_grad can be set on leaves only, and this is the result of an op",
                    fix="use .detach() first",
                )
            )
        if requires_grad and not self.dtype.is_floating_point:
            raise AutogradError(
                message(None, f"a {self.dtype.name} tensor cannot have gradients", expected="a floating-point dtype")
            )
        if self.requires_grad is not requires_grad:
            dispatch.structure.changed()
        self.requires_grad = requires_grad
        return self

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf, or only to `inputs`, to their `.grad`.

        `gradient` has this tensor's shape; a tensor of one element needs none. The tape is freed unless `retain_graph`; with
        `create_graph` the gradients can be differentiated again. Raises AutogradError.
        """
        from polyhal.tape.engine import backward

        backward((self,), (gradient,), retain_graph, create_graph, inputs=inputs)

    def zero_grad(self) -> None:
        """Set the gradient to None."""
        self.grad = None

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Call `hook` with the gradient of this tensor, once per pass; a tensor it returns replaces it. Returns the remover."""
        from polyhal.tape.hooks import add_hook

        return add_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Callable[[], None]:
        """Call `hook(tensor)` at the end of each backward pass that added to the gradient of this leaf. Returns the remover."""
        from polyhal.tape.hooks import add_accumulation_hook

        return add_accumulation_hook(self, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this result of an op in `grad` as well; leaves keep theirs anyway."""
        from polyhal.tape.hooks import retain_gradient

        retain_gradient(self)

    @property
    def retains_grad(self) -> bool:
        """True if `retain_grad` was called for this result of an op."""
        from polyhal.tape.hooks import retains_gradient

        return retains_gradient(self)

    # --- indexing ---------------------------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Tensor | float) -> None:
        from polyhal.tensor.indexing import assign

        assign(self, index, value)

    def __getitem__(self, index: Any) -> Tensor:
        from polyhal.tensor.indexing import select

        return select(self, index)


def wrap(device: Device, buffer: Buffer, ref: Ref) -> Tensor:
    """Make a tensor over existing memory, without checks: how results are made."""
    out = _new(Tensor)
    out.device = device
    out.buffer = buffer
    out.ref = ref
    out.requires_grad = False
    out.stored_grad = None
    out.node = None
    out.hooks = None
    out.index = 0
    return out


_new = Tensor.__new__


@returns(Returns.EITHER)
def as_tensor(data: Any, dtype: object = None, device: Device | str | None = None) -> Tensor:
    """Return `data` if it is a tensor on that device and in that dtype, else a new tensor."""
    data = arrived(data, device)
    if isinstance(data, Tensor):
        out = data if device is None else data.to(Device(device))
        return out if dtype is None else out.to(as_dtype(dtype))
    return make_tensor(data, dtype, device)


def make_tensor(data: Any, dtype: object = None, device: Device | str | None = None) -> Tensor:
    """Make a tensor, which may be complex, from a copy of `data`. See `Tensor`."""
    kind = None if dtype is None else as_dtype(dtype)
    own: Any = arrived(data, device, copy=True)
    if own is not data:
        cast_own: Tensor = own if kind is None else own.to(kind)
        return cast_own
    if isinstance(data, Tensor):
        if not (data.dtype.is_complex or (kind is not None and kind.is_complex)):
            return Tensor(data, dtype=kind, device=device)
        moved = data.detach() if device is None else data.detach().to(Device(device))
        copied: Tensor = _copy(moved)
        return copied if kind is None else copied.to(kind)
    array, kind = to_numpy(data, kind)
    if kind.kind == "complex":
        from polyhal.tensor.complex_tensor import uploaded

        return uploaded(array, kind, dispatch.target_device(device))
    return Tensor(array, dtype=kind, device=device)
