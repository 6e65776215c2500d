"""Calls that select by indices and masks, and scatter."""

from __future__ import annotations

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, filled, length_of, of_floats, of_tensors


def _any(d: Draw, least: int = 1) -> Var:
    return d.tensor(lambda t: t.ndim >= least and t.numel() > 0 and not t.is_complex())


def _indexed(d: Draw) -> str:
    x = _any(d)
    return f"{x}[{d.index(d.one(((2,), (3,), (2, 2), (0,))), length_of(x, 0))}]"


def _indexed_twice(d: Draw) -> str:
    x = _any(d, 2)
    return f"{x}[{d.index((3,), length_of(x, 0))}, {d.index((3,), length_of(x, 1))}]"


def _index_select(d: Draw) -> str:
    x = _any(d)
    a = d.axis(x)
    return f"torch.index_select({x}, {a}, {d.index((d.one((1, 2, 4)),), length_of(x, a))})"


def _along(op: str, form: str, *, floats: bool = True) -> Call:
    """Declare calls with indices {i} along axis {a}, in the shape of {x}, and values {y}."""

    def draw(d: Draw) -> str:
        x = d.floats(1, nonempty=True) if floats else _any(d)
        a = d.axis(x)
        return filled(d, x, form.replace("{a}", str(a)).replace("{i}", d.index(x.shape, length_of(x, a))))

    return Call(op, draw)


def _by_rows(op: str, form: str) -> Call:
    """Declare calls with rows {i}, each once, and values {s} for them."""

    def draw(d: Draw) -> str:
        x = d.floats(1, nonempty=True)
        rows = d.rng.sample(range(length_of(x, 0)), d.rng.randint(1, length_of(x, 0)))
        source = d.fitting((len(rows), *x.shape[1:]), x.t.dtype)
        return form.format(x=x, i=f"torch.tensor({rows})", s=source)

    return Call(op, draw)


def _slice_scatter(d: Draw) -> str:
    x = d.floats(1, nonempty=True)
    return f"torch.select_scatter({x}, {d.fitting(x.shape[1:], x.t.dtype)}, 0, {d.rng.randrange(length_of(x, 0))})"


def _embedding(d: Draw) -> str:
    w = d.floats(2, 2, nonempty=True)
    return f"F.embedding({d.index(d.one(((3,), (2, 2))), w.shape[0])}, {w})"


def _searched(d: Draw) -> str:
    x = d.floats(1, 1, nonempty=True)
    return f"torch.searchsorted(torch.sort({x})[0], {d.fitting(d.shape(1, 2), x.t.dtype)})"


CALLS = (
    Call("index", _indexed),
    Call("index", _indexed_twice),
    of_floats("mask", "{x}[{m}]", least=1),
    Call("index_select", _index_select),
    _along("gather", "torch.gather({x}, {a}, {i})", floats=False),
    _along("take_along_dim", "torch.take_along_dim({x}, {i}, {a})", floats=False),
    _along("scatter", "torch.scatter({x}, {a}, torch.argsort({x}, dim={a}, stable=True), {y})"),
    _along("scatter_add", "torch.scatter_add({x}, {a}, {i}, {y})"),
    _along("scatter_reduce", "torch.scatter_reduce({x}, {a}, {i}, {y}, 'amax')"),
    _along("scatter_reduce", "torch.scatter_reduce({x}, {a}, {i}, {y}, 'sum', include_self=False)"),
    _by_rows("index_add", "torch.index_add({x}, 0, {i}, {s})"),
    _by_rows("index_copy", "torch.index_copy({x}, 0, {i}, {s})"),
    _by_rows("index_fill", "torch.index_fill({x}, 0, {i}, 0.5) + {s}.sum()"),
    _by_rows("index_put", "torch.index_put({x}, ({i},), {s})"),
    *[of_tensors("where", "torch.where({m}, {x}, {z})")] * 2,
    of_floats("masked_fill", "torch.masked_fill({x}, {m}, {n})"),
    of_floats("masked_select", "torch.masked_select({x}, {m})"),
    of_floats("masked_scatter", "torch.masked_scatter({x}, {m}, {y})"),
    Call("select_scatter", _slice_scatter),
    Call("embedding", _embedding),
    Call("searchsorted", _searched),
)
