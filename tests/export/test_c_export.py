"""A training step as a C program: equal to Python's steps to the last bit, its state, and its errors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import polyhal
from polyhal import export
from polyhal.export import c_text
from polyhal.export.c_files import STATE_FORMAT
from polyhal.hal.errors import CorruptFileError, ExportError
from polyhal.hal.system.discovery.registry import registry
from tests.export.c_builds import COMPILER, build, run, sanitized
from tests.export.steps import TrainingStep

pytestmark = [
    pytest.mark.skipif(not registry().probe("opencl"), reason="needs an OpenCL device"),
    pytest.mark.skipif(COMPILER is None, reason="needs gcc or clang"),
]
NO_OPENCL, NO_DEVICE, OTHER_DEVICE, FILE = 2, 3, 4, 6
"""Codes of polyhal_step.h."""


@pytest.fixture(scope="module")
def training() -> TrainingStep:
    return TrainingStep("opencl:0")


@pytest.fixture(scope="module")
def program(training: TrainingStep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step as it is after three runs, compiled with sanitizers and without a warning."""
    folder = export.c(training.step, tmp_path_factory.mktemp("c") / "step", outputs=["loss"])
    return build(folder)


def test_c_trains_as_python_does_and_python_reads_its_state(
    training: TrainingStep, program: Path, tmp_path: Path
) -> None:
    inputs = [[training.x.numpy(), training.y.numpy()]] * 3
    saved = tmp_path / "saved.safetensors"
    code, messages, outputs = run(program, inputs, save=saved)
    assert (code, messages) == (0, "")
    expected = np.array([training.run() for _ in inputs], np.float32)
    np.testing.assert_array_equal(np.frombuffer(outputs, np.float32), expected)
    state = polyhal.load(saved, "numpy")
    assert state["format"] == STATE_FORMAT
    for name, weight in training.model.state_dict().items():
        np.testing.assert_array_equal(state["state"][name].numpy(), weight.numpy())
    assert state["numbers"]["step"] == 6  # three runs of each


@pytest.mark.parametrize("name", ["main", "polyhal_step", "Main"])
def test_names_of_files_of_every_export_are_refused(name: str, training: TrainingStep, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="as of a file of every export"):
        export.c(training.step, tmp_path / "step", name=name)


def test_names_differ_in_upper_case_as_well() -> None:
    assert c_text.identifiers(["x", "X", "x", "x_2"], "input") == ["x", "X_2", "x_3", "x_2_2"]


@pytest.mark.slow
def test_a_run_continues_from_saved_state(training: TrainingStep, tmp_path: Path) -> None:
    """Weights, step count and dropout continue where another program stopped."""
    program = build(export.c(training.step, tmp_path / "step"))
    inputs = [[training.x.numpy(), training.y.numpy()]]
    saved, altered = tmp_path / "saved.safetensors", tmp_path / "altered.safetensors"
    expected = np.array([training.run(), training.run()], np.float32)
    code, messages, first = run(program, inputs, save=saved)
    assert (code, messages) == (0, "")
    code, messages, second = run(program, inputs, load=saved)
    assert (code, messages) == (0, "")
    np.testing.assert_array_equal(np.frombuffer(first + second, np.float32), expected)
    data = bytearray(saved.read_bytes())
    data[-200] ^= 1
    altered.write_bytes(data)
    with pytest.raises(CorruptFileError, match="was altered"):
        polyhal.load(altered, "numpy")
    other = tmp_path / "other.safetensors"
    polyhal.save({"w": polyhal.ones(3, device="numpy")}, other)
    missing = tmp_path / "missing.safetensors"
    reasons = {altered: " was altered: its SHA-256 is ", other: "is damaged: it has only", missing: "cannot be opened"}
    for path, expected_text in reasons.items():
        code, messages, _ = run(program, [], load=path)
        assert code == FILE
        assert str(path) in messages
        assert expected_text in messages


def test_a_missing_device_or_loader_has_a_code_and_a_message(program: Path) -> None:
    code, messages, _ = run(program, [], device="no such device")
    assert code == NO_DEVICE
    assert 'no OpenCL device is named "no such device"; the devices are: ' in messages
    code, messages, _ = run(program, [], environment={"POLYHAL_OPENCL_LIBRARY": "/nowhere.so"})
    assert code == NO_OPENCL
    assert "/nowhere.so cannot be loaded: install an OpenCL driver" in messages


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("state.safetensors", "flipped"),
        ("kernels/00", "cut"),
        ("state.safetensors", "longer"),
        ("kernels/00", "absent"),
    ],
)
def test_damaged_files_are_noticed(program: Path, file: str, damage: str) -> None:
    path = next(p for p in program.parent.rglob("*") if str(p.relative_to(program.parent)).startswith(file))
    data = path.read_bytes()
    changed = bytearray(data)
    changed[-5] ^= 1
    try:
        if damage == "absent":
            path.unlink()
        else:
            path.write_bytes({"cut": data[:-7], "flipped": bytes(changed), "longer": data + b"x"}[damage])
        code, messages, _ = run(program, [])
    finally:
        path.write_bytes(data)
    assert code == FILE
    expected = {"cut": "is damaged: it has only", "longer": "it has more than", "absent": "cannot be opened"}
    assert str(path) in messages
    assert expected.get(damage, "was altered: its SHA-256 is") in messages


