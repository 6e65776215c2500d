"""Pipelines train as the unsplit model does: gradients, states, memory, captured steps, and errors.

Roundings: a micro-batch sums fewer rows at once, so sums have another order. A sum of n terms is within n eps of the sum of
their magnitudes in any order, and each of the L layers that a gradient passes adds such an error: n L eps of the largest
element, with a factor of 4 for cancellation within rows. n is at most 64 here, L at most 8.
"""

from __future__ import annotations

import copy
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from groups import OPENCL
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal
from polyhal import Device, Tensor, amp, nn, optim
from polyhal.hal.core.memory.stream_selection import StreamSelection
from polyhal.hal.errors import AutogradError, ShapeError
from polyhal.models import GPT, GPTConfig
from polyhal.nn import functional as F
from polyhal.parallel import Pipeline, PipelineError, tensor_parallel
from polyhal.parallel.schedule import ScheduleName

SIM = [f"sim:teaching*4:{i},memory=256MiB" for i in range(4)]
MIXED = [OPENCL[0], "numpy", SIM[0], OPENCL[0]] if OPENCL else ["numpy", *SIM[:3]]
SCHEDULES: tuple[ScheduleName, ...] = ("1f1b", "gpipe")


def close(actual: Tensor | None, expected: Tensor | None, what: str = "") -> None:
    assert actual is not None, what
    assert expected is not None, what
    a, b = actual.numpy(), expected.numpy()
    bound = 4 * 64 * 8 * np.finfo(b.dtype).eps
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * np.abs(b).max(), err_msg=what)


def same_gradients(module: nn.Module, expected: nn.Module) -> None:
    for (name, p), (_, q) in zip(module.named_parameters(), expected.named_parameters(), strict=True):
        close(p.grad, q.grad, name)


def numbers(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> Tensor:
    return polyhal.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), device="numpy")


def perceptron(layers: int, dtype: str = "float32") -> nn.Sequential:
    polyhal.manual_seed(1)
    parts = [nn.Sequential(nn.Linear(6, 6, device="numpy", dtype=dtype), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*parts)


@given(
    stages=st.integers(1, 4),
    more=st.integers(0, 2),
    rows=st.integers(1, 9),
    parts=st.integers(1, 5),
    schedule=st.sampled_from(SCHEDULES),
)
@settings(max_examples=25)
def test_gradients_equal_the_whole_batch(stages: int, more: int, rows: int, parts: int, schedule: ScheduleName) -> None:
    """In float64, for any number of stages, also with fewer rows than micro-batches, and sizes that differ."""
    model = perceptron(stages + more, "float64")
    whole = copy.deepcopy(model)
    x, y = numbers((rows, 6), 2, "float64"), numbers((rows, 6), 3, "float64")
    expected = F.mse_loss(whole(x), y)
    expected.backward()
    pipeline = Pipeline(model, ["numpy"] * stages, parts, schedule, cuts=list(range(more + 1, stages + more)))
    loss = pipeline.forward_backward(x, y, F.mse_loss)
    close(loss, expected.detach())
    same_gradients(pipeline.module, whole)


@pytest.fixture(scope="module")
def language() -> tuple[GPT, Tensor, Tensor]:
    """Return a GPT with tied weights, and seven rows of text."""
    polyhal.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=30, block_size=8, n_layer=4, n_head=2, n_embd=8), device="numpy")
    words = np.random.default_rng(0).integers(0, 30, (2, 7, 8))
    return model, polyhal.tensor(words[0], device="numpy"), polyhal.tensor(words[1], device="numpy")


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))


CUTS = [f"transformer.h.{i}" for i in (1, 2, 3)]


