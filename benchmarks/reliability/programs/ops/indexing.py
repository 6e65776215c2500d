"""Calls that select by indices and masks, and scatter."""

from __future__ import annotations

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, length_of


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


def _gather(d: Draw) -> str:
    x = _any(d)
    a = d.axis(x)
    return f"torch.gather({x}, {a}, {d.index(x.shape, length_of(x, a))})"


def _take_along(d: Draw) -> str:
    x = _any(d)
    a = d.axis(x)
    return f"torch.take_along_dim({x}, {d.index(x.shape, length_of(x, a))}, {a})"


def _scatter(d: Draw, form: str) -> str:
    x = d.floats(1, nonempty=True)
    a = d.axis(x)
    return form.format(x=x, a=a, i=d.index(x.shape, length_of(x, a)), s=d.fitting(x.shape, x.t.dtype))


def _by_rows(d: Draw, form: str) -> str:
    x = d.floats(1, nonempty=True)
    rows = d.rng.sample(range(length_of(x, 0)), d.rng.randint(1, length_of(x, 0)))
    source = d.fitting((len(rows), *x.shape[1:]), x.t.dtype)
    return form.format(x=x, i=f"torch.tensor({rows})", s=source)


def _where(d: Draw) -> str:
    x = d.tensor(lambda t: not t.is_complex())
    return f"torch.where({d.mask(x.shape)}, {x}, {d.beside(x)})"


def _masked(d: Draw, form: str) -> str:
    x = d.floats()
    return form.format(x=x, m=d.mask(x.shape), n=d.number(), s=d.fitting(x.shape, x.t.dtype))


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
    Call("mask", lambda d: f"{(x := d.floats(1))}[{d.mask(x.shape)}]"),
    Call("index_select", _index_select),
    Call("gather", _gather),
    Call("take_along_dim", _take_along),
    Call("scatter", lambda d: _scatter(d, "torch.scatter({x}, {a}, torch.argsort({s}, {a}, stable=True), {s})")),
    Call("scatter_add", lambda d: _scatter(d, "torch.scatter_add({x}, {a}, {i}, {s})")),
    Call("scatter_reduce", lambda d: _scatter(d, "torch.scatter_reduce({x}, {a}, {i}, {s}, 'amax')")),
    Call(
        "scatter_reduce", lambda d: _scatter(d, "torch.scatter_reduce({x}, {a}, {i}, {s}, 'sum', include_self=False)")
    ),
    Call("index_add", lambda d: _by_rows(d, "torch.index_add({x}, 0, {i}, {s})")),
    Call("index_copy", lambda d: _by_rows(d, "torch.index_copy({x}, 0, {i}, {s})")),
    Call("index_fill", lambda d: _by_rows(d, "torch.index_fill({x}, 0, {i}, 0.5) + {s}.sum()")),
    Call("index_put", lambda d: _by_rows(d, "torch.index_put({x}, ({i},), {s})")),
    Call("where", _where),
    Call("where", _where),
    Call("masked_fill", lambda d: _masked(d, "torch.masked_fill({x}, {m}, {n})")),
    Call("masked_select", lambda d: _masked(d, "torch.masked_select({x}, {m})")),
    Call("masked_scatter", lambda d: _masked(d, "torch.masked_scatter({x}, {m}, {s})")),
    Call("select_scatter", _slice_scatter),
    Call("embedding", _embedding),
    Call("searchsorted", _searched),
)
