"""Statements that are not calls of ops: writes in place, gradients, modules, optimizers, control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var
from benchmarks.reliability.programs.ops.movement import slices
from benchmarks.reliability.programs.program import NAME


class Kind(NamedTuple):
    """A kind of statement: its text has `{v}` where a new variable is set."""

    op: str
    draw: Callable[[Draw], str]
    weight: float


def _writable(d: Draw) -> Var:
    """Draw a floating-point tensor that may be overwritten."""
    return d.tensor(lambda t: t.is_floating_point() and _is_writable(t))


def _is_writable(t: torch.Tensor) -> bool:
    """Return whether PyTorch takes writes: not to a leaf that needs a gradient, nor to elements that share memory."""
    return not (t.requires_grad and t.is_leaf) and _seen_once(t) and not _is_view_of_leaf(t)


def _seen_once(t: torch.Tensor) -> bool:
    """Return whether no two elements share memory, as in a broadcast and in overlapping windows."""
    reach = 0
    for stride, n in sorted(zip(t.stride(), t.shape, strict=True)):
        if n > 1 and stride <= reach:
            return False
        reach += (n - 1) * stride
    return True


def _is_view_of_leaf(t: torch.Tensor) -> bool:
    base = t._base
    return base is not None and base.requires_grad and base.is_leaf


def _operand(d: Draw, x: Var) -> str:
    """Draw a tensor that broadcasts to the shape of x."""
    found = d.every(lambda t: t.dtype is x.t.dtype and t.ndim <= x.ndim and _broadcasts(t, x))
    return str(d.one(found)) if found and d.chance(0.85) else str(d.fitting(x.shape, x.t.dtype))


def _seen(d: Draw, y: str, x: Var) -> str:
    """Draw the form of an operand in the shape of x: itself, or a view that is made where it is used."""
    shape = tuple(d.variables[y].shape)
    if not x.ndim or shape != x.shape or not d.chance(0.4):
        return y
    return d.one((f"{y}[0:]", f"{y}[...]", f"{y}.mT.mT" if x.ndim > 1 else f"{y}.view_as({y})"))  # type: ignore[no-any-return]


def _broadcasts(t: torch.Tensor, x: Var) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(t.shape), reversed(x.shape), strict=False))


_PLAIN = "zero_() fill_(0.5) neg_() sin_() cos_() tanh_() sigmoid_() relu_() exp_() clamp_(-1.0,1.0) round_() square_() abs_()"
_FORMS = (
    *(f"{{x}}.{m}" for m in _PLAIN.split()),
    *("{x}.add_({y})", "{x}.sub_({y}, alpha=0.5)", "{x}.mul_({y})", "{x}.div_(torch.abs({y}) + 0.5)", "{x}.copy_({y})"),
    *("{x} += {y}", "{x} *= {y}", "{x} -= {y}", "{x}.add_(1.0)", "{x}.mul_(0.5)", "{x}.mul_({y})", "{x}.add_({y})"),
    *(
        "{x}.lerp_({z}, 0.3)",
        "{x}.addcmul_({z}, {z})",
        "{x}.masked_fill_({m}, 0.7)",
        "{x}.atan2_({z})",
        "{x}.copy_({y})",
    ),
)


def _write(d: Draw) -> str:
    x = _writable(d)
    form = d.one(_FORMS)
    return form.format(
        x=x,
        y=_operand(d, x) if "{y}" in form else "",
        z=d.fitting(x.shape, x.t.dtype) if "{z}" in form else "",
        m=d.mask(x.shape) if "{m}" in form else "",
    )


_ROWS = (
    "{x}.index_add_(0, {i}, {s})",
    "{x}.index_copy_(0, {i}, {s})",
    "{x}.index_fill_(0, {i}, 0.25)",
    "{x}[{i}] = {s}",
    "{x}[{i}] = 0.5",
    "{x}[{i}] += {s}",
    "{x}.index_put_(({i},), {s}, accumulate=True)",
)


def _write_rows(d: Draw) -> str:
    x = _writable(d)
    if not x.ndim or not x.shape[0]:
        raise UnfitError
    rows = d.rng.sample(range(x.shape[0]), d.rng.randint(1, x.shape[0]))
    source = d.fitting((len(rows), *x.shape[1:]), x.t.dtype)
    return d.one(_ROWS).format(x=x, i=f"torch.tensor({rows})", s=source)  # type: ignore[no-any-return]


def _write_slice(d: Draw) -> str:
    x = _writable(d)
    if not x.ndim:
        raise UnfitError
    place = f"{x}[{slices(d, x)}]"
    part = Var(place, eval(place, {str(x): x.t}))  # a place among those that `slices` writes
    value = d.one((str(d.number()), *(_seen(d, _operand(d, part), part) for _ in range(2))))
    return d.one((f"{place} = {value}", f"{place} = {value}", f"{place} += {value}", f"{place}.mul_({value})"))  # type: ignore[no-any-return]


def _write_copy(d: Draw) -> str:
    """Draw a copy of a tensor, or of a view of it, to another one, and a write to the source after it."""
    x = _writable(d)
    y = d.tensor(lambda t: t.dtype is x.t.dtype and t.shape == x.shape and t is not x.t and _is_writable(t))
    place = d.one((f"{x}[0:]", f"{x}[...]", f"{x}[:]")) if x.ndim else f"{x}[...]"
    copy = d.one((f"{x}.copy_({_seen(d, y, x)})", *[f"{place} = {_seen(d, y, x)}"] * 3))
    return f"{copy}\n{y}.{d.one(('add_(1.0)', 'mul_(0.5)', 'neg_()', 'zero_()'))}"


def _write_mask(d: Draw) -> str:
    x = _writable(d)
    return f"{x}[{d.mask(x.shape)}] = {d.number()}"


def _write_parameter(d: Draw) -> str:
    p = d.tensor(lambda t: t.requires_grad and t.is_leaf)
    return (
        f"with torch.no_grad():\n    {p}.{d.one(('mul_(0.9)', 'add_(0.1)', 'clamp_(-1.0, 1.0)', f'copy_({p} * 0.5)'))}"
    )


def _root(d: Draw) -> str:
    """Draw a number that depends on some results."""
    roots = d.every(
        lambda t: t.requires_grad and t.grad_fn is not None and t.numel() > 0 and bool(torch.isfinite(t).all())
    )
    if not roots:
        raise UnfitError
    chosen = [roots[-1 - int(d.rng.expovariate(0.4)) % len(roots)] for _ in range(d.rng.randint(1, 3))]
    terms = [d.one(("{0}.sum()", "({0} * {0}).sum()", "{0}.mean()", "torch.tanh({0}).sum()")).format(v) for v in chosen]
    wide = [
        f"{t}.to(torch.float32)" if v.t.dtype is not torch.float32 else t for t, v in zip(terms, chosen, strict=True)
    ]
    return " + ".join(wide)


def backward(d: Draw) -> str:
    """Draw a backward pass from some results."""
    return f"{{v}} = {_root(d)}\n{{v}}.backward({'retain_graph=True' if d.chance(0.4) else ''})"


def _backward_from(d: Draw) -> str:
    v = d.tensor(lambda t: t.requires_grad and t.grad_fn is not None and t.numel() > 0)
    return f"{v}.backward(torch.ones_like({v}), retain_graph={d.chance(0.5)})"


def _grad(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad and t.is_floating_point())
    how = "create_graph=True" if d.chance(0.7) else "retain_graph=True"
    return f"{{v}} = {_root(d)}\n{{w}} = torch.autograd.grad({{v}}, {x}, {how})[0]"


def _read_grad(d: Draw) -> str:
    x = d.tensor(lambda t: t.is_leaf and t.grad is not None)
    return d.one((f"{{v}} = {x}.grad * 1.5", f"{{v}} = {x}.grad.clone()", f"{x}.grad = None", f"{x}.grad.mul_(0.5)"))  # type: ignore[no-any-return]


def _hook(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad)
    return f"{x}.register_hook(lambda g: {d.one(('g * 0.5', 'g + 1.0', 'torch.clamp(g, -0.3, 0.3)', '-g'))})"


def _detach(d: Draw) -> str:
    x = d.tensor(lambda t: t.requires_grad)
    return f"{{v}} = {x}.detach()" + (".requires_grad_()" if d.chance(0.3) else "")


def _branch(d: Draw) -> str:
    x = d.floats(1)
    return f"{{v}} = torch.sin({x}) if {x}.shape[{d.axis(x)}] > 2 else torch.cos({x})"


def _loop(d: Draw) -> str:
    x = d.floats()
    body = d.one(("torch.tanh({v}) + {x}", "{v} * 0.5 + {x}", "torch.sin({v})"))
    return f"{{v}} = {x}\nfor _ in range({x}.ndim + 1):\n    {{v}} = {body.replace('{x}', x)}"


_USES = (
    "torch.sin({x}) + torch.cos({x}) + {x}",
    "{x} + torch.tanh({x} + {y})",
    "({x} + {y}) * {x} + {y}",
    "{x} - ({y} + {x}) * 0.5 + torch.sigmoid({x})",
    "torch.stack([{x}, {y}, {x}]).sum(0) + {x}",
)


def _several_uses(d: Draw) -> str:
    """Draw several uses of a leaf or a result, some of them in sums, whose gradients share memory."""
    x = d.tensor(lambda t: t.requires_grad and t.is_leaf and t.is_floating_point()) if d.chance(0.6) else d.floats()
    return f"{{v}} = {d.one(_USES).format(x=x, y=d.fitting(x.shape, x.t.dtype))}"


def _delete(d: Draw) -> str:
    found = [n for n in d.variables if n[0] == "v" and n[1:].isdigit()]
    return f"del {d.one(found)}"


def in_checkpoint(expression: str) -> str:
    """Make an expression one that is computed again in the backward pass."""
    names = ", ".join(dict.fromkeys(NAME.findall(expression)))
    if not names:
        raise UnfitError
    return f"torch.utils.checkpoint.checkpoint(lambda {names}: {expression}, {names}, use_reentrant=False)"


KINDS = (
    Kind("write", _write, 9),
    Kind("write a slice", _write_slice, 6),
    Kind("write a copy", _write_copy, 2),
    Kind("write rows", _write_rows, 2),
    Kind("write by a mask", _write_mask, 1),
    Kind("write a parameter", _write_parameter, 1),
    Kind("backward", backward, 2),
    Kind("backward", _backward_from, 0.7),
    Kind("grad", _grad, 2),
    Kind("read a gradient", _read_grad, 1.5),
    Kind("hook", _hook, 1.5),
    Kind("detach", _detach, 1.5),
    Kind("several uses", _several_uses, 3),
    Kind("branch", _branch, 1),
    Kind("loop", _loop, 1),
    Kind("del", _delete, 2),
)