@pytest.mark.parametrize(("devices", "schedule"), [(SIM, "gpipe"), (MIXED, "1f1b")], ids=["sim", "mixed"])
def test_an_unchanged_gpt_trains_in_four_stages(
    devices: list[str], schedule: ScheduleName, language: tuple[GPT, Tensor, Tensor]
) -> None:
    """With tied weights in the first and last stage, three micro-batches of seven rows, eager and captured."""
    model, ids, targets = language
    whole = copy.deepcopy(model)
    pipeline = Pipeline(copy.deepcopy(model), devices, [3, 2, 2], schedule, cuts=CUTS)
    assert dict(pipeline.named_parameters())["transformer.h.2.ln_1.weight"].device is Device(devices[2])
    optimizers = optim.SGD(whole.parameters(), lr=0.1), optim.SGD(pipeline.parameters(), lr=0.1)

    def step(ids: Tensor, targets: Tensor) -> Tensor:
        optimizers[1].zero_grad()
        loss = pipeline.forward_backward(ids, targets, cross_entropy)
        optimizers[1].step()
        return loss

    captured = polyhal.jit(step)
    for _ in range(4):
        optimizers[0].zero_grad()
        expected = cross_entropy(whole(ids), targets)
        expected.backward()
        optimizers[0].step()
        close(captured(ids, targets), expected.detach())
        same_gradients(pipeline.module, whole)
    (graph,) = captured.graphs
    assert {Device(d).name for d in devices} <= {n.place.device.name for n in graph.nodes}
    assert any(n.place.module == "transformer.h.2.mlp.c_fc" for n in graph.nodes)
    close(pipeline(ids), whole(ids).detach())
    fresh = copy.deepcopy(model)
    fresh.load_state_dict(pipeline.state_dict())
    close(fresh(ids), whole(ids).detach())


def test_outputs_are_differentiable_across_devices(language: tuple[GPT, Tensor, Tensor]) -> None:
    model, ids, targets = language
    whole = copy.deepcopy(model)
    cross_entropy(whole(ids), targets).backward()
    pipeline = Pipeline(copy.deepcopy(model), SIM, 2, cuts=CUTS)
    logits = pipeline(ids)
    cross_entropy(logits, targets.to(logits.device)).backward()
    same_gradients(pipeline.module, whole)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_1f1b_needs_less_memory_than_gpipe(captured: bool) -> None:
    """Of eight micro-batches, stage s of four keeps 4 - s instead of 8: at least 4 + s activations less, or captured 3 + s,

    because the scheduler of a captured GPipe can put off the last micro-batch until the first has come back.
    """
    hidden, rows = 256, 128
    peaks: dict[str, list[int]] = {}
    for schedule in SCHEDULES:
        devices = [Device(name) for name in SIM]
        polyhal.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, 8)) for _ in range(4)]
        pipeline = Pipeline(blocks, devices, 8, schedule)
        x = polyhal.zeros((8 * rows, 8), device=devices[0])
        y = polyhal.zeros((8 * rows, 8), device=devices[3])
        if captured:
            report = polyhal.jit(lambda a, b, p=pipeline: p.forward_backward(a, b, F.mse_loss)).memory_report(x, y)
            peaks[schedule] = [d.arena.nbytes for d in report.devices]
            continue
        pipeline.forward_backward(x, y, F.mse_loss)
        pipeline.zero_grad()
        before = [d.memory_stats().used for d in devices]
        for device in devices:
            device.pool.reset_peak()
        pipeline.forward_backward(x, y, F.mse_loss)
        peaks[schedule] = [d.memory_stats().peak - b for d, b in zip(devices, before, strict=True)]
    activation = 4 * rows * hidden
    gradients = sum(4 * p.size for p in blocks[0].parameters())  # live at the peak of 1F1B, but not of GPipe
    for stage in range(4):
        saved = peaks["gpipe"][stage] - peaks["1f1b"][stage]
        assert saved >= (4 + stage - captured) * activation - gradients, (stage, peaks)


