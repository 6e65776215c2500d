"""The state machine that replays calls, over a third frontend: confirmation, guards, giving up, eviction, failures, threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_at

from polyhal.hal.compile.capture import replay_cache
from polyhal.hal.compile.capture.replay_cache import NotReplayableError, StepState
from polyhal.hal.core.dispatch import Array
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.ops import FUNCTIONS
from tests.hal.third_frontend import MODES, ArrayFunction

add, multiply = FUNCTIONS["add"], FUNCTIONS["multiply"]


@pytest.fixture(autouse=True)
def here(numpy_device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    monkeypatch.setenv("POLYHAL_DEVICE", "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield numpy_device
    MODES.clear()


def array(device: Device, *values: float) -> Array:
    return Array(device, *device.upload(np.array(values, dtype=np.float32), float32))


def values(x: Any) -> list[float]:
    found: list[float] = x.device.download(x.ref).tolist()
    return found


class Counted:
    """A function with the number of its calls in Python."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_call_is_recorded_twice_and_then_replayed(here: Device, warm_up: bool) -> None:
    function = Counted(lambda pair, scale=1.0: {"sum": add(*pair), "scaled": [multiply(pair[0], scale), "constant"]})
    step = ArrayFunction(function, warm_up=warm_up)
    for i in range(6):
        made = step([array(here, i, 2), array(here, 3, 4)], scale=0.5 * i)
        assert values(made["sum"]) == [i + 3, 6]
        assert values(made["scaled"][0]) == [0.5 * i * i, i]
        assert made["scaled"][1] == "constant"
        made["scaled"].clear()  # each call returns lists of its own
    assert function.calls == 2 + warm_up
    assert [s.state for s in step.steps] == [StepState.CONFIRMED]
    assert "multiply" in step.explain()


def test_shared_memory_and_other_shapes_are_other_signatures(here: Device) -> None:
    step = ArrayFunction(add)
    x, y = array(here, 1), array(here, 2)
    for a, b, total in [(x, y, 3), (x, x, 2), (y, y, 4), (y, x, 3)] * 3:
        assert values(step(a, b)) == [total]
    assert len(step.steps) == 2


def test_guards_choose_among_the_steps_of_a_signature(here: Device) -> None:
    function = Counted(lambda x: add(x, MODES["offset"]))
    step = ArrayFunction(function)
    for i in range(12):
        MODES["offset"] = float(i % 3)
        assert values(step(array(here, i))) == [i + i % 3]
    assert (function.calls, len(step.steps)) == (6, 3)


def test_a_number_of_python_that_changes_is_given_up_with_a_remedy(here: Device) -> None:
    count = iter(range(100))
    function = Counted(lambda x: multiply(x, float(next(count))))
    step = ArrayFunction(function)
    assert values(step(array(here, 2))) == [0]
    expected = r"another number at each call \(0.0, then 1.0, in multiply\).*eagerly from now on.*as a float argument"
    with pytest.warns(UserWarning, match=expected):
        assert values(step(array(here, 2))) == [2]
    assert [values(step(array(here, 2))) for _ in range(3)] == [[4], [6], [8]]
    assert (function.calls, step.steps) == (5, [])  # Python ran once for each call, also for the one that was given up


def test_memory_that_changes_is_given_up_with_its_line(here: Device) -> None:
    box = [array(here, 0)]
    step = ArrayFunction(lambda x: add(x, box[0]))

    def call(i: int) -> list[float]:
        box[0] = array(here, i)
        return values(step(array(here, 1)))

    with pytest.warns(UserWarning, match=r"another tensor at each call.*float32\[1\], first used at .*test_replay_ca"):
        found = [call(i) for i in range(4)]
    assert found == [[1], [2], [3], [4]]


def call_with_mode(step: ArrayFunction, mode: int) -> list[float]:
    MODES["n"] = float(mode)
    return values(step(array(Device("numpy"), 1)))


def test_recordings_that_repeat_nothing_are_given_up() -> None:
    step = ArrayFunction(lambda x: add(x, MODES["n"]), max_graphs=3)
    with pytest.warns(UserWarning, match="recorded 4 times in a row.*another path"):
        found = [call_with_mode(step, i) for i in range(6)]
    assert found == [[1 + i] for i in range(6)]
    assert step.steps == []