TYPED = """\
#include "step.h"
#include <stdio.h>

static const float x[STEP_INPUT_X_COUNT] = {1.0f};
static const int64_t y[STEP_INPUT_Y_COUNT] = {1};

int main(void) {
    float losses[3] = {0};
    polyhal_step *step;
    step_inputs inputs = {x, y};
    step_outputs outputs = {losses};
    double lr = 0;
    int code = step_init(&step, NULL);
    if (code == POLYHAL_OK) code = step_set_number(step, "lr", 0.0);
    if (code == POLYHAL_OK) code = step_run(step, &inputs, &outputs);
    if (code == POLYHAL_OK) code = step_state_save(step, "saved.safetensors");
    if (code == POLYHAL_OK) code = step_set_number(step, "lr", 1.0);
    outputs.loss = NULL;
    if (code == POLYHAL_OK) code = step_run(step, &inputs, &outputs);
    outputs.loss = losses + 1;
    if (code == POLYHAL_OK) code = step_run(step, &inputs, &outputs);
    if (code == POLYHAL_OK) code = step_state_load(step, "saved.safetensors");
    if (code == POLYHAL_OK) code = polyhal_step_get_number(step, "lr", &lr);
    if (code == POLYHAL_OK) code = step_run(step, &inputs, &outputs);
    printf("%d %s %d %g\\n", code, step_last_error(step), losses[0] == losses[1], lr);
    code = step_set_number(step, "absent", 1.0);
    printf("%d %s\\n", code, step_last_error(step));
    step_free(step);
    return 0;
}
"""


@pytest.mark.slow
def test_the_functions_of_the_header(tmp_path: Path) -> None:
    """Without dropout, and with a learning rate of 0 that the saved state keeps, a run repeats the loss of the first."""
    training = TrainingStep("opencl:0", dropout=0.0)
    folder = export.c(training.step, tmp_path / "step", outputs=["loss"], embed=True)
    (folder / "typed.c").write_text(TYPED)
    program = build(folder, main=folder / "typed.c")
    done = subprocess.run(
        [str(program)], cwd=tmp_path, capture_output=True, text=True, env=sanitized(tmp_path), timeout=300
    )
    assert done.stdout == "0  1 0\n9 the step has no number named absent\n"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_narrow_dtypes_and_random_numbers_without_inputs(tmp_path: Path) -> None:
    """Random numbers continue where the step was exported."""
    generator = polyhal.random.Generator(3)
    x = polyhal.tensor(np.arange(6).reshape(2, 3), dtype=polyhal.float16, device="opencl:0")
    narrow = polyhal.jit(lambda x: {"y": x / 3, "large": x > 2, "sum": x.sum().astype(polyhal.bfloat16)})
    drawn = polyhal.jit(lambda: polyhal.rand(5, device="opencl:0", generator=generator))
    for _ in range(3):
        results = narrow(x)
        drawn()
    code, messages, outputs = run(build(export.c(narrow, tmp_path / "narrow", name="step")), [[x.numpy()]])
    assert (code, messages) == (0, "")
    assert outputs == b"".join(results[name].numpy().tobytes() for name in ("y", "large", "sum"))
    program = build(export.c(drawn, tmp_path / "drawn", name="step", embed=True))
    expected = np.concatenate([drawn().numpy() for _ in range(2)])
    code, messages, outputs = run(program, [[], []])
    assert (code, messages) == (0, "")
    np.testing.assert_array_equal(np.frombuffer(outputs, np.float32), expected)


