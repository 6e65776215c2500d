"""Programs of captured steps: their contents, their files, and refusals."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import export
from polyhal.export.numbers import NumberTable
from polyhal.export.operations import OPERATIONS
from polyhal.export.program import BufferUse, NamedNumber, NumberOperation, NumberReference, ProgramLaunch, StreamNumber
from polyhal.export.program_file import decode_program, encode_program
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar, derive
from polyhal.hal.errors import CorruptFileError, DeviceUnavailableError, ExportError, IncompatibleFileError, ShapeError
from polyhal.hal.ops.lowering import Regions
from polyhal.hal.ops.opdef import OPS
from tests.export.steps import TrainingStep

WEB = "described:webgpu,record"


@pytest.fixture(scope="module")
def training() -> TrainingStep:
    return TrainingStep()


@pytest.fixture(scope="module")
def program(training: TrainingStep) -> export.StepProgram:
    return export.record_program(training.step, WEB, "webgpu", outputs=["loss"])


def test_a_training_step_has_named_inputs_outputs_and_state(
    program: export.StepProgram, training: TrainingStep
) -> None:
    assert [(t.name, t.dtype, t.shape) for t in program.inputs] == [("x", "float32", (8, 16)), ("y", "int32", (8,))]
    assert [t.name for t in program.outputs] == ["loss"]
    weights = {k: v.numpy() for k, v in training.model.state_dict().items()}
    for tensor in program.state:
        buffer = program.buffers[tensor.buffer]
        assert buffer.role == "state"
        if tensor.name in weights:
            start, end = tensor.span()
            stored = np.frombuffer(buffer.content[start:end], np.float32).reshape(tensor.shape)
            np.testing.assert_array_equal(stored, weights.pop(tensor.name))
    assert not weights
    assert {"0.weight.exp_avg", "3.bias.exp_avg_sq"} <= {t.name for t in program.state}


def test_no_launch_binds_a_written_buffer_twice_or_more_than_eight(program: export.StepProgram) -> None:
    """Limits of WebGPU. Exported for a browser, an op in place has one binding."""
    in_place = 0
    for launch in program.launches:
        uses = [a for a in launch.arguments if isinstance(a, BufferUse)]
        assert len(uses) <= 8
        written = [u.buffer for u in uses if u.access != "read"]
        bound = [u.buffer for u in uses]
        assert all(bound.count(b) == 1 for b in written)
        source = program.kernels[launch.kernel].source
        assert all(f"@binding({u.binding}) var<storage, {u.access}>" in source for u in uses)
        in_place += launch.op == "relu_grad" and len(uses) < 3
    assert in_place == 1
    texts = [k.source for k in program.kernels]
    assert not any(word in t for t in texts for word in ("i64", "u64", "enable ", "subgroup", "var<immediate>"))


def test_features_are_those_that_were_asked_for(training: TrainingStep, program: export.StepProgram) -> None:
    assert polyhal.Device("described:webgpu") is not polyhal.Device(WEB)
    assert program.features == ()
    wide = export.record_program(training.step, f"{WEB},f16", "webgpu")
    assert wide.features == ("shader-f16",)
    assert all(k.source.lstrip().startswith("enable f16;") for k in wide.kernels)
    with pytest.raises(DeviceUnavailableError, match="unknown option 'record,f64'"):
        polyhal.Device(f"{WEB},f64")


def test_numbers_are_those_of_the_next_runs(program: export.StepProgram, training: TrainingStep) -> None:
    step = next(n for n in program.numbers if isinstance(n, NamedNumber) and n.name == "step")
    assert (step.value, step.grows) == (3, 1)
    assert any(isinstance(n, StreamNumber) and n.start is None for n in program.numbers)
    (stream,) = program.streams
    assert stream.blocks == 8 * 24 // 4
    assert stream.seed == 0


def test_numbers_of_an_optimizer_are_arithmetic() -> None:
    """1 / sqrt(1 - 0.999^t), as the rule of Adam computes it, against the same formula in doubles."""
    from polyhal.hal.ops.optim.rule_program import HOST

    def rule(beta: Any, t: Any, functions: Any = HOST) -> tuple[Any, ...]:
        return (functions["divide"](1.0, functions["sqrt"](functions["correction"](beta, t))), 2.0)

    table = NumberTable()
    t = RuntimeScalar(lambda: 7, "t", 1)
    first, second = derive(rule, (0.999, t), 2)
    index, constant = table.add(first), table.add(second)
    values = _evaluated(table)
    assert values[index] == 1 / math.sqrt(1 - 0.999**7)
    assert values[constant] == 2.0
    assert not table.unknown


def _evaluated(table: NumberTable) -> list[Any]:
    """Return the values of a table's numbers, as a runtime computes them."""
    values: list[Any] = []
    for n in table.numbers:
        if isinstance(n, NumberOperation):
            operands = [values[x.number] if isinstance(x, NumberReference) else x.value for x in n.operands]
            values.append(OPERATIONS[n.operation](*operands))
        else:
            assert isinstance(n, NamedNumber)
            values.append(n.value)
    return values


