"""Kernels of the device: table functions behind signatures of ATen, in-place forms, and the fallback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

import polyhal_autoload
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.imports import ImportedBuffer
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.torch import (
    attention,
    autocast,
    complex_parts,
    cross_entropy,
    determinism,
    device_module,
    filled,
    foreach,
    generators,
    interchange,
    memory,
    module_paths,
    precision,
    private,
    processes,
    profiler,
    random_states,
    recurrent,
    scripts,
    storages,
    tensors,
)
from polyhal.torch import table as _table  # noqa: F401  (fills the table)
from polyhal.torch.device import NAME, check_ordinal, current
from polyhal.torch.failures import REFUSALS, of_call
from polyhal.torch.fallback import fallback
from polyhal.torch.registration import (
    HANDLED,
    TABLE,
    Entry,
    UnsupportedArgumentsError,
    cuts_gradients,
    writes_first,
)
from polyhal.torch.table import operand_dtypes
from polyhal.torch.table.indexing import WRITES_IN_PLACE
from polyhal.torch.table.random import drawing_from

if TYPE_CHECKING:
    from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
    from polyhal.torch.call_types import Arguments, Keywords, Operator

Kernel = Callable[..., Any]
_KEY = "PrivateUse1"
_new_library: Callable[..., Any] = torch.library.Library
LIBRARIES = (_new_library("aten", "IMPL"), _new_library("_", "IMPL"))
"""Registrations of kernels by op and for every op, in effect as long as these objects live."""


_FROM_ZERO = frozenset(
    {
        *("gather", "index_add", "index_copy", "index_reduce", "index_select", "nll_loss2d_forward"),
        *("nll_loss_forward", "scatter", "scatter_add", "scatter_reduce"),
    }
)
"""Ops that refuse negative indices, which other ops count from the end."""
_OUT_FORMS = ("mode.values",)
"""Overloads with `out` whose generic PyTorch code refuses devices that it does not list."""


def overload(name: str) -> Any:
    """Return the overload for a name of the table; None if this version of PyTorch does not have it."""
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), which, None)


_PLAIN = frozenset({int, float, bool, str, type(None)})
"""Types of arguments that table functions take unchanged, which the fastest check identifies."""


def _unwrapped(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return tensors.unwrap(x)
    if isinstance(x, torch.dtype):
        return complex_parts.COMPLEX.get(x) or tensors.dtype_of(x)
    if isinstance(x, (list, tuple)):
        return [_unwrapped(v) for v in x]
    if isinstance(x, torch.device):
        check_ordinal(x)
        return current()
    return x


def _wrapped(x: Any, inputs: list[Any]) -> Any:
    """Wrap results for PyTorch. Results that share memory with inputs are copied: by ATen's schema they are not views."""
    if isinstance(x, Tensor):
        shared = any(_lies_in(buffer, inputs) for buffer in complex_parts.buffers(x))
        return tensors.wrap(FUNCTIONS["copy"](x) if shared else x)
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)([_wrapped(v, inputs) for v in x])
    return x


def _lies_in(buffer: Buffer | FakeBuffer, inputs: list[Any]) -> bool:
    """Return whether an input, or an element of an input list, uses the buffer."""
    for x in inputs:
        if isinstance(x, Tensor):
            if buffer in complex_parts.buffers(x):
                return True
        elif isinstance(x, list) and _lies_in(buffer, x):
            return True
    return False


def _arguments(args: Arguments, kwargs: Keywords, creates: bool) -> tuple[list[Any], dict[str, Any]]:
    """Convert the arguments for a table function."""
    values = [x if type(x) in _PLAIN else _unwrapped(x) for x in args]
    if not (kwargs or creates):
        return values, {}
    named = {k: _unwrapped(v) for k, v in kwargs.items() if k not in HANDLED}
    if creates:
        named["device"] = current()
    return values, named


def _drawn(function: Kernel, kwargs: Keywords) -> Kernel:
    """Let a table function draw from the generator of the call. Raises UnsupportedArgumentsError for a CPU generator."""
    generator = kwargs.get("generator") if kwargs else None
    if generator is None:
        return function
    stream = generators.stream_of(generator)
    if stream is None:
        raise UnsupportedArgumentsError
    return drawing_from(stream)(function)