@pytest.mark.slow
def test_compiled_kernels_are_kept_and_damaged_ones_compiled_again(training: TrainingStep, tmp_path: Path) -> None:
    program = build(export.c(training.step, tmp_path / "step"))
    cache = tmp_path / "cache"
    cache.mkdir()
    inputs = [[training.x.numpy(), training.y.numpy()]]
    code, messages, expected = run(program, inputs, environment={"STEP_CACHE": str(cache)})
    assert (code, messages) == (0, "")
    files = sorted(cache.iterdir())
    assert len(files) == len(list((tmp_path / "step" / "kernels").iterdir()))
    kept = {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in files}
    files[0].write_bytes(kept[files[0]][0][:-9] + b"different")
    files[1].write_bytes(b"short")
    code, messages, outputs = run(program, inputs, environment={"STEP_CACHE": str(cache)})
    assert (code, messages, outputs) == (0, "", expected)
    assert [f for f in files if f.stat().st_mtime_ns == kept[f][1]] == files[2:]
    code, messages, outputs = run(program, inputs, environment={"STEP_CACHE": str(tmp_path / "absent")})
    assert (code, messages, outputs) == (0, "", expected)


ARITHMETIC = {
    "add": lambda s, n: s + n,
    "subtract": lambda s, n: 7 - s * n,
    "divide": lambda s, n: (n + 0.5) / s,
    "floor_divide": lambda s, n: (s * n) // 0.3,
    "floor_divide_integers": lambda s, n: (n - 9) // 4,
    "modulo": lambda s, n: (s * n) % 0.7,
    "modulo_integers": lambda s, n: (n - 9) % 4,
    "modulo_negative": lambda s, n: (n - 2) % -5,
    "power": lambda s, n: 0.999**n,
    "power_integers": lambda s, n: (n - 5) ** 3,
    "power_inverse": lambda s, n: (n + 1) ** -2,
    "negative": lambda s, n: -s,
    "absolute": lambda s, n: abs(n - 12) + abs(s - 4),
}
"""Numbers of a float that is constant and negative, and of an integer that grows."""


@pytest.mark.slow
def test_numbers_are_computed_as_python_computes_them(tmp_path: Path) -> None:
    values = {"s": -1.7, "n": 3}
    x = polyhal.tensor(np.zeros(1, np.float32), device="opencl:0")

    @polyhal.jit(warm_up=False)
    def step(x: polyhal.Tensor) -> dict[str, polyhal.Tensor]:
        s = polyhal.runtime_scalar(lambda: values["s"], "s")
        n = polyhal.runtime_scalar(lambda: values["n"], "n", 1)
        return {name: x + formula(s, n) for name, formula in ARITHMETIC.items()}

    for _ in range(2):
        step(x)
    code, messages, outputs = run(build(export.c(step, tmp_path / "step")), [[x.numpy()]] * 8)
    assert (code, messages) == (0, "")
    rows = np.frombuffer(outputs, np.float32).reshape(8, len(ARITHMETIC))
    for k, row in enumerate(rows, values["n"] + 1):  # a number grows before a run
        expected = {name: np.float32(formula(values["s"], k)) for name, formula in ARITHMETIC.items()}
        assert dict(zip(ARITHMETIC, row, strict=True)) == expected


@pytest.mark.slow
def test_a_transposed_result_is_refused(tmp_path: Path) -> None:
    turned = polyhal.jit(lambda x: x.T)
    for _ in range(3):
        turned(polyhal.ones((2, 3), device="opencl:0"))
    with pytest.raises(ExportError, match=r"the output result has strides \[1, 3\]: make it contiguous"):
        export.c(turned, tmp_path / "step", name="step")
    assert not (tmp_path / "step").exists()


@pytest.mark.slow
def test_a_device_of_another_name_is_refused(training: TrainingStep, tmp_path: Path) -> None:
    folder = export.c(training.step, tmp_path / "step", embed=True)
    tables = (folder / "step.c").read_text()
    names = polyhal.Device("opencl:0").backend.device_names()
    assert f'"{names.device}"' in tables
    (folder / "step.c").write_text(tables.replace(f'"{names.device}"', '"Another card"'))
    assert not list(folder.glob("*.safetensors"))
    code, messages, _ = run(build(folder), [], device=names.platform)
    assert code == OTHER_DEVICE
    assert re.search(r'is not the device of the export, ".* / Another card": its kernels and their sizes', messages)


def test_only_opencl_devices_and_names_of_c_are_accepted(training: TrainingStep, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected an OpenCL device"):
        export.c(training.step, tmp_path, device="numpy")
    with pytest.raises(ValueError, match="identifier of C"):
        export.c(training.step, tmp_path, name="while")


def test_names_become_different_identifiers() -> None:
    assert c_text.identifiers(["x", "a.b", "a_b", "0", "float", "é"], "input") == [
        "x",
        "a_b",
        "a_b_2",
        "input_0",
        "float_",
        "input_",
    ]
    assert c_text.string('a"\\?\n\té') == r'"a\"\\\?\n\011\303\251"'