def test_steps_that_are_dropped_before_each_recording_are_given_up(here: Device) -> None:
    class Moving(ArrayFunction):
        def _before_recording(self, steps: list[Any]) -> None:
            steps.clear()

    step = Moving(lambda x: add(x, 1.0), max_graphs=2)
    assert [values(step(array(here, i))) for i in range(2)] == [[1], [2]]
    with pytest.warns(UserWarning, match="recorded 3 times in a row, the last time because its memory was replaced"):
        assert values(step(array(here, 2))) == [3]


def test_steps_that_are_replayed_are_evicted_but_never_given_up(caplog: pytest.LogCaptureFixture) -> None:
    step = ArrayFunction(lambda x: add(x, MODES["n"]), max_graphs=2)
    caplog.set_level("INFO", logger="polyhal.capture")
    with pytest.warns(UserWarning, match="one signature has more than 2 steps") as caught:
        found = [call_with_mode(step, i // 3) for i in range(15)]
    assert found == [[1 + i // 3] for i in range(15)]
    assert (len(step.steps), len(caught)) == (2, 1)
    assert sum("evicted a step" in event for event in caplog.messages) == 3


def test_effects_that_cannot_be_replayed_run_eagerly_and_are_given_up_the_third_time(here: Device) -> None:
    failures = [NotReplayableError("it counts", "count outside")] * 3

    class Declining(ArrayFunction):
        def _record(self, call: Any) -> Any:
            if failures:
                raise failures.pop()
            return super()._record(call)

    step = Declining(lambda x: add(x, 1.0))
    assert [values(step(array(here, i))) for i in range(2)] == [[1], [2]]
    with pytest.warns(UserWarning, match="it counts; it runs eagerly from now on; count outside"):
        assert values(step(array(here, 2))) == [3]
    assert values(step(array(here, 3))) == [4]
    assert step.steps == []


def test_after_an_error_a_known_step_is_recorded_again_and_kept(here: Device) -> None:
    def body(x: Array) -> Any:
        if MODES.get("broken"):
            raise RuntimeError("stopped")
        return multiply(add(x, 1.0), 2.0)

    function = Counted(body)
    step = ArrayFunction(function)
    for i in range(3):
        assert values(step(array(here, i))) == [2 * i + 2]
    before = step.steps
    MODES["broken"] = True
    with pytest.raises(RuntimeError, match="stopped"):
        step(array(here, 1))
    MODES.clear()
    assert [s.state for s in step.steps] == [StepState.STALE]
    assert [values(step(array(here, i))) for i in range(3)] == [[2], [4], [6]]
    assert step.steps == before
    assert function.calls == 2 + 1 + 1


def test_an_interrupt_at_any_line_leaves_a_function_that_works(here: Device) -> None:
    line, unharmed = 0, False
    while not unharmed:
        line += 1
        step = ArrayFunction(lambda x: multiply(add(x, 1.0), 2.0))

        def calls(step: ArrayFunction = step) -> None:
            for i in range(4):
                assert values(step(array(here, i))) == [2 * i + 2]

        unharmed = interrupted_at(line, calls, replay_cache.__file__) is None
        calls()
        assert len(step.steps) == 1
    assert line > 20


def test_steps_within_steps_are_part_of_the_outer_one(here: Device) -> None:
    inner = ArrayFunction(lambda x: add(x, 1.0))
    outer = ArrayFunction(lambda x: multiply(inner(x), 2.0))
    for i in range(4):
        assert values(inner(array(here, i))) == [i + 1]
        assert values(outer(array(here, i))) == [2 * i + 2]
    assert [len(s.captured.graph.nodes) for s in (*inner.steps, *outer.steps)] == [1, 2]


def test_threads_take_turns_in_one_function(here: Device) -> None:
    step = ArrayFunction(lambda x, by: multiply(add(x, 1.0), by))
    wrong: list[int] = []

    def work(number: int) -> None:
        for i in range(20):
            if values(step(array(here, i), float(number))) != [(i + 1) * number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert len(step.steps) == 1


def test_methods_are_bound_to_their_objects(here: Device) -> None:
    class Model:
        weight = 3.0

        @ArrayFunction
        def forward(self, x: Array) -> Any:
            return multiply(x, self.weight)

    first, second = Model(), Model()
    second.weight = 5.0
    for i in range(4):
        assert values(first.forward(array(here, i))) == [3 * i]
        assert values(second.forward(array(here, i))) == [5 * i]