def _is_about_complex_numbers(error: Exception, args: Any, kwargs: Any) -> bool:
    """Return whether an op was refused because Polyhal has it only for real numbers: the CPU supports complex ones."""
    if not isinstance(error, UnsupportedDTypeError):
        return False
    given = pytree.tree_leaves((args, kwargs))
    return any((isinstance(x, torch.Tensor) and x.is_complex()) or isinstance(x, complex) for x in given)


def kernel_of(entry: Entry, op: Operator) -> Kernel:
    """Return the kernel of an overload that returns new tensors."""
    creates = any(a.name == "device" for a in op._schema.arguments)
    positions = [i for i, a in enumerate(op._schema.arguments) if a.name in HANDLED and not a.kwarg_only]
    check = operand_dtypes.check_of(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            values, named = _arguments(args, kwargs, creates)
            if check is not None:
                check(values)
            for i in reversed(positions):
                del values[i : i + 1]
            result = _drawn(entry.function, kwargs)(*values, **named)
        except UnsupportedArgumentsError:
            return fallback(op, *args, **kwargs)
        except REFUSALS as error:
            if _is_about_complex_numbers(error, args, kwargs):
                return fallback(op, *args, **kwargs)
            raise of_call(error, op, args, kwargs) from error
        out = _wrapped(result, values)
        return _formatted(out, args[0]) if entry.keeps_format else out

    return kernel


def _formatted(results: Any, x: torch.Tensor) -> Any:
    """Convert results to channels last if the input has that format."""
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if order is None or x.is_contiguous() or not x.is_contiguous(memory_format=order):
        return results
    if isinstance(results, torch.Tensor):
        return results.contiguous(memory_format=order) if results.ndim == x.ndim else results
    return type(results)(r if r is None else _formatted(r, x) for r in results)


def in_place_kernel(entry: Entry, op: Operator) -> Kernel:
    """Return the kernel of an overload that overwrites its first argument with the result of the entry."""
    check = operand_dtypes.check_of(op)

    def kernel(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        try:
            target = tensors.unwrap(self)
            if 0 in target.strides:
                _check_elements_are_apart(target)
            values, named = _arguments(args, kwargs, False)
            if check is not None:
                check((target, *values))
            for value in values:
                if isinstance(value, Tensor):
                    tensors.check_overlap(target, value)
            if entry.op is not None and not named and _writes_directly(target, values):
                dispatch.apply_into(entry.op, (target, *values), (), (target,))
                return self
            write = WRITES_IN_PLACE.get(entry.function)
            if write is not None and write(target, *values, **named) is not NotImplemented:
                return self
            result = _drawn(entry.function, kwargs)(target, *values, **named)
            _check_fits(self, result)
            if result is not target:
                tensors.write(self, result)
        except UnsupportedArgumentsError:
            return fallback(op, self, *args, **kwargs)  # type: ignore[no-any-return]
        except REFUSALS as error:
            if _is_about_complex_numbers(error, (self, *args), kwargs):
                return fallback(op, self, *args, **kwargs)  # type: ignore[no-any-return]
            raise of_call(error, op, (self, *args), kwargs) from error
        return self

    return kernel


def _writes_directly(target: Tensor, values: list[Any]) -> bool:
    """Return whether an op can write its result in place: shape and dtype match, and operands do not partially overlap."""
    if not target.dtype.is_floating_point:
        return False
    for v in values:
        if isinstance(v, Tensor):
            if v.dtype is not target.dtype or len(v.shape) > len(target.shape):
                return False
            for own, other in zip(reversed(target.shape), reversed(v.shape), strict=False):
                if other not in (own, 1):
                    return False
        elif not isinstance(v, (bool, int, float)):
            return False
    return True


def _check_elements_are_apart(target: Tensor) -> None:
    """Raise RuntimeError, as PyTorch does, for an expanded tensor, whose elements share memory."""
    if target.size and any(n > 1 and stride == 0 for n, stride in zip(target.shape, target.strides, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _check_fits(target: torch.Tensor, result: Tensor) -> None:
    """Raise RuntimeError, as PyTorch does, for a result of a larger shape or a wider kind."""
    shape = tuple(target.shape)
    if len(result.shape) > len(shape) or any(
        n not in (m, 1) for m, n in zip(reversed(shape), reversed(result.shape), strict=False)
    ):
        raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape {list(result.shape)}")
    kind = tensors.TORCH_DTYPES[result.dtype]
    if not torch.can_cast(kind, target.dtype):
        raise RuntimeError(f"result type {kind} can't be cast to the desired output type {target.dtype}")


def with_host_indices(kernel: Kernel) -> Kernel:
    """Return the kernel of an overload with a list of indices, which may be on the CPU, as on CUDA, and are uploaded.

    Raises RuntimeError for indices on the device of a tensor on the CPU.
    """

    def call(self: torch.Tensor, indices: Sequence[torch.Tensor | None], *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu:
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor (cpu), and not on {NAME}; "
                f"index with i.cpu(), or move the tensor with x.to({NAME!r})"
            )
        return kernel(self, [_on_device(i) if i is not None and i.is_cpu else i for i in indices], *args, **kwargs)

    return call


def with_indices_from_zero(kernel: Kernel) -> Kernel:
    """Return the kernel of an overload that refuses negative indices, where indices are checked."""

    def call(*args: Any, **kwargs: Any) -> Any:
        thread = dispatch.thread
        thread.counts_from_end = False
        try:
            return kernel(*args, **kwargs)
        finally:
            thread.counts_from_end = True

    return call


def _on_device(index: torch.Tensor) -> torch.Tensor:
    """Copy an index from the CPU to the device."""
    return tensors.wrap(tensors.upload(index))


def _takes_indices(op: Any) -> bool:
    """Return whether the second argument of an overload is a list of indices, one for each axis."""
    arguments = op._schema.arguments
    return len(arguments) > 1 and arguments[1].name == "indices" and str(arguments[1].type) == "List[Optional[Tensor]]"


def _lacks_doubles(x: torch.Tensor) -> bool:
    """Return whether a tensor is on a device without float64."""
    return x.device.type == NAME and dtypes.float64 not in tensors.root_of(x).device.capabilities.storage


def register() -> None:
    """Register the device and all kernels with PyTorch."""
    device_module.install(polyhal_autoload.name_device())
    generators.install()
    random_states.install()
    storages.install()
    processes.install()
    interchange.install()
    scripts.install()
    profiler.install()
    module_paths.install()
    determinism.install()
    precision.install()
    private.invert_loss_scales_in_float32(_lacks_doubles)
    private.format_on_cpu(NAME)
    # Streams and recorded steps belong to threads: the backward pass runs on the calling thread.
    torch.autograd.set_multithreading_enabled(False)
    library, everything = LIBRARIES
    done = set()

    def implement(name: str, kernel: Kernel) -> None:
        op = overload(name)
        if op is None or name in done or (cuts_gradients(op) and name not in memory.ALLOWED):
            return
        done.add(name)
        if _takes_indices(op):
            kernel = with_host_indices(kernel)
        elif name.partition(".")[0].removesuffix("_") in _FROM_ZERO:
            kernel = with_indices_from_zero(kernel)
        private.hide_from_dynamo(kernel)
        library.impl(op, kernel, _KEY)

    for name, kernel in {**memory.KERNELS, **filled.KERNELS, **attention.KERNELS}.items():
        implement(name, kernel)
    for name, entry in TABLE.items():
        op = overload(name)
        if op is not None and not entry.is_view:
            is_in_place = writes_first(op) and len(op._schema.returns) == 1
            implement(name, in_place_kernel(entry, op) if is_in_place else kernel_of(entry, op))
    for name, entry in TABLE.items():
        packet, _, which = name.partition(".")
        op = overload(f"{packet}_.{which}")
        if op is not None and not entry.is_view:
            implement(f"{packet}_.{which}", in_place_kernel(entry, op))
    for name, kernel in foreach.kernels(overload).items():
        implement(name, kernel)
    for name in _OUT_FORMS:
        implement(name, functools.partial(fallback, overload(name)))
    private.hide_from_dynamo(fallback)
    private.hide_from_dynamo(attention.scaled_dot_product_attention)
    private.hide_from_dynamo(cross_entropy.cross_entropy_loss)
    for kind in (Buffer, ImportedBuffer):  # their memory may be released while a program is being compiled
        private.hide_from_dynamo(kind.__del__)
    everything.fallback(fallback, _KEY)
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name, kernel in autocast.kernels(overload).items():
        private.hide_from_dynamo(kernel)
        library.impl(name, kernel, "AutocastPrivateUse1")
    library.impl("scaled_dot_product_attention", attention.scaled_dot_product_attention, "AutogradPrivateUse1")
    library.impl("cross_entropy_loss", cross_entropy.cross_entropy_loss, "AutogradPrivateUse1")
    for name, kernel in recurrent.KERNELS.items():
        library.impl(name, kernel, "AutogradPrivateUse1")
