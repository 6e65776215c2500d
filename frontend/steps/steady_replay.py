"""Steady replays: calls that repeat the call before, found by comparing its properties instead of building a signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.capture.flat_call import NODE, TENSOR
from polyhal.hal.compile.capture.replay_cache import MISSED
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.layout import Spec
    from polyhal.steps.signature import CallArguments
    from polyhal.steps.step import CapturedStep
    from polyhal.tensor import Tensor

_THREAD, _STRUCTURE = dispatch.thread, dispatch.structure
_IMMUTABLE = (int, bool, str, bytes, complex, type(None), type(...))


class SteadyReplay:
    """Replays of one confirmed step, as long as nothing has changed that a signature or a guard depends on."""

    __slots__ = (
        "_all_modes",
        "_expected",
        "_flags_hold",
        "_floats",
        "_modes",
        "_run",
        "_settings",
        "_tensors",
        "_thread",
        "_version",
    )

    def __init__(
        self, step: CapturedStep, call: CallArguments, expected: Sequence[_Expected], floats: list[float]
    ) -> None:
        self._flags_hold = step.flags_hold if step.has_leaves else None
        self._run = step.steady_run()
        self._expected = expected
        self._tensors = len(call.tensors)
        self._floats = floats
        self._thread = dict(_THREAD.__dict__)
        """The modes that the thread has set. Comparing all at once costs less than to look up three of them."""
        self._all_modes = _thread_modes()
        self._settings = settings.result_key
        self._version, self._modes = step.checked

    @classmethod
    def of(cls, step: CapturedStep, call: CallArguments, floats: list[float]) -> SteadyReplay | None:
        """Return the replays that repeat `call`, which `step` has just replayed; None where each call needs a signature.

        The step reads its float arguments in `floats`.
        """
        if _THREAD.timer is not None or _THREAD.worker_timer is not None:
            return None
        expected = _expected(call)
        return None if expected is None else cls(step, call, expected, floats)

    def may_apply(self) -> bool:
        """As `RepeatedCall.may_apply`."""
        return _THREAD.__dict__ == self._thread or _thread_modes() == self._all_modes

    def replay(self, args: tuple[Any, ...], /) -> Any:
        """As `RepeatedCall.replay`."""
        if (
            settings.result_key != self._settings
            or _STRUCTURE.version != self._version
            or _STRUCTURE.modes != self._modes
            or (self._flags_hold is not None and not self._flags_hold())
        ):
            return MISSED
        if not args and not self._expected:
            return self._run(())
        tensors = self._matched(args)
        return MISSED if tensors is None else self._run(tensors)

    def _matched(self, args: tuple[Any, ...]) -> Sequence[Tensor] | None:
        """Return the tensors among arguments with the required properties, and store the floats."""
        expected = self._expected
        if len(expected) != len(args):
            return None
        tensors: list[Tensor] = []
        floats: list[float] = []
        for i, (kind, spec, value, requires_grad, is_leaf) in enumerate(expected):  # a strict zip takes longer
            x = args[i]
            if type(x) is not kind:
                return None
            if spec is not None:
                own = x.ref.spec
                if (
                    (own is not spec and own != spec)
                    or x.device is not value
                    or x.requires_grad is not requires_grad
                    or (x.node is None) is not is_leaf
                ):
                    return None
                tensors.append(x)
            elif kind is float:
                floats.append(x)
            elif x is not value:
                return None
        count = self._tensors
        if count == 2:
            if tensors[0].buffer is tensors[1].buffer:
                return None
        elif count > 2 and len({id(x.buffer) for x in tensors}) != count:
            return None
        if floats:
            self._floats[:] = floats
        return tensors


def _thread_modes() -> list[Any]:
    """Return the modes of the thread, initial values included."""
    return [getattr(_THREAD, name) for name in type(_THREAD).__annotations__]


class _Expected(NamedTuple):
    """Requirements of one argument."""

    kind: Any
    """The type of the argument."""
    spec: Spec | None = None
    """Layout of a tensor; None for other arguments."""
    value: Any = None
    """The device of a tensor, or the very object of other arguments than tensors and floats."""
    requires_grad: bool = False
    is_leaf: bool = True


def _expected(call: CallArguments) -> list[_Expected] | None:
    """Return the requirements of arguments; None for arguments that are nested, share memory or may change in place."""
    if len(call.parts) != len(call.args) + 1:
        return None
    expected: list[_Expected] = []
    for x, part in zip(call.args, call.parts[1:], strict=True):  # the first describes the tuple of arguments
        properties: Any = part
        if properties is float:
            expected.append(_Expected(float))
        elif properties[0] is TENSOR:
            _, spec, device, requires_grad, is_leaf, alias = properties
            if alias is not None:
                return None
            expected.append(_Expected(type(x), spec, device, requires_grad, is_leaf))
        elif properties[0] is NODE or not _stays_equal(x):
            return None
        else:
            expected.append(_Expected(type(x), value=x))
    return expected


def _stays_equal(x: Any) -> bool:
    """Return whether an object always equals itself as it was: an immutable one, or one that is compared by identity."""
    kind: Any = type(x)
    return kind in _IMMUTABLE or (kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__)