def test_a_file_holds_the_program(program: export.StepProgram, tmp_path: Path) -> None:
    export.save_program(program, tmp_path / "program")
    assert export.load_program(tmp_path / "program") == program


def test_a_saved_graph_is_exported_alike(training: TrainingStep, program: export.StepProgram, tmp_path: Path) -> None:
    path = polyhal.save_graph(training.step, tmp_path / "step.graph")
    other = export.record_program(path, WEB, "webgpu", name="step", inputs=["x", "y"], outputs=["loss"])
    assert other.kernels == program.kernels
    assert [c.op for c in other.launches] == [c.op for c in program.launches]


@pytest.mark.parametrize(
    "name", ["role", "nbytes", "kernel", "buffer", "offset", "language", "grid", "bytes", "sha256"]
)
def test_damaged_files_name_the_entry(program: export.StepProgram, name: str) -> None:
    header, contents = encode_program(program)
    header = copy.deepcopy(header)
    damaged: dict[str, tuple[dict[str, Any], Any, str]] = {
        "role": (header["buffers"][0], "hidden", r"buffers\[0\]: role 'hidden'"),
        "nbytes": (header["buffers"][0], -1, r"buffers\[0\]: -1; expected a whole number"),
        "kernel": (header["commands"][0], 99, r"commands\[0\]: kernel 99 of"),
        "buffer": (header["inputs"][0], 1000, r"inputs\[0\]: buffer 1000 of"),
        "offset": (header["inputs"][0], 9999, r"inputs\[0\]: x reaches bytes 9999 to"),
        "language": (header["kernels"][0], "perl", r"kernels\[0\]: language 'perl'"),
        "grid": (header["commands"][0], [0, 1], r"commands\[0\]: 0; expected a whole number"),
        "bytes": (header["commands"][0]["arguments"][-1], "zz", r"commands\[0\]: ValueError"),
        "sha256": (header["contents"], "0", "contents: the contents of the buffers were altered"),
    }
    entry, value, text = damaged[name]
    entry[name] = value
    with pytest.raises(CorruptFileError, match=text):
        decode_program(header, contents, "damaged")


def test_groups_and_grids_of_opencl_have_the_same_axes(program: export.StepProgram) -> None:
    header, contents = encode_program(program)
    header = copy.deepcopy(header)
    for kernel in header["kernels"]:
        kernel |= {"language": "opencl-c", "group": []}
    with pytest.raises(CorruptFileError, match=r"commands\[0\]: a grid of \d axes, of groups of 0"):
        decode_program(header, contents, "damaged")


def test_numbers_have_digits_that_every_runtime_reads(program: export.StepProgram) -> None:
    header, contents = encode_program(program)
    header = copy.deepcopy(header)
    header["streams"][0]["seed"] = "٣"
    with pytest.raises(CorruptFileError, match=r"streams\[0\]: .*expected a decimal integer"):
        decode_program(header, contents, "damaged")


def _first(entries: list[Any], key: str) -> Any:
    """Return the first entry that has a key."""
    return next(x for x in entries if key in x)


def _bind_twice(header: Any) -> None:
    uses = next(u for c in header["commands"] if len(u := [a for a in c["arguments"] if "buffer" in a]) > 1)
    written = next(u for u in uses if u["access"] != "read")
    other = next(u for u in uses if u is not written)
    other |= {"buffer": written["buffer"], "offset": 0, "nbytes": 4}


