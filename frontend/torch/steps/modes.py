"""PyTorch modes that sort the calls of a step into device work and host work.

`FunctionWatch` intercepts functions with their Python arguments, live numbers included. `OpWatch` intercepts the ops that
autograd and composite ops call.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from polyhal.hal.core import dispatch
from polyhal.hal.errors import CaptureError
from polyhal.torch import private, tensors
from polyhal.torch.device import NAME
from polyhal.torch.steps.host import Literal, Slot, resolved
from polyhal.torch.steps.host_arrays import is_host_array, plain
from polyhal.torch.steps.mid_step import DOWNLOADS
from polyhal.torch.steps.numbers import LiveNumber, true_value
from polyhal.torch.steps.refusals import RefusedError, refusal
from polyhal.torch.steps.remedies import other_way, remedy
from polyhal.torch.steps.tree import TREE
from polyhal.torch.steps.watch import StepWatch, is_in_optimizer

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords, Operator

_FACTORIES = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
_SETTLING = frozenset(
    {torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__}
)
_ESCAPES = frozenset({torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr, torch.Tensor.__dlpack__})
_LIFT = torch.ops.aten.lift_fresh.default
_DETACH = torch.ops.aten.detach.default
_GRADIENT: Any = torch.Tensor.grad
_CHECK_ERRORS = torch.ops.aten._linalg_check_errors.default
"""Check after a factorization, which raises if an element of its result `info` is not 0."""


class FunctionWatch(TorchFunctionMode):
    """Intercepts the functions and methods of PyTorch that Python calls."""

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watch = self._watch
        if watch.is_quiet:
            return func(*args, **kwargs)
        if watch.is_left:
            return func(*TREE.replaced(args, plain), **TREE.replaced(kwargs, plain))
        watch.function = func
        if func in _FACTORIES or func is torch.Tensor.new_tensor:
            return self._made(func, args, kwargs)
        x = args[0] if args else None
        if isinstance(x, torch.Tensor):
            if x.device.type == "cpu" and x.numel() and (func is torch.Tensor.item or func in _SETTLING):
                return self._read(func, x)
            if func in DOWNLOADS and x.device.type == NAME:
                with watch.mid_step.downloading():
                    return func(*args, **kwargs)
            if func is torch.Tensor.numpy and watch.mid_step.depends(x):
                return watch.mid_step.call(func, args, kwargs)
            if func in _ESCAPES:
                watch.refuse(
                    refusal(
                        f"{func.__name__} hands the memory of a tensor to others",
                        expected="a step that works on tensors: a replay cannot repeat reads of their memory from outside",
                        fix="do it outside of the step",
                    )
                )
                return func(*args, **kwargs)
            if func in (_GRADIENT.__get__, _GRADIENT.__set__) and x.is_leaf:
                watch.note_leaf(x)
            if func is torch.Tensor.__bool__ and x.device.type == NAME and x.dtype is not torch.bool and x.numel() == 1:
                x, args = None, (x != 0,)  # an answer differs from call to call less often than a number
        if func is torch.Tensor.backward:
            return self._backward(*args, **kwargs)
        if func is torch.Tensor.__setitem__ and _fills_by_flag(*args):
            func = torch.Tensor.masked_fill_
        if is_host_array((args, kwargs)):
            args, kwargs = (TREE.replaced(v, watch.mid_step.tensor) for v in (args, kwargs))
        numbers = [n for n in TREE.leaves((args, kwargs)) if type(n) is LiveNumber]
        if not numbers:
            return func(*args, **kwargs)
        with watch.looking_for(numbers):
            return func(*args, **kwargs)

    def _backward(
        self,
        x: torch.Tensor,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Run `x.backward(...)` with this mode active, so that gradient functions written in Python are intercepted too."""
        with self:
            torch.autograd.backward(x, gradient, retain_graph, create_graph, inputs=inputs)

    def _read(self, func: Any, x: torch.Tensor) -> Any:
        if func is torch.Tensor.item:
            return self._watch.read(x)
        with self._watch.quiet():
            value = func(x)
        self._watch.settle(x, func, value)
        return value

    def _made(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return a tensor made of Python data: a constant of the graph if the data cannot change.

        Otherwise each run makes it again on the CPU and copies it to its device.
        """
        watch = self._watch
        device = kwargs.pop("device", None)
        if func is torch.Tensor.new_tensor:
            base, *args = args
            kwargs.setdefault("dtype", base.dtype)
            func, device = torch.tensor, base.device if device is None else device
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if isinstance(data, torch.Tensor):
            return func(*args, **kwargs, **({} if device is None else {"device": device}))
        needs_gradient = kwargs.pop("requires_grad", False)
        target = torch.get_default_device() if device is None else torch.device(device)
        if target.type == NAME and _is_immutable(data):
            out = self._constant(func, args, {**kwargs, "device": target})
            return out.requires_grad_() if needs_gradient else out
        named = {**kwargs, "device": "cpu"}
        if watch.mid_step.depends((args, named)):
            made = watch.mid_step.call(func, tuple(args), named)
        else:
            slot = watch.program.new_slot()
            with watch.quiet():
                made = func(*args, **named)
            watch.program.add_call(func, tuple(args), named, [slot])
            watch.fill(slot, made)
        out = made.to(target) if target.type == NAME else made
        return out.requires_grad_() if needs_gradient else out

    def _constant(self, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        """Return a tensor on the device with the elements that it has in each run."""
        with self._watch.quiet():
            out: torch.Tensor = func(*args, **kwargs)
        self._watch.note_result(out)
        return out


def _fills_by_flag(x: torch.Tensor, mask: Any, value: Any) -> bool:
    """Return whether `x[mask] = value` fills all of a tensor or nothing: PyTorch reads a mask without axes to find out."""
    is_flag = isinstance(mask, torch.Tensor) and mask.dtype is torch.bool and not mask.ndim and mask.device == x.device
    is_one = not value.ndim if isinstance(value, torch.Tensor) else isinstance(value, (bool, int, float))
    return is_flag and is_one


def _is_immutable(data: Any) -> bool:
    """Return whether Python data has the same elements in each run: plain numbers, tuples of them, and empty lists."""
    if isinstance(data, tuple):
        return all(map(_is_immutable, data))
    return type(data) in (int, float, bool, complex) or (isinstance(data, list) and not data)


class OpWatch(private.OpMode):  # type: ignore[no-untyped-call]
    """Intercepts the ops that PyTorch dispatches, below autograd."""

    supports_higher_order_operators = True

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._watch.is_quiet:
            return func(*args, **kwargs)
        if self._watch.is_left:
            return self._eagerly(func, args, kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            self._watch.refuse(refusal(f"{func} chooses between functions", fix="compute both, and use torch.where"))
            return func(*args, **kwargs)
        used = [x for x in TREE.leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        device = kwargs.get("device")
        if any(x.device.type == NAME for x in used) or (device is not None and torch.device(device).type == NAME):
            return self._on_device(func, args, kwargs, used)
        return self._on_host(func, args, kwargs, used)

    def _on_device(self, func: Any, args: Any, kwargs: Any, used: list[torch.Tensor]) -> Any:
        watch = self._watch
        watch.calls += 1
        recorder = dispatch.thread.executor.recorder
        if func is _CHECK_ERRORS and recorder is not None and recorder.require_success(tensors.unwrap(args[0])):
            return None
        node = private.current_node()
        if node is not None:
            watch.differentiated.add(node)
        for x in used:
            if x.device.type == NAME:
                watch.note_use(x)
        host = [x for x in used if x.device.type == "cpu"]
        if any(x.requires_grad and torch.is_grad_enabled() for x in host):
            watch.refuse(_no_host_gradients())
            return self._eagerly(func, args, kwargs)
        numbers = self._numbers_of(host, func)
        if watch.is_left:
            return self._eagerly(func, args, kwargs)
        before, watch.sources = watch.sources, list(host)
        watch.is_copying = "copy" in str(func)
        try:
            with watch.looking_for(numbers) if numbers else nullcontext():
                out = func(*args, **kwargs)
            unused = {id(x) for x in watch.sources if x.ndim and x.numel()}
        except RuntimeError as error:
            cause = error if isinstance(error, CaptureError) else error.__cause__
            if watch.is_left or not isinstance(cause, CaptureError):
                raise
            refused = cause if isinstance(cause, RefusedError) else _unrecordable(func, cause, watch.function)
            watch.refuse(refused.with_traceback(None))
            return self._eagerly(func, args, kwargs)
        finally:
            watch.sources = before
        watch.mid_step.note_copies(out, used)
        if unused:
            problem = f"{func} reads a CPU tensor in a way that a replay would not repeat"
            raise refusal(problem, fix=f"move the tensor first: x.to({NAME!r})")
        written = _written(func, args, kwargs)
        for x in written:
            if id(x.untyped_storage()) in watch.memories:
                watch.written[id(x)] = x
        if not written:
            for x in TREE.leaves(out):
                if isinstance(x, torch.Tensor):
                    watch.note_result(x)
        return out

    def _eagerly(self, func: Operator, args: Arguments, kwargs: Keywords) -> Any:
        """Run an op after the recording was left."""
        if self._watch.saved:
            args, kwargs = (TREE.replaced(x, lambda v: true_value(self._watch.live(v))) for x in (args, kwargs))
        return func(*args, **kwargs)

    def _numbers_of(self, host: list[torch.Tensor], func: Any) -> list[LiveNumber]:
        """Return live numbers for 0-d CPU tensors, which kernels take as numbers."""
        if "copy" in str(func):
            return []
        numbers = []
        for x in host:
            if not x.ndim:
                number = self._watch.read(x)
                if type(number) is LiveNumber:
                    with self._watch.quiet():
                        numbers.append(LiveNumber(x.item(), number.scalar, self._watch.program))
        return numbers

    def _on_host(self, func: Any, args: Any, kwargs: Any, used: list[torch.Tensor]) -> Any:
        watch, program = self._watch, self._watch.program
        if torch.is_grad_enabled() and any(x.requires_grad for x in used) and func is not _DETACH:
            watch.refuse(_no_host_gradients())
            return self._eagerly(func, args, kwargs)
        if func is _LIFT and watch.function is torch.Tensor.__setitem__ and not args[0].ndim:
            return self._literal(args[0])
        template, named = watch.template(args), watch.template(kwargs)
        written = _written(func, args, kwargs)
        if watch.mid_step.reads(template, named, written):
            if written or torch.Tag.nondeterministic_seeded in func.tags:
                watch.mid_step.refuse()
                return self._eagerly(func, args, kwargs)
            return watch.mid_step.record(func, template, named, func(*args, **kwargs))
        for x in written:
            with watch.quiet():
                watch.before_host_write(x)
                if watch.place(x) is x:
                    program.note_write(x)
        program.draws = program.draws or torch.Tag.nondeterministic_seeded in func.tags
        out = func(*args, **kwargs)
        made = list(out) if isinstance(out, (tuple, list)) else [out]
        results = [x for x in made if isinstance(x, torch.Tensor)]
        if not used and not results:
            return out
        watch.calls += 1
        if used and not results and type(out) in (bool, int, float):
            values = program.values
            program.expect(lambda: func(*resolved(template, values), **resolved(named, values)), out)
            return out
        known = {id(x) for x in used}
        slots: list[Slot | None] = [
            program.new_slot() if isinstance(x, torch.Tensor) and id(x) not in known else None for x in made
        ]
        program.add_call(func, template, named, slots)
        for slot, x in zip(slots, made, strict=True):
            if slot is not None:
                watch.fill(slot, x)
        return out

    def _literal(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor that PyTorch has made of a number, and let each run make it."""
        watch = self._watch
        with watch.quiet():
            literal = Literal(x)
        slot = watch.program.new_slot()
        watch.program.add_call(Literal.made, (literal,), {}, [slot])
        watch.fill(slot, x)
        return x


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Return the tensors that an op writes to, by its schema."""
    found: list[torch.Tensor] = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = args[i] if i < len(args) and not a.kwarg_only else kwargs.get(a.name)
            found += [x for x in TREE.leaves(value) if isinstance(x, torch.Tensor)]
    return found


def _no_host_gradients() -> CaptureError:
    return refusal(
        "a CPU tensor that needs gradients is used",
        expected=f"parameters on {NAME}",
        fix=f"move the model with model.to({NAME!r}) before creating the optimizer, and detach copies: x.detach().cpu()",
    )


def _unrecordable(func: Operator, cause: CaptureError, caller: object) -> CaptureError:
    """Return the error for an op that the recorder refused, within the function `caller` of PyTorch."""
    if is_in_optimizer():
        return refusal(
            f"the optimizer branches on the values of tensors ({func}), which do not exist while a step is recorded",
            expected="an optimizer that runs wholly on the device",
            fix="create it with capturable=True or fused=True if it has these options, else call it outside of the step",
        )
    if "while it is only being recorded" not in str(cause):
        return refusal(f"{func}: {cause}", fix=other_way(caller))
    return refusal(
        f"{func} needs the value of a tensor, which does not exist while the step is only being recorded",
        expected="a step that takes the same path at each call",
        fix=remedy(caller),
    )
