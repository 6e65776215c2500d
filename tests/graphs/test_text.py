"""Graphs written as text and as JSON, and read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from random_graphs import graphs

import polyhal as ph
from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.ir.serialize import build, describe
from polyhal.hal.errors import CorruptFileError


def same(a: Graph, b: Graph) -> None:
    """`repr` tells what `==` does not: NaN equals itself, and 1 is not True."""
    assert repr(a.nodes) == repr(b.nodes)
    assert (a.specs, a.inputs, a.outputs, a.updates, a.names) == (b.specs, b.inputs, b.outputs, b.updates, b.names)


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_text_and_json_give_the_graph_back(graph: Graph) -> None:
    text = str(graph)
    same(parse(text), graph)
    assert str(parse(text)) == text
    same(build(json.loads(json.dumps(describe(graph), allow_nan=False)), "a test", ph.Device), graph)


def test_the_text_of_a_step(numpy_device: ph.Device) -> None:
    layer = ph.nn.Linear(3, 2, device=numpy_device)
    step = ph.jit(lambda x, scale: layer(x.T * scale).sum(), warm_up=False)
    step(ph.ones((3, 4), device=numpy_device), 2.0)
    assert str(step.graphs[0]).splitlines() == [
        "%0: float32[3, 4]  # argument 0",
        "%1: float32 number  # scale",
        "%2: float32[2, 3]  # weight",
        "%3: float32[2]  # bias",
        "on numpy",
        "%4 = permute(%0, axes=(1, 0)): float32[4, 3] strides [1, 4]",
        "%5 = multiply(%4, %1): float32[4, 3]",
        "%6 = linear(%5, %2, %3): float32[4, 2]",
        *str(step.graphs[0]).splitlines()[8:],
    ]
    same(parse(str(step.graphs[0])), step.graphs[0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%1 = exp(%0): float32[2]\nreturn %1", "line 1 .* %0 is not made before it is used"),
        ("%0: float32[2]\n%1 = launch(%0): float32[2]\nreturn %1", "line 2 .* no op 'launch'"),
        ("%0: float32[2]\n%1 = exp(%0): float32[3]\nreturn %1", r"exp gives float32\[2\]; expected float32\[3\]"),
        ("%0: float32[2]\n%1 = sum(%0, axis=(4,), keepdims=False): float32[]\nreturn %1", "axis 4 is out of range"),
        ("%0: float32[2]\n%1 = sum(%0, axis=(0,)): float32[]\nreturn %1", r"expected \['axis', 'keepdims'\]"),
        ("%0: float32[2]\n%1 = exp(%0, %0): float32[2]\nreturn %1", "exp of 2 operands; expected x"),
        ("%0: float32[2]\n%1 = add(%0, None): float32[2]\nreturn %1", "is left out"),
        ("%0: float32[2]\n%2 = exp(%0): float32[2]\nreturn %2", r"defines \[2\]; expected \[1\]"),
        ("%0: float32[2]\n%0 <- %3\nreturn", "%3 is not made"),
        ("%0: float32[2]\n%1 = cast(%0, dtype=polyhal.int8): int8[2]\n%0 <- %1\nreturn", r"%1 is int8\[2\]"),
        ("%0: float32[2]\n%1 = exp(%0) float32[2]\nreturn %1", "found 'float32'; expected ':'"),
        ("%0: float32[2]\n%1 = exp(__import__('os')): float32[2]\nreturn %1", "expected a number"),
        ("%0: quaternion[2]\nreturn %0", "names no dtype"),
        ("on numpy, precision high, speed 3\nreturn", "no setting 'speed'"),
        ("%0: float32[2]", "the results are missing"),
        ("return\n%0: float32[2]", "after the results"),
    ],
)
def test_text_that_is_no_graph(text: str, problem: str) -> None:
    with pytest.raises(CorruptFileError, match=problem):
        parse(text)
