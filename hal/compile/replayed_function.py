"""Functions that are recorded per signature of their calls, and replayed: the part that all frontends share."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from polyhal.hal.compile.capture.difference import Difference
from polyhal.hal.compile.capture.flat_call import FlatCall
from polyhal.hal.compile.capture.replay_cache import MISSED, NotReplayableError, ReplayCache, ReplayStep
from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.scheduler.activity import StepActivity
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.log import logger

_LOG = logger("capture")

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=FlatCall)
S = TypeVar("S", bound=ReplayStep[Any])


class ReplayedFunction(ReplayCache[C, S], Generic[P, R, C, S]):
    """A function that is recorded and replayed. Its first call runs op by op, unless `warm_up` is False."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool, api: str) -> None:
        """Wrap a function; `api` names the frontend in messages."""
        functools.update_wrapper(self, function)
        super().__init__(f"{api} {getattr(function, '__qualname__', type(function).__name__)}", max_graphs)
        self._function = function
        self._warmed_up = not warm_up

    @abstractmethod
    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> C:
        """Flatten the arguments of a call, with the modes of the thread. Raises NotReplayableError if it is to run op by op."""

    def _may_replay(self) -> bool:
        """Return whether this is a plain call, outside of other recordings."""
        return dispatch.thread.executor.replays_graphs

    def _warm_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the first call, which creates one-time state: optimizer state, caches of the program."""
        return self._function(*args, **kwargs)

    def _run_eagerly(self, call: C) -> Any:
        return self._function(*call.args, **call.kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the function itself, or bound to an object."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        repeat = self._repeat
        if repeat is not None and not kwargs and repeat.may_apply():
            self._lock.acquire()  # a `with` block costs the host twice as much
            try:
                if self._repeat is repeat:
                    repeated = repeat.replay(args)
                    if repeated is not MISSED:
                        return repeated  # type: ignore[no-any-return]
            finally:
                self._lock.release()
        if not self._may_replay():
            return self._function(*args, **kwargs)
        with self._lock:
            if self._warmed_up:
                try:
                    call = self._flatten(args, kwargs)
                except NotReplayableError as error:
                    reason = Difference(str(error), error.expected, error.fix)
                else:
                    return self._replay(call)  # type: ignore[no-any-return]
                self._note_eager(reason)
                return self._function(*args, **kwargs)
            result = self._warm_up(args, kwargs)
            self._warmed_up = True
            _LOG.info("%s: warmed up by a call that ran op by op", self._title)
            return result  # type: ignore[no-any-return]

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far, before passes."""
        return [step.captured.graph for step in self.steps]

    def explain(self) -> str:
        """Report the effect of each pass on each recorded step, and the implementation of each op with the reason.

        Reasons for which calls run op by op follow.
        """
        eager = [f"some calls run op by op: {problem}; {fix}" for problem, fix in self.eager_reasons.items()]
        if self.steps or eager:
            return "\n\n".join([*(step.explain() for step in self.steps), *eager])
        if self._warmed_up:
            return "nothing is recorded yet: the next call is recorded, if a step can be recorded for its arguments"
        return "nothing is recorded yet: the first call will run op by op, and the next one is recorded"

    @staticmethod
    def activity() -> StepActivity:
        """Time the work of each device inside a block: `with step.activity() as a: step(...)`, then `print(a)`."""
        return StepActivity()

    @staticmethod
    def profile() -> StepProfile:
        """Time the captured steps inside a block, node by node: `with step.profile() as p: step(...)`, then `print(p)`."""
        return StepProfile()