HOSTILE: dict[str, tuple[Callable[[Any], object], str]] = {
    "a written buffer bound twice": (_bind_twice, r"commands\[\d+\]: buffer \d+ is bound 2 times"),
    "operands": (
        lambda h: _first(h["numbers"], "operation")["operands"].extend([{"number": 0}] * 2),
        "operands; expected",
    ),
    "no operands": (lambda h: _first(h["numbers"], "operation")["operands"].clear(), "of 0 operands; expected"),
    "prototype": (lambda h: h["state"][0].update(name="__proto__"), r"state\[0\]: .*'__proto__', which is reserved"),
    "metadata": (lambda h: h["state"][0].update(name="__metadata__"), "'__metadata__', which is reserved"),
    "empty name": (lambda h: h["inputs"][0].update(name=""), "a name of 0 characters"),
    "long name": (lambda h: _first(h["numbers"], "name").update(name="n" * 1001), "a name of 1001 characters"),
    "surrogate": (lambda h: h["outputs"][0].update(name="\ud800"), "UTF-8 cannot hold"),
    "name of the step": (lambda h: h.update(name=""), "name: .*a name of 0 characters"),
    "elements": (lambda h: h["outputs"][0].update(shape=[2**40, 2**40], strides=[0, 0]), "expected a whole number"),
    "memory": (lambda h: [b.update(nbytes=2**53 - 1) for b in h["buffers"]], "expected a whole number"),
    "invocations": (lambda h: h["commands"][0].update(grid=[2**30, 2**30, 1]), "expected a whole number"),
    "groups": (lambda h: h["commands"][0].update(grid=[65536, 1, 1]), "expected at most 65535 groups"),
    "binding": (lambda h: h["commands"][0]["arguments"][0].update(binding=1000), "below 1000"),
    "digits": (
        lambda h: _first(h["numbers"], "name").update(type="float", value="1_0"),
        "'1_0'; expected a decimal number",
    ),
    "spaces": (
        lambda h: _first(h["commands"][0]["arguments"], "bytes").update(bytes="0000 0000"),
        "bytes of parameters",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(program: export.StepProgram, case: str) -> None:
    """Values of the right type that a runtime would overflow, bind or index by."""
    header, contents = encode_program(program)
    header = copy.deepcopy(header)
    change, text = HOSTILE[case]
    change(header)
    with pytest.raises(CorruptFileError, match=text):
        decode_program(header, contents, "hostile")


def test_reserved_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    step = polyhal.jit(lambda x: x + 1)
    for _ in range(3):
        step(polyhal.ones(2, device="numpy"))
    with pytest.raises(ValueError, match="'__proto__', which is reserved"):
        export.webgpu(step, tmp_path / "page.html", outputs=["__proto__"])
    assert not (tmp_path / "page.html").exists()


def test_state_in_the_same_memory_has_all_of_its_contents(tmp_path: Path) -> None:
    whole = polyhal.tensor(np.arange(600, dtype=np.float32), device="numpy")
    first, last = whole[:2], whole[300:302]
    step = polyhal.jit(lambda x: (first + x, last + x))
    for _ in range(3):
        step(polyhal.ones(2, device="numpy"))
    made = export.record_program(step, WEB, "webgpu")
    stored = []
    for tensor in made.state:
        start, end = tensor.span()
        stored.append(np.frombuffer(made.buffers[tensor.buffer].content[start:end], np.float32).tolist())
    assert sorted(stored) == [[0.0, 1.0], [300.0, 301.0]]


@pytest.mark.parametrize("word", [0, 1])
def test_words_of_seeds_are_operations(word: int) -> None:
    """Ops on 32-bit words take the words of a seed, which a program computes without Python."""
    (regions,) = OPS["number_word"].lowering
    assert isinstance(regions, Regions)
    (region,) = regions.rule((), (), {"word": word})
    assert region.of is not None
    for seed in (7, (1 << 62) + 0xFFFF0001, -2, (1 << 64) - 1):
        table = NumberTable()
        scalar: Any = RuntimeScalar(functools.partial(int, seed), "seed")
        number: Any = region.of(scalar)
        index = table.add(number)
        expected = np.array([seed % (1 << 64)], np.uint64).view(np.int32)[word]
        assert not table.unknown
        assert _evaluated(table)[index] == expected


@pytest.mark.parametrize("header", [None, [], {}, {"format": "polyhal-program", "schema": 99}])
def test_other_files_are_refused(header: Any) -> None:
    with pytest.raises(IncompatibleFileError):
        decode_program(header, b"", "other")


def test_every_leaf_of_the_header_is_checked(program: export.StepProgram) -> None:
    """A value of another type anywhere raises a typed error, or changes nothing that a runtime indexes by."""
    header, contents = encode_program(program)
    for path in _leaves(header):
        damaged = copy.deepcopy(header)
        at: Any = damaged
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = [None]
        with pytest.raises((CorruptFileError, IncompatibleFileError)):
            decode_program(damaged, contents, "damaged")


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data[:2])
    for key, value in items:
        if isinstance(value, (dict, list)):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def test_everything_that_cannot_be_exported_is_listed_at_once() -> None:
    def first(x: np.ndarray) -> np.ndarray:
        return x

    def second(x: np.ndarray) -> np.ndarray:
        return x

    @polyhal.jit
    def step(x: polyhal.Tensor) -> polyhal.Tensor:
        (y,) = polyhal.host_call(first, x, results=[((3,), polyhal.float32)])
        (z,) = polyhal.host_call(second, y * 2, results=[((3,), polyhal.float32)])
        return z.sum()

    for _ in range(3):
        step(polyhal.ones(3, device="numpy"))
    with pytest.raises(ExportError) as caught:
        export.record_program(step, WEB, "webgpu")
    lines = str(caught.value).split("\n")
    assert sum("a Python function is called: host_call" in line and "test_program.py" in line for line in lines) == 2


def test_float64_is_refused_with_its_line() -> None:
    step = polyhal.jit(lambda x: (x * 2).sum())
    for _ in range(3):
        step(polyhal.tensor(np.ones(3), device="numpy"))
    with pytest.raises(ExportError, match=r"computes in float64, which webgpu does not have") as caught:
        export.record_program(step, WEB, "webgpu")
    assert "test_program.py" in str(caught.value)


def test_names_must_fit(training: TrainingStep) -> None:
    with pytest.raises(ShapeError, match="expected 2 different names"):
        export.record_program(training.step, WEB, "webgpu", inputs=["x"])


def test_integers_that_do_not_fit_are_refused() -> None:
    table = polyhal.tensor(np.array([1, 2**40]), device="numpy")
    step = polyhal.jit(lambda x: x + table)
    for _ in range(3):
        step(polyhal.tensor(np.array([1, 2]), device="numpy"))
    with pytest.raises(ExportError, match="int64 numbers that int32 does not hold"):
        export.record_program(step, WEB, "webgpu")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + (1 << 40),
        lambda x: x < (1 << 40),
        lambda x: x.clamp(max=1 << 40),
        lambda x: x - 3_000_000_000,
        lambda x: polyhal.where(x > 0, x, 1 << 40),
        lambda x: x + polyhal.full((2,), 1 << 40, dtype=polyhal.int64, device="numpy"),
    ],
)
def test_literals_that_do_not_fit_are_refused(function: Callable[[polyhal.Tensor], polyhal.Tensor]) -> None:
    step = polyhal.jit(function)
    for _ in range(3):
        step(polyhal.tensor(np.array([1, 2]), device="numpy"))
    with pytest.raises(ExportError, match="int32 does not hold") as caught:
        export.record_program(step, WEB, "webgpu")
    assert "test_program.py" in str(caught.value)


