"""Guards of captured functions: when they record again, which calls they refuse, and that failures roll everything back."""

from __future__ import annotations

import gc
import threading
import warnings
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor, jit, nn, optim
from polyhal.hal.errors import AutogradError, CaptureError
from polyhal.models import CNN
from polyhal.nn import functional as F


@pytest.fixture(autouse=True)
def here(numpy_device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The tests of this file do not depend on the device."""
    monkeypatch.setenv("POLYHAL_DEVICE", "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield numpy_device


def vector(*values: float) -> Tensor:
    return ph.tensor(list(map(float, values)))


def calls(function: Callable[..., Any], *arguments: Any, times: int = 4) -> list[float]:
    return [float(function(*arguments).sum().item()) for _ in range(times)]


def test_another_shape_is_recorded_and_the_least_recently_used_is_evicted() -> None:
    doubled = jit(lambda x: x * 2, max_graphs=2)
    for n in (1, 2, 1):
        calls(doubled, ph.ones((n,)))
    with pytest.warns(
        UserWarning, match=r"more than 2 signatures, now \(float32\[3\].*expected \(float32\[2\].*or \(float32\[1\]"
    ):
        assert calls(doubled, ph.ones((3,))) == [6.0] * 4
    assert calls(doubled, ph.ones((1,))) == [2.0] * 4  # used last before, so still known
    assert len(doubled.graphs) == 2


def test_numbers_may_change_but_decide_nothing() -> None:
    scaled = jit(lambda x, by: x * by)
    assert [calls(scaled, vector(1, 2), float(i), times=1) for i in range(6)] == [[3.0 * i] for i in range(6)]
    assert len(scaled.graphs) == 1
    chosen = jit(lambda x, by: x * by if by > 1 else x, warm_up=False)
    with pytest.raises(CaptureError, match=r"decides what Python does.*test_jit_guards"):
        chosen(vector(1), 2.0)


def test_control_flow_on_values_names_the_line() -> None:
    for read in (lambda x: float(x.sum()), lambda x: x.numpy()[0], lambda x: bool((x > 0).any())):
        function = jit(lambda x, read=read: x * 2 if read(x) else x, warm_up=False)
        with pytest.raises(CaptureError, match=r"is read while it is only being recorded, at .*test_jit_guards"):
            function(vector(1, 2))


def test_clipping_cannot_wait_for_the_norm() -> None:
    weight = vector(1, 2).requires_grad_()
    weight.grad = vector(3, 4)

    def clipped(**options: bool) -> Tensor:
        return nn.utils.clip_grad_norm_([weight], 1.0, **options)

    with pytest.raises(CaptureError, match=r"test_jit_guards.*return the norm from the step and look at it there"):
        jit(lambda: clipped(error_if_nonfinite=True), warm_up=False)()
    assert jit(clipped, warm_up=False)().item() == 5.0


def test_a_value_that_is_read_and_then_changed_is_refused() -> None:
    count = vector(0)

    def step() -> Tensor:
        if count.item() > 2:
            return count * 0
        count.add_(1)
        return count * 1

    with pytest.raises(CaptureError, match=r"if count.item\(\) > 2"):
        jit(step, warm_up=False)()
    assert count.item() == 0


def test_tensors_that_share_memory_are_another_signature() -> None:
    total = jit(lambda a, b: a + b, warm_up=False)
    x, y = vector(1), vector(10)
    assert calls(total, x, x) == [2.0] * 4
    assert calls(total, x, y) == [11.0] * 4


def test_state_that_is_replaced_is_noticed_and_not_lost() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", vector(0, 0))

        def forward(self, x: Tensor) -> Tensor:
            self.total = self.total + x
            return self.total * 1

    for counter in (Counter(), nn.Sequential(Counter())):
        step = jit(counter)
        with pytest.warns(
            UserWarning, match=r"reads what its last call made \(.*float32\[2\], first used at .*self.total \+ x"
        ):
            found = calls(step, vector(1, 2), times=6)
        assert found == [3.0 * i for i in range(1, 7)]


def test_data_that_is_not_passed_is_noticed() -> None:
    box: list[Tensor] = [vector(0)]
    step = jit(lambda: box[0] * 2)

    def call(i: int) -> float:
        box[0] = vector(i)
        return float(step().item())

    with pytest.warns(UserWarning, match="another tensor at each call, which is not passed"):
        found = [call(i) for i in range(5)]
    assert found == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_modes_of_modules_have_graphs_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    run = jit(lambda x: model(x))
    x = ph.ones((2, 4))
    with ph.no_grad():
        for _ in range(3):
            for training in (True, False):
                model.train(training)
                calls(run, x)
                if not training:
                    np.testing.assert_array_equal(run(x).numpy(), model(x).numpy())
    assert len(run.graphs) == 2


def test_a_failing_step_leaves_everything_as_it_was() -> None:
    ph.manual_seed(0)
    model, broken = CNN(4, 3, 2), [False]
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.LinearLR(optimizer)
    x, y = ph.rand(4, 1, 4, 4), ph.tensor([0, 1, 2, 0])

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if broken[0]:
            raise RuntimeError("stopped")
        return loss

    run = jit(step)
    run()
    watched = (*model.state_dict().values(), *(p.grad for p in model.parameters()))

    def everything() -> list[Any]:
        arrays = [x.numpy().tolist() for x in watched if x is not None]
        grads = [p.grad.numpy().tolist() for p in model.parameters() if p.grad is not None]
        return [*arrays, *grads, [s["step"] for s in optimizer.state.values()], schedule.get_last_lr()]

    outside = (model(x) ** 2).sum()
    before = everything()
    broken[0] = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="stopped"):
            run()
        assert everything() == before
    outside.backward()  # the failed step did not count as a change of the parameters
    broken[0] = False
    losses = [run().item() for _ in range(8)]
    assert losses[-1] < losses[0]


def test_memory_of_dropped_steps_is_given_back(here: Device) -> None:
    x = ph.ones((256, 256), device=here)
    gc.collect()
    before = here.memory_stats().used
    gc.disable()
    try:
        chain = jit(lambda x: ph.exp(x @ x) @ x, warm_up=False)
        for _ in range(3):
            chain(x)
        assert here.memory_stats().used > before
        del chain
        assert here.memory_stats().used == before
    finally:
        gc.enable()


def test_threads_take_turns() -> None:
    run = jit(lambda x: (x * 2 + 1) @ x, warm_up=False)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = ph.full((16, 16), float(number), device="numpy")
        for _ in range(20):
            if not (run(x).numpy() == (number * 2 + 1) * number * 16).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(run.graphs) == 1


def test_what_gradients_may_not_do() -> None:
    w = vector(2, 3).requires_grad_()
    run = jit(lambda x: (x * w * w).sum(), warm_up=False)
    loss = run(vector(1, 1))
    with ph.no_grad():
        w.mul_(2)
    with pytest.raises(AutogradError, match="a parameter was changed"):
        loss.backward()
    with pytest.raises(AutogradError, match="differentiated again"):
        run(vector(1, 1)).backward(create_graph=True)

    def inside(x: Tensor) -> None:
        (x * w).sum().backward()

    with pytest.raises(CaptureError, match=r"the result of an op.*x.detach\(\)"):
        jit(inside, warm_up=False)(w * 2)
    assert w.grad is None


def test_autocast_around_a_captured_function_counts() -> None:
    a = ph.rand(8, 8)
    run = jit(lambda x: x @ a, warm_up=False)
    for _ in range(3):
        assert run(a).dtype is ph.float32
        with ph.amp.autocast("bfloat16"):
            assert run(a).dtype is ph.bfloat16


def test_a_block_that_fails_leaves_gradients_alone() -> None:
    w = vector(1).requires_grad_()

    def block() -> None:
        with ph.capture():
            (w * 2).sum().backward()
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        block()
    assert w.grad is None


def test_methods_and_any_mapping_or_sequence_are_captured() -> None:
    class Rows(list[Any]):
        pass

    class Model:
        scale = 3.0

        @jit(warm_up=False)
        def forward(self, batch: Any) -> Any:
            return OrderedDict(y=batch["x"] * self.scale, rows=Rows([batch["rows"][0] + 1, "name"]))

    first, second = Model(), Model()
    second.scale = 5.0
    for i in range(4):
        for model in (first, second):
            made = model.forward(UserDict(x=vector(i), rows=Rows([vector(2 * i)])))
            assert type(made) is OrderedDict
            assert type(made["rows"]) is Rows
            assert (made["y"].item(), made["rows"][0].item()) == (model.scale * i, 2 * i + 1)


def test_returned_numbers_that_change_are_noticed() -> None:
    count = iter(range(100))
    step = jit(lambda x: (x * 2, next(count)), warm_up=False)
    assert step(vector(1))[1] == 0
    with pytest.warns(UserWarning, match="returns other numbers at each call.*runs eagerly from now on"):
        assert step(vector(1))[1] == 1
    assert [step(vector(1))[1] for _ in range(3)] == [2, 3, 4]
    same = jit(lambda x: (x * 2, 7, "name", None), warm_up=False)
    assert [same(vector(1))[1:] for _ in range(4)] == [(7, "name", None)] * 4
    assert len(same.steps) == 1


def test_an_interrupt_within_a_recording_leaves_everything_as_it_was() -> None:
    weight, pressed = vector(1, 2).requires_grad_(), [True]
    optimizer = optim.SGD([weight], lr=0.5, momentum=0.5)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        if pressed[0]:
            raise KeyboardInterrupt
        return loss

    run = jit(step, warm_up=False)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(vector(1, 1))
        assert (weight.numpy().tolist(), weight.grad) == ([1, 2], None)
    pressed[0] = False
    assert [float(run(vector(1, 1)).item()) for _ in range(5)] == [3.0, 2.0, 0.5, -1.25, -3.125]
