"""Calls of products and of linear algebra."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var
from benchmarks.reliability.programs.ops.call import Call, filled


def _matmul(d: Draw) -> str:
    x = d.floats(1, 3)
    kind = d.rng.randrange(3)
    shape: tuple[int, ...] = (x.shape[-1],)
    if kind:
        shape = (x.shape[-1], d.length())
        if kind == 2 and x.ndim == 3:
            shape = (x.shape[0], *shape)
    return f"{d.one(('torch.matmul({}, {})', '({} @ {})')).format(x, d.fitting(shape, x.t.dtype))}"


def _of(d: Draw, form: str, first: int, *shapes: str) -> str:
    """Draw a product: x has `first` axes, whose lengths are a, b, c in the shapes of the others; n and k are drawn."""
    x = d.floats(first, first)
    lengths = dict(zip("abc", x.shape, strict=False)) | {"n": d.length(), "k": d.length()}
    others = [d.fitting([lengths[s] for s in shape], x.t.dtype) for shape in shapes]
    return form.format(x, *others)


def _square(d: Draw) -> Var:
    return d.tensor(
        lambda t: (
            t.ndim >= 2 and t.shape[-1] == t.shape[-2] and t.numel() > 0 and t.dtype in (torch.float32, torch.float64)
        )
    )


def _solid(x: Var) -> str:
    """Return a matrix that is far from singular, made of any square one."""
    if not torch.isfinite(x.t).all():
        raise UnfitError
    return f"torch.tanh({x}) + 4 * torch.eye({x.shape[-1]}, dtype={x.t.dtype})"


def _of_solid(op: str, form: str) -> Call:
    """Declare calls of a matrix {s} that is far from singular, with {y} of its shape."""

    def draw(d: Draw) -> str:
        x = _square(d)
        return filled(d, x, form.replace("{s}", _solid(x)))

    return Call(op, draw)


def _definite(d: Draw) -> str:
    x = _square(d)
    return f"torch.tanh({x}) @ torch.tanh({x}).mT + 2 * torch.eye({x.shape[-1]}, dtype={x.t.dtype})"


CALLS = (
    Call("matmul", _matmul),
    Call("matmul", _matmul),
    Call("mm", lambda d: _of(d, "torch.mm({}, {})", 2, "bn")),
    Call("mv", lambda d: _of(d, "torch.mv({}, {})", 2, "b")),
    Call("dot", lambda d: _of(d, "torch.dot({}, {})", 1, "a")),
    Call("outer", lambda d: _of(d, "torch.outer({}, {})", 1, "n")),
    Call("bmm", lambda d: _of(d, "torch.bmm({}, {})", 3, "acn")),
    Call("addmm", lambda d: _of(d, "torch.addmm({2}, {0}, {1}, beta=0.5)", 2, "bn", "n")),
    Call("baddbmm", lambda d: _of(d, "torch.baddbmm({2}, {0}, {1}, alpha=2)", 3, "acn", "abn")),
    Call("addmv", lambda d: _of(d, "torch.addmv({2}, {0}, {1})", 2, "b", "a")),
    Call("addr", lambda d: _of(d, "torch.addr({0}, {1}, {2})", 2, "a", "b")),
    Call("einsum", lambda d: _of(d, "torch.einsum('ij,jk->ik', {}, {})", 2, "bn")),
    Call("einsum", lambda d: _of(d, "torch.einsum('ij,ij->j', {}, {})", 2, "ab")),
    Call("einsum", lambda d: _of(d, "torch.einsum('bij,bkj->bik', {}, {})", 3, "anc")),
    Call("tensordot", lambda d: _of(d, "torch.tensordot({}, {}, 1)", 2, "bn")),
    Call("vecdot", lambda d: _of(d, "torch.linalg.vecdot({}, {})", 2, "ab")),
    Call("cdist", lambda d: _of(d, "torch.cdist({}, {} + 1.5, p=2.0)", 2, "nb")),
    Call("linear", lambda d: _of(d, "F.linear({}, {}, {})", 2, "nb", "n")),
    Call("linear", lambda d: _of(d, "F.linear({}, {})", 3, "nc")),
    Call("bilinear", lambda d: _of(d, "F.bilinear({}, {}, {})", 2, "ak", "nbk")),
    _of_solid("inv", "torch.linalg.inv({s})"),
    _of_solid("det", "torch.linalg.det({s})"),
    _of_solid("slogdet", "torch.linalg.slogdet({s})[1]"),
    _of_solid("solve", "torch.linalg.solve({s}, {y})"),
    Call("cholesky", lambda d: f"torch.linalg.cholesky({_definite(d)})"),
    Call("matrix_power", lambda d: f"torch.linalg.matrix_power({_square(d)}, {d.one((0, 1, 2, 3))})"),
    Call("trace", lambda d: f"torch.trace({d.floats(2, 2)})"),
    Call("cross", lambda d: _cross(d)),
    Call("cosine_similarity", lambda d: _of(d, "F.cosine_similarity({}, {} + 0.1, dim=-1)", 2, "ab")),
)


def _cross(d: Draw) -> str:
    x = d.tensor(lambda t: t.is_floating_point() and t.ndim > 0 and t.shape[-1] == 3)
    return f"torch.linalg.cross({x}, {d.fitting(x.shape, x.t.dtype)})"
