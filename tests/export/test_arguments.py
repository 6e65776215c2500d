"""Arguments and results of exported steps: their names, and tensors without elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import export
from polyhal.export.program import NamedNumber
from polyhal.hal.errors import CorruptFileError

WEB = "described:webgpu,record"


def _tensor(*shape: int) -> polyhal.Tensor:
    return polyhal.tensor(np.ones(shape, np.float32), device="numpy")


def _recorded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    step = polyhal.jit(function, warm_up=False)
    step(*args, **kwargs)
    return step


def _of_pair(pair: Any, k: float) -> Any:
    return pair[0] * k + pair[1]


def _of_batch(batch: Any, *others: Any, scale: float, **named: Any) -> Any:
    return (batch["x"] + batch["y"] + others[0] + named["last"]) * scale


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[str], list[str]]] = {
    "as many tensors as parameters": (_of_pair, ((_tensor(2), _tensor(2)), 2.0), {}, ["pair.0", "pair.1"], ["k"]),
    "keys, others, and keywords": (
        _of_batch,
        ({"x": _tensor(2), "y": _tensor(2)}, _tensor(2)),
        {"last": _tensor(2), "scale": 0.5},
        ["batch.x", "batch.y", "others.0", "last"],
        ["scale"],
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_inputs_and_numbers_are_named_by_parameter_and_place(name: str, tmp_path: Path) -> None:
    function, args, kwargs, inputs, numbers = CASES[name]
    step = _recorded(function, *args, **kwargs)
    for source in (step, polyhal.save_graph(step, tmp_path / "step.safetensors")):
        program = export.record_program(source, WEB, "webgpu")
        assert [x.name for x in program.inputs] == inputs
        assert [x.name for x in program.numbers if isinstance(x, NamedNumber)] == numbers


def test_names_of_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = polyhal.save_graph(_recorded(_of_pair, (_tensor(2), _tensor(2)), 2.0), tmp_path / "step.safetensors")
    polyhal.save(polyhal.load(path, "numpy") | {"arguments": [1, 2]}, path)
    with pytest.raises(CorruptFileError, match=r"arguments have the names \[1, 2\]"):
        polyhal.load_graph(path, "numpy")


def test_tensors_without_elements_need_no_launch() -> None:
    """Sums over no elements are constants, and an op without results is no work of the host."""

    def step(x: Any, e: Any) -> Any:
        return {"joined": polyhal.concat([x, e]) * 2, "none": x[:0] + 1, "sum": e.sum(0) + x[0], "exp": e.exp()}

    program = export.record_program(_recorded(step, _tensor(3, 4), _tensor(0, 4)), WEB, "webgpu")
    assert [(x.name, x.shape) for x in program.inputs] == [("x", (3, 4)), ("e", (0, 4))]
    shapes = [("joined", (3, 4)), ("none", (0, 4)), ("sum", (4,)), ("exp", (0, 4))]
    assert [(x.name, x.shape) for x in program.outputs] == shapes
    assert {x.op for x in program.launches} <= {"multiply", "add", "concat", "copy", "contiguous"}


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"/page\.html'$"):
        export.webgpu(_recorded(lambda x: x + 1, _tensor(2)), tmp_path / "page.html")
