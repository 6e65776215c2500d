"""Calls that move elements: views, and copies in another order."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, Var
from benchmarks.reliability.programs.ops.call import Call, length_of, of_any, of_fit, of_tensors


def _any(d: Draw, least: int = 0) -> Var:
    return d.tensor(lambda t: t.ndim >= least and not t.is_complex())


def _reshaped(d: Draw, x: Var) -> tuple[int, ...]:
    """Draw another shape of as many elements."""
    n = x.t.numel()
    fits = [(n,), (-1,) if n else (0,), (1, n), (n, 1), *((k, n // k) for k in (2, 3, 4) if n % k == 0)]
    if n % 6 == 0:
        fits += [(2, 3, n // 6), (n // 6, 3, 2)]
    return tuple(d.one(fits))


def _permutation(d: Draw, x: Var) -> list[int]:
    return d.rng.sample(range(x.ndim), x.ndim)


def slices(d: Draw, x: Var) -> str:
    """Draw slices, integers, `None` and `...` that select a part of x."""
    items = []
    for n in x.shape:
        kind = d.rng.randrange(6)
        if kind == 0 and n:
            items.append(str(d.rng.randrange(-n, n)))
        elif kind == 1 and n > 1:
            items.append("1:")
        elif kind == 2 and n > 1:
            items.append(":-1")
        elif kind == 3 and n > 1:
            items.append(d.one(["::2", "1::2", "0:1"]))
        else:
            items.append(":")
    if items and d.chance(0.1):
        items[-1] = "..."
    if d.chance(0.1):
        items.insert(d.rng.randint(0, len(items)), "None")
    return ", ".join(items) or "..."


def _split(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    return _parts(d, x, f"torch.split({x}, {max(1, (length_of(x, a) + 1) // 2)}, {a})")


def _parts(d: Draw, x: Var, views: str) -> str:
    """Return several views of x, or copies: PyTorch refuses writes to one of several views if gradients are needed."""
    return f"[part.clone() for part in {views}]" if x.t.requires_grad or d.chance(0.2) else views


def _chunks(d: Draw) -> str:
    x = _any(d, 1)
    return _parts(d, x, f"torch.chunk({x}, 2, {d.axis(x)})")


def _unbound(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    return f"{_parts(d, x, f'torch.unbind({x}, {a})')}[{d.rng.randrange(length_of(x, a))}]"


def _expanded(d: Draw) -> str:
    x = _any(d)
    shape = [d.length() if n == 1 else n for n in x.shape]
    return f"{x}.expand({[2, *shape] if d.chance(0.4) and len(shape) < 4 else shape})"


def _unfolded(d: Draw) -> str:
    x = _any(d, 1)
    a = d.axis(x)
    size = d.rng.randint(1, length_of(x, a))
    return f"{x}.unfold({a}, {size}, {d.one((1, 1, 2))})"


def _is_contiguous(t: torch.Tensor) -> bool:
    return t.is_contiguous()


def _is_float32(t: torch.Tensor) -> bool:
    return t.dtype is torch.float32


def _is_signal(t: torch.Tensor) -> bool:
    return t.dtype is torch.float32 and t.ndim > 0 and t.numel() > 0


VIEWS = (
    *[Call("slice", lambda d: f"{(x := _any(d, 1))}[{slices(d, x)}]")] * 3,
    Call("reshape", lambda d: f"{(x := _any(d))}.reshape({_reshaped(d, x)})"),
    Call("view", lambda d: f"{(x := d.tensor(_is_contiguous))}.view({_reshaped(d, x)})"),
    of_tensors("transpose", "{x}.transpose({a}, {b})", least=2),
    Call("permute", lambda d: f"{(x := _any(d, 2))}.permute({_permutation(d, x)})"),
    of_tensors("mT", "{x}.mT", least=2),
    of_tensors("t", "{x}.t()", most=2),
    of_tensors("unsqueeze", "{x}.unsqueeze({a})", least=1, most=3),
    of_any("squeeze", "torch.squeeze({x}, {a})", least=1),
    Call("expand", _expanded),
    Call("narrow", lambda d: f"{(x := _any(d, 1))}.narrow({(a := d.axis(x))}, 0, {d.rng.randint(1, length_of(x, a))})"),
    Call("select", lambda d: f"{(x := _any(d, 1))}.select({(a := d.axis(x))}, {d.rng.randrange(length_of(x, a))})"),
    of_tensors("diagonal", "torch.diagonal({x}, {o})", least=2),
    Call("unfold", _unfolded),
    of_tensors("movedim", "torch.movedim({x}, {a}, {b})", least=2),
    of_tensors("flatten", "{x}.flatten()"),
    Call("split", _split),
    Call("chunk", _chunks),
    Call("unbind", _unbound),
    of_fit("contiguous", lambda t: not t.is_contiguous(), "{x}.contiguous()"),
    of_fit("view_as", _is_contiguous, "{x}.view_as({y})"),
    of_tensors("expand_as", "{x}.expand_as({z})"),
)


def _padded(d: Draw) -> str:
    x = d.floats(1)
    widths = [d.one((0, 0, 1, 2, -1)) for _ in range(2 * d.rng.randint(1, min(2, x.ndim)))]
    return f"F.pad({x}, {widths}{d.one(('', ', value=1.5'))})"


def _reflected(d: Draw) -> str:
    x = d.tensor(lambda t: t.is_floating_point() and t.ndim in (2, 3) and t.shape[-1] > 2 and t.numel() > 0)
    return f"F.pad({x}, ({d.one((0, 1, 2))}, {d.one((0, 1))}), mode={d.one(('reflect', 'replicate', 'circular'))!r})"


def _cast(d: Draw) -> str:
    x = d.tensor(lambda t: not t.is_complex())
    names = [*d.style.dtypes, "int32", "int64", "bool", "float32"]
    if x.t.is_floating_point():
        names = [*d.style.dtypes, "float32", "bool", "int32"]
        if d.style.special:
            names = [*d.style.dtypes, "float32", "bool"]  # NaN and infinity are no integers
    return f"{x}.to(torch.{d.one(names)})"


def _repeated(d: Draw, form: str, more: int) -> str:
    x = _any(d, 1)
    return form.format(x=x, counts=[d.one((1, 1, 2)) for _ in range(x.ndim + d.rng.randrange(1 + more))])


_TURNS = tuple(f"torch.rot90({{x}}, {turns}, [0, 1])" for turns in range(4))
_SHIFTS = tuple(f"torch.roll({{x}}, {shift}, {{a}})" for shift in (0, 1, -1, 2, 3))

CALLS = (
    of_tensors("cat", "torch.cat([{x}, {y}], {a})", "torch.cat([{x}, {y}, {x}], {a})", least=1),
    of_tensors("stack", "torch.stack([{x}, {y}])", "torch.stack([{x}, {y}], -1)", most=3),
    of_tensors("stack", "torch.stack([{x}, {y}], {a})", least=1, most=3),
    *(of_tensors(op, f"torch.{op}([{{x}}, {{y}}])", least=1) for op in ("hstack", "vstack", "dstack", "column_stack")),
    of_tensors("block_diag", "torch.block_diag({x}, {y})", least=2, most=2),
    of_tensors("flip", "torch.flip({x}, {aa})", least=1),
    of_tensors("roll", *_SHIFTS, least=1),
    of_tensors("rot90", *_TURNS, least=2),
    Call("repeat", lambda d: _repeated(d, "{x}.repeat({counts})", 1)),
    Call("tile", lambda d: _repeated(d, "torch.tile({x}, {counts})", 0)),
    of_tensors("repeat_interleave", "torch.repeat_interleave({x}, {c}, {a})", least=1),
    Call("pad", _padded),
    Call("pad", _reflected),
    of_tensors("tril", "torch.tril({x}, {o})", least=2),
    of_tensors("triu", "torch.triu({x}, {o})", least=2),
    of_tensors("diag", "torch.diag({x}, {o})", least=1, most=2),
    of_tensors("diag_embed", "torch.diag_embed({x}, {o})", least=1, most=2),
    of_tensors("clone", "{x}.clone()"),
    *[Call("to", _cast)] * 2,
    of_tensors("broadcast_tensors", "torch.broadcast_tensors({x}, {z})[0]"),
    of_tensors("meshgrid", "torch.meshgrid({x}, {x}, indexing='ij')", least=1, most=1),
    Call("kron", lambda d: f"torch.kron({d.floats(1, 2)}, {d.floats(1, 2)})"),
    of_tensors("zeros_like", "torch.zeros_like({x})", "torch.ones_like({x})"),
    of_tensors("full_like", "torch.full_like({x}, {c})"),
    of_tensors("pixel_shuffle", "F.pixel_shuffle({x}, {c})", least=4, most=4),
    of_fit("complex", _is_float32, "torch.abs(torch.complex({x}, {y}))"),
    of_fit("rfft", _is_signal, "torch.abs(torch.fft.rfft({x}, dim=-1)) + 0.1"),
    of_fit("irfft", _is_signal, *(f"torch.fft.irfft(torch.fft.rfft({{x}}), n={n})" for n in (2, 3, 4))),
)
