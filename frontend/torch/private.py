"""Private interfaces of PyTorch: one function for each name, so that changes in PyTorch are handled here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _acc, _dispatch_has_kernel_for_dispatch_key
from torch._C._dynamo import eval_frame, guards
from torch._decomp import core_aten_decompositions, global_decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from polyhal.torch.call_types import Operator

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_ANY_DEVICE = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)

new_tensor: Callable[[tuple[int, ...], torch.dtype], torch.Tensor] = _acc.create_empty_tensor
"""Constructor of a tensor of the device with a new storage of 0 bytes: `new_tensor(shape, dtype)`."""

_in_inference_mode: Callable[[], bool] = torch.is_inference_mode_enabled
_reinterpret: Callable[..., torch.Tensor] = guards._reinterpret_tensor  # type: ignore[attr-defined]


def reinterpret(x: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset_increment: int) -> torch.Tensor:
    """Return a view of other shape, strides and offset, without checks. Since PyTorch 2.15 it requires tuples.

    In inference mode it would be an inference tensor, which a view of an ordinary one may not be.
    """
    if _in_inference_mode() and not x.is_inference():
        with torch.inference_mode(False):
            return _reinterpret(x, tuple(shape), tuple(strides), offset_increment)
    return _reinterpret(x, tuple(shape), tuple(strides), offset_increment)


def same_layouts(xs: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return a function of as many tensors that compares each with the one here: type, dtype, device, shape and strides."""
    sizes, strides = [list(x.shape) for x in xs], [list(x.stride()) for x in xs]
    checks: Any = guards.TensorGuards
    check: Callable[..., bool] = checks(*xs, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def negative_view(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor with all signs changed, without a copy."""
    return torch._neg_view(x)


def without_autocast() -> AbstractContextManager[Any]:
    """Disable autocast in a block, for kernels that have cast their operands."""
    keys: Any = torch._C.DispatchKey
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(
        torch._C.DispatchKeySet(keys.AutocastPrivateUse1)
    )
    return guard


def has_kernel(name: str, key: str) -> bool:
    """Return whether the op `name`, as in `aten::add.Tensor`, has a kernel for the dispatch key `key`."""
    return bool(_dispatch_has_kernel_for_dispatch_key(name, key))


def new_storage(device: torch.device, nbytes: int, address: int = 0) -> Any:
    """Return a storage with `nbytes` at `address` that does not own the memory."""
    return torch._C._construct_storage_from_data_pointer(address, device, nbytes)


def size_of_storage(storage: Any) -> int:
    """Return the size of a storage in bytes as known to PyTorch's C++ code."""
    base: Any = torch._C.StorageBase
    return int(base.nbytes(storage))


def set_geometry(x: torch.Tensor, storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Set storage, shape and strides of a tensor of any device, by the CPU kernel, which does not access elements."""
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_CPU, x, storage, offset, list(shape), list(strides))


def set_strides(x: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> None:
    """Set shape, strides and offset of a tensor, by the CPU kernel, which does not access elements."""
    torch.ops.aten.as_strided_.default.redispatch(_CPU, x, list(shape), list(strides), offset)


def to_copy(x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run PyTorch's generic kernel of `_to_copy`, which calls `empty_strided` and `copy_`."""
    return on_any_device(torch.ops.aten._to_copy.default, x, **options)  # type: ignore[no-any-return]


def on_any_device(op: Operator, *args: Any, **kwargs: Any) -> Any:
    """Run PyTorch's generic kernel of an op, which calls other ops."""
    return op.redispatch(_ANY_DEVICE, *args, **kwargs)


def hide_from_dynamo(function: Callable[..., Any]) -> None:
    """Exclude a function from compilation when a compiled program calls it."""
    skip = eval_frame._FrameAction.SKIP
    code = getattr(function, "func", function).__code__  # a partial function as well
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of ops, by overload."""
    return {**core_aten_decompositions(), **global_decomposition_table["post_autograd"]}


def may_use_fused_attention() -> bool:
    """Return whether `torch.nn.attention.sdpa_kernel` allows overrideable kernels, such as this device's."""
    return bool(torch._C._get_overrideable_sdp_enabled())


def decomposed(op: Operator, *args: Any) -> Any:
    """Run an op by PyTorch's composite implementation."""
    return op.decompose(*args)


def overloads(name: str) -> Iterable[Any]:
    """Return all overloads of the ATen op `name`."""
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def replace_storage_constructor(make: Callable[..., Any]) -> None:
    """Let `torch.UntypedStorage(*args, device=...)` return `make(device, *args)` unless that is None.

    For a device without a C++ allocator, PyTorch's constructor would abort the process.
    """
    original: Callable[..., Any] = torch._C.StorageBase.__new__

    def new(cls: Any, *args: Any, device: torch.device | None = None, **options: Any) -> Any:
        made = make(device, *args)
        if made is not None:
            return made
        return original(cls, *args, **options) if device is None else original(cls, *args, device=device, **options)

    torch.UntypedStorage.__new__ = new  # type: ignore[method-assign]


def accept_storages(kind: type) -> None:
    """Let PyTorch wrap storages of the class `kind` in typed ones, as copies do. It checks for exactly its base class."""
    typed: Any = torch.TypedStorage
    original = typed._new_wrapped_storage

    def wrapped(self: Any, storage: Any) -> Any:
        if type(storage) is kind:
            return typed(wrap_storage=storage, dtype=self.dtype, _internal=True)
        return original(self, storage)

    typed._new_wrapped_storage = wrapped


def add_addresses_of_storages(kind: type[torch.UntypedStorage]) -> None:
    """Let `tensor.data_ptr()` count from the `data_ptr()` of storages of the class `kind`, whose address in C++ is 0."""
    base: Any = torch.Tensor
    original: Callable[[torch.Tensor], int] = base.data_ptr

    @functools.wraps(original)
    def data_ptr(self: torch.Tensor) -> int:
        offset = original(self)  # raises for tensors of tracers and recorded steps
        if self.is_cpu or not self.numel():
            return offset
        storage: Any = self.untyped_storage()
        return int(storage.data_ptr()) + offset if type(storage) is kind else offset

    base.data_ptr = data_ptr


def writers_of_scripts() -> list[tuple[type, str]]:
    """Return the classes of scripted and traced modules with the names of their own methods that write files."""
    kinds = [torch.jit.ScriptModule]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [(kind, name) for kind in kinds for name in ("save", "save_to_buffer") if name in vars(kind)]


def attributes_of_script(module: Any) -> list[str]:
    """Return the names of a scripted module's parameters, buffers and other attributes; [] for another module."""
    code = getattr(module, "_c", None)
    native: Any = torch._C
    return [] if code is None else [*native.ConcreteModuleType.from_jit_type(code._type()).get_attributes()]


def constants_of_script(module: Any) -> list[Any]:
    """Return the nodes of constant tensors in the code of a scripted module; [] for another module."""
    code: Any = getattr(module, "_c", None)
    names = [] if code is None else code._method_names()
    nodes = [n for name in names for n in code._get_method(name).graph.findAllNodes("prim::Constant")]
    return [n for n in nodes if n.hasAttribute("value") and n.kindOf("value") == "t"]


def constant(node: Any) -> torch.Tensor:
    """Return the tensor of a node of `constants_of_script`."""
    found: torch.Tensor = node.t("value")
    return found


def set_constant(node: Any, value: torch.Tensor) -> None:
    """Replace the tensor of a node of `constants_of_script`."""
    node.t_("value", value)


def invert_loss_scales_in_float32(lacks_doubles: Callable[[torch.Tensor], bool]) -> None:
    """Make `GradScaler` invert scales in float32 on a device without float64, as it does for "mps"."""
    scaler: Any = torch.amp.GradScaler
    original = scaler.unscale_

    @functools.wraps(original)
    def unscale_(self: Any, optimizer: torch.optim.Optimizer) -> None:
        scale = self._scale if self._enabled else None
        if scale is None or not lacks_doubles(scale):
            original(self, optimizer)
            return
        self._scale = _SingleScale(scale)
        try:
            original(self, optimizer)
        finally:
            self._scale = scale

    scaler.unscale_ = unscale_


def call_with_deterministic_mode(follow: Callable[[bool], None]) -> None:
    """Call a function with each value to which `torch.use_deterministic_algorithms` and its relatives set the mode."""
    _call_after("_set_deterministic_algorithms", lambda mode, **options: follow(mode))


def matmul_precision() -> str:
    """Return the precision of float32 products: "highest", "high" or "medium". TF32 in the flags of CUDA is "high"."""
    native: Any = torch._C
    if native._get_fp32_precision_getter("cuda", "matmul") != "tf32":
        return "highest"
    try:
        name = torch.get_float32_matmul_precision()
    except RuntimeError:  # it has no name for a flag of one backend alone
        return "high"
    return "high" if name == "highest" else name


def call_after_matmul_precision(follow: Callable[[], None]) -> None:
    """Call a function after each call that may change `matmul_precision`."""
    for name in ("_set_float32_matmul_precision", "_set_cublas_allow_tf32", "_set_fp32_precision_setter"):
        _call_after(name, lambda *given: follow())


def _call_after(name: str, follow: Callable[..., None]) -> None:
    """Call a function with the arguments of each call of a native function of PyTorch, after it has returned."""
    native: Any = torch._C
    original = getattr(native, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        follow(*args, **kwargs)
        return found

    setattr(native, name, call)


def format_on_cpu(device_type: str) -> None:
    """Let PyTorch choose the format of printed numbers from a copy on the CPU: it computes in float64, number by number."""
    formatter: Any = torch._tensor_str._Formatter
    original = formatter.__init__

    @functools.wraps(original)
    def init(self: Any, tensor: torch.Tensor) -> None:
        original(self, tensor.cpu() if tensor.device.type == device_type else tensor)

    formatter.__init__ = init


class _SingleScale:
    """A scale for `GradScaler.unscale_` that remains in float32."""

    def __init__(self, scale: torch.Tensor) -> None:
        self._scale = scale
        self.device = scale.device

    def double(self) -> torch.Tensor:
        """No-op: return the scale itself, because the device does not have float64."""
        return self._scale


class OpMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Base of modes that intercept the ops of a thread below autograd: `__torch_dispatch__(op, types, args, kwargs)`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]


without_functions: Callable[[], Any] = torch._C.DisableTorchFunction
"""Context in which `__torch_function__` of modes and classes is disabled."""


without_modes: Callable[[], Any] = torch._C._DisableTorchDispatch
"""Context in which `__torch_dispatch__` of modes is disabled."""


storage_key: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]
"""Function that returns a key of a tensor's storage, unique while it lives; in C++, because steps call it for all tensors."""


def current_node() -> Any:
    """Return the node of PyTorch's autograd graph whose gradient this thread is computing; None outside of backward passes."""
    return torch._C._current_autograd_node()


def is_watched() -> bool:
    """Return whether modes, such as modes of PyTorch's compiler, intercept the ops of this thread."""
    return bool(torch._C._len_torch_dispatch_stack())


def increment_versions(tensors: Sequence[torch.Tensor]) -> None:
    """Increment the version counters of tensors that were changed in place."""
    torch._C._increment_version(tensors)


def before_inductor(
    prepare: Callable[[], None], compile_graph: Callable[[torch.fx.GraphModule, Sequence[Any]], Any]
) -> None:
    """Offer each graph of `torch.compile` to a function before Inductor, which compiles it if the function returns None.

    Each call of `torch.compile` calls `prepare` first. Replaces earlier functions.
    """
    wrapper: Any = torch._TorchCompileInductorWrapper
    inductor = getattr(wrapper.__call__, "inductor", wrapper.__call__)
    create = getattr(wrapper.__init__, "create", wrapper.__init__)

    @functools.wraps(create)
    def init(self: Any, *args: Any, **settings: Any) -> None:
        prepare()
        create(self, *args, **settings)

    @functools.wraps(inductor)
    def call(self: Any, model_: torch.fx.GraphModule, inputs_: Sequence[Any], **settings: Any) -> Any:
        made = compile_graph(model_, inputs_)
        return inductor(self, model_, inputs_, **settings) if made is None else made

    init.create = create  # type: ignore[attr-defined]
    call.inductor = inductor  # type: ignore[attr-defined]
    wrapper.__init__, wrapper.__call__ = init, call


def replace_list_step(name: str, choose: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replace the step of `torch.optim.<name>` over lists of tensors, its default on devices, by `choose(step)`."""
    module = importlib.import_module(f"torch.optim.{name}")
    step = getattr(module, f"_multi_tensor_{name}")
    setattr(module, f"_multi_tensor_{name}", choose(getattr(step, "__wrapped__", step)))