def test_floats_take_literals_of_any_size() -> None:
    step = polyhal.jit(lambda x: x * (1 << 40))
    for _ in range(3):
        step(polyhal.ones(2, device="numpy"))
    assert export.record_program(step, WEB, "webgpu").commands


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_loss_whose_gradient_is_constant(reduce: str) -> None:
    """The gradient of each row is one expanded number, which is known while the step is planned."""
    model = polyhal.nn.Linear(4, 2).to("numpy")
    optimizer = polyhal.optim.SGD(model.parameters(), lr=0.5)

    @polyhal.jit
    def step(x: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = getattr(model(x), reduce)()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(polyhal.ones((3, 4), device="numpy"))
    assert [t.name for t in export.record_program(step, WEB, "webgpu").state]


def test_results_have_names_of_their_own(tmp_path: Path) -> None:
    step = polyhal.jit(lambda x: {"a.b": x + 1, "a": {"b": x * 2}})
    for _ in range(3):
        step(polyhal.ones(2, device="numpy"))
    made = export.record_program(step, WEB, "webgpu")
    assert [t.name for t in made.outputs] == ["a.b", "a.b~2"]
    export.save_program(made, tmp_path / "program")
    assert export.load_program(tmp_path / "program").outputs == made.outputs


def test_a_page_needs_a_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no steps"):
        export.webgpu({}, tmp_path / "page.html")


def test_launches_come_in_the_order_of_the_ops(program: export.StepProgram) -> None:
    ops = [c.op for c in program.commands if isinstance(c, ProgramLaunch)]
    assert ops.index("mean_cross_entropy") < ops.index("relu_grad") < ops.index("adam_step")