class Skip(nn.Module):
    """The first stage's result is used by the last one, too; a number goes along."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(6, 6, device="numpy") for _ in range(3))

    def forward(self, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        a = self.first(x).tanh()
        b = self.second(a) * scale
        return self.third(b) + a, b


def test_results_may_skip_stages_and_inputs_may_need_gradients() -> None:
    polyhal.manual_seed(0)
    model = Skip()
    whole = copy.deepcopy(model)
    x, y = numbers((5, 6)), numbers((5, 6), 1)
    expected_x = x.clone().requires_grad_()
    own_x = x.clone().requires_grad_()

    def loss_function(outputs: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return F.mse_loss(outputs[0], y) + outputs[1].square().mean()

    loss_function(whole(expected_x * 2, 0.5), y).backward()
    pipeline = Pipeline(model, ["numpy", SIM[0], SIM[1]], 2, cuts=["second", "third"])
    pipeline.forward_backward((own_x * 2, 0.5), y, loss_function)
    same_gradients(model, whole)
    close(own_x.grad, expected_x.grad)


def test_checkpointed_stages_are_recomputed() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(perceptron(3))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = polyhal.checkpoint(part, F.dropout(x, 0.25))
            return x

    model = Checkpointed()
    plain = perceptron(3)
    x, y = numbers((4, 6)), numbers((4, 6), 1)
    results = []
    for module in (model, nn.Sequential(*[nn.Sequential(nn.Dropout(0.25), *part) for part in plain])):
        polyhal.manual_seed(5)
        cuts = ["parts.1", "parts.2"] if module is model else ["1.1", "2.1"]
        pipeline = Pipeline(module, ["numpy", *SIM[:2]], 2, cuts=cuts)
        results.append(pipeline.forward_backward(x, y, F.mse_loss).numpy())
    assert results[0] == results[1]
    same_gradients(model, plain)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_dropout_does_not_depend_on_stages_or_schedule(captured: bool) -> None:
    """A micro-batch draws from a separate section of the random stream, in the order of the model's calls."""
    x, y = numbers((6, 6)), numbers((6, 6), 1)
    losses = []
    for cuts, schedule in (([], "1f1b"), ([1], "1f1b"), ([1, 2], "gpipe"), ([1, 2], "1f1b")):
        model = nn.Sequential(*[nn.Sequential(nn.Dropout(0.5), *part) for part in perceptron(3)])
        pipeline = Pipeline(model, ["numpy", "numpy", "numpy"][: len(cuts) + 1], 3, schedule, cuts=cuts)  # type: ignore[arg-type]
        step: Any = lambda x, y, p=pipeline: p.forward_backward(x, y, F.mse_loss)  # noqa: E731
        step = polyhal.jit(step) if captured else step
        polyhal.manual_seed(7)
        losses.append([step(x, y).item() for _ in range(4)])
    assert losses.count(losses[0]) == len(losses)
    assert len(set(losses[0])) == 4, "every step draws anew"


def test_autocast_holds_in_all_stages() -> None:
    x, y = numbers((4, 6)), numbers((4, 6), 1)
    seen = []

    def loss_function(output: Tensor, y: Tensor) -> Tensor:
        seen.append(output.dtype)
        return F.mse_loss(output.float(), y)

    pipeline = Pipeline(nn.Sequential(*[p[0] for p in perceptron(2)]), ["numpy", "numpy"], 2, cuts=[1])
    with amp.autocast("bfloat16"):
        pipeline.forward_backward(x, y, loss_function)
    assert seen == [polyhal.bfloat16] * 2
    assert all(p.grad is not None and p.grad.dtype is polyhal.float32 for p in pipeline.parameters())


def test_errors_say_what_is_wrong_and_leave_no_thread() -> None:
    x, y = numbers((4, 6)), numbers((4, 6), 1)
    model = perceptron(3)
    with pytest.raises(ValueError, match=r"2 cuts \(0\.1, 2\) for 2 devices"):
        Pipeline(model, ["numpy"] * 2, 2, cuts=["0.1", 2])
    with pytest.raises(ValueError, match="a Sequential without cuts"):
        Pipeline(model, ["numpy"] * 2, 2)
    with pytest.raises(ValueError, match="micro_batches is 0"):
        Pipeline(model, ["numpy"] * 2, 0, cuts=[1])
    divided = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 4, device="numpy"), nn.Linear(4, 4))
    tensor_parallel(divided, ["numpy", "numpy:no_f64"])
    with pytest.raises(ValueError, match=r"0\.self_attn is divided among 2 devices"):
        Pipeline(divided, ["numpy"] * 2, 2, cuts=[1])
    with pytest.raises(TypeError, match="stage 1 is a str"):
        Pipeline([model, "second"], ["numpy"] * 2, 2)  # type: ignore[list-item]
    with pytest.raises(PipelineError, match="1, which begins stage 2, is called in stage 0"):
        Pipeline(model, ["numpy"] * 3, 2, cuts=[2, 1]).forward_backward(x, y, F.mse_loss)
    unused = Skip()
    unused.fourth = nn.Linear(6, 6)
    with pytest.raises(PipelineError, match="ended in stage 0 of 2: fourth was not called"):
        Pipeline(unused, ["numpy"] * 2, 2, cuts=["fourth"]).forward_backward((x, 1.0), y, lambda o, y: o[0].mean())
    pipeline = Pipeline(model, ["numpy"] * 3, 2, cuts=[1, 2])
    with pytest.raises(ShapeError, match=r"shapes \(4, 6\), \(3, 6\)"):
        pipeline.forward_backward(x, y[:3], F.mse_loss)
    with pytest.raises(AutogradError, match=r"returned shape \(2, 6\)"):
        pipeline.forward_backward(x, y, lambda output, y: output - y)
    with pytest.raises(ShapeError, match="a batch of 4 rows"):
        Pipeline(model, ["numpy"] * 3, [2, 1], cuts=[1, 2]).forward_backward(x, y, F.mse_loss)
    with pytest.raises(ZeroDivisionError):
        pipeline.forward_backward(x, y, lambda output, y: 1 / 0)
    assert not [t for t in threading.enumerate() if t.name == "polyhal-pipeline"]


