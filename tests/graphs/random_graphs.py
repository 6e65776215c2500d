"""Graphs of random ops, for tests of writing and reading back."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from polyhal.hal import dtypes
from polyhal.hal.compile.ir.graph import Graph, NodeOrigin, Value
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.layout import ScalarSpec, Spec, contiguous, contiguous_strides, place
from polyhal.hal.ops import OPS

NAMES = st.text(max_size=8) | st.sampled_from(["mlp.0.weight", '"quoted"', "a  # b", " padded "])
NUMBERS = st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-30, 3, -7, True])
_ORIGINS = st.none() | st.builds(
    lambda precision, exact, module, again: NodeOrigin(Device("numpy"), (precision, exact), module, again),
    st.sampled_from(["highest", "high"]),
    st.booleans(),
    NAMES,
    st.integers(0, 2),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph of one to eight nodes on inputs of shape (2, 3), with updates, results, names and origins."""
    graph = Graph()
    for _ in range(draw(st.integers(1, 4))):
        strides = draw(st.sampled_from([contiguous_strides((2, 3)), (1, 2), (6, 2), (0, 1)]))
        tensor = Spec(draw(st.sampled_from([dtypes.float32, dtypes.float16])), (2, 3), strides, draw(st.booleans()))
        spec = draw(st.sampled_from([tensor, tensor, ScalarSpec(dtypes.int64), ScalarSpec(dtypes.float32)]))
        name = draw(NAMES)
        if name:
            graph.names[len(graph.specs)] = name
        graph.add_input(spec)
    graph.add_input(contiguous(dtypes.float32, (2, 3)))
    for _ in range(draw(st.integers(1, 8))):
        _grow(draw, graph)
    made = range(graph.inputs, len(graph.specs))
    graph.outputs = tuple(draw(st.lists(st.sampled_from(made), max_size=3)))
    same = [v for v in made if graph.specs[v][:2] == graph.specs[graph.inputs - 1][:2]]  # type: ignore[index]
    if same and draw(st.booleans()):
        graph.updates[graph.inputs - 1] = draw(st.sampled_from(same))
    return graph


def _grow(draw: st.DrawFn, graph: Graph) -> None:
    """Add one node."""
    tensors = [v for v, s in enumerate(graph.specs) if isinstance(s, Spec) and s.shape == (2, 3)]
    x, y = (Value(draw(st.sampled_from(tensors))) for _ in range(2))
    number = draw(NUMBERS | st.sampled_from([Value(v) for v, s in enumerate(graph.specs) if s.shape == ()] or [2]))  # type: ignore[union-attr]
    name, inputs, params = draw(
        st.sampled_from(
            [
                ("add", (x, y), ()),
                ("multiply", (number, y), ()),
                ("clip", (x, None, number), ()),
                ("gelu", (x,), ("tanh",)),
                ("cast", (x,), (dtypes.float16,)),
                ("permute", (x,), ((1, 0),)),
                ("slice", (x,), ((0, 1), (2, 2), (1, 1))),
                ("sum", (x,), ((1,), True)),
                ("concat", (x, y, x), (1,)),
                ("full", (), ((2, 3), draw(NUMBERS), dtypes.float32)),
            ]
        )
    )
    op = OPS[name]
    specs = tuple(graph.spec_of(v) for v in inputs)
    bound = op.bind(params)
    inferred = dispatch.infer(op, specs, bound)
    first = specs[0] if specs else None
    view = op.view(first, bound) if op.view is not None and isinstance(first, Spec) else None
    made = [contiguous(d, s) for d, s in inferred] if view is None else [place(first, view)]  # type: ignore[arg-type]
    over = (0,) if name == "add" and draw(st.booleans()) else ()
    graph.add(op, inputs, tuple(bound.values()), made, draw(_ORIGINS), over)