@pytest.mark.parametrize("micro_batches", [2, 6])
def test_the_bubble_on_a_simulated_machine(micro_batches: int) -> None:
    """In virtual time, p stages and m micro-batches take (m + p - 1) / m as long as m micro-batches in a stage without waiting.

    Transfers and the host add less than a tenth: a stage computes for 4 ms at a time, and its inputs are 4 KiB.
    """
    stages, width = 4, 2048
    devices = [Device(f"sim:teaching*4:{i},compute=off") for i in range(stages)]
    backends: list[Any] = [d.backend for d in devices]
    blocks = [nn.Sequential(nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 8)) for _ in range(stages)]
    pipeline = Pipeline(blocks, devices, micro_batches)
    x, y = (polyhal.zeros((512 * micro_batches, 8), device=devices[i]) for i in (0, -1))
    x.requires_grad_()  # so that the first stage has as much work as the others
    pipeline.forward_backward(x, y, F.mse_loss)
    with ExitStack() as stack:
        log = stack.enter_context(backends[0].record_events())
        for backend in backends[1:]:
            stack.enter_context(backend.record_events(log))
        pipeline.forward_backward(x, y, F.mse_loss)
        for device in devices:
            device.synchronize()
    executed = [e for e in log.entries() if e.action == "execute"]
    makespan = max(e.end_ns for e in executed) - min(e.start_ns for e in executed)
    busy = sum(e.end_ns - e.start_ns for e in executed) / stages
    assert 1 <= makespan / (busy * (micro_batches + stages - 1) / micro_batches) < 1.1


def test_large_gradients_are_not_kept_until_the_last_micro_batch() -> None:
    """A captured step adds each to the sum when it is computed: one kernel for all would need eight weights' gradients live."""
    devices = [Device(name) for name in SIM[:2]]
    pipeline = Pipeline([nn.Linear(512, 1024, bias=False), nn.Linear(1024, 512, bias=False)], devices, 8)
    x, y = (polyhal.zeros((8, 512), device=d) for d in devices)
    report = polyhal.jit(lambda x, y: pipeline.forward_backward(x, y, F.mse_loss), warm_up=False).memory_report(x, y)
    weight = 4 * 512 * 1024
    for memory in report.devices:
        assert memory.own < 3 * weight, str(memory)


def test_a_pipeline_runs_on_the_streams_of_its_caller() -> None:
    x, y = numbers((4, 6)), numbers((4, 6), 1)
    model = perceptron(2)
    pipeline = Pipeline(model, SIM[:2], 2, cuts=[1])
    seen = []
    with ExitStack() as stack:
        for name in SIM[:2]:
            stack.enter_context(Device(name).stream())
        expected = [StreamSelection(Device(name)).stream for name in SIM[:2]]

        def loss_function(output: Tensor, y: Tensor) -> Tensor:
            seen.append([StreamSelection(Device(name)).stream for name in SIM[:2]])
            return F.mse_loss(output, y)

        pipeline.forward_backward(x, y, loss_function)
    assert None not in expected
    assert seen == [expected] * 2
