"""Modules and optimizers of programs: made once, used in each call."""

from __future__ import annotations

import torch

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var

_OPTIMIZERS = (
    "SGD({p}, lr=0.1)",
    "SGD({p}, lr=0.1, momentum=0.9, nesterov=True, foreach=False)",  # PyTorch writes to gradients if it updates several at once
    "SGD({p}, lr=0.05, weight_decay=0.1)",
    "Adam({p}, lr=0.05)",
    "AdamW({p}, lr=0.05, eps=0.01)",
    "Adam({p}, lr=0.05, eps=0.01, amsgrad=True)",
    "RMSprop({p}, lr=0.02, eps=0.1)",
    "Adagrad({p}, lr=0.1, eps=0.1)",
    "NAdam({p}, lr=0.02, eps=0.1)",
    "Adamax({p}, lr=0.02, eps=0.1)",
)


def module(d: Draw, number: int) -> str:
    """Draw a statement that makes module `number`, for some tensor of the program."""
    x = _input(d)
    last = x.shape[-1]
    kinds = [
        f"nn.Linear({last}, {d.one((2, 3, 4))})",
        f"nn.LayerNorm({last}, eps=0.1)",
        f"nn.Linear({last}, {last}, bias=False)",
    ]
    kinds.append(
        f"nn.Sequential(nn.Linear({last}, 4), nn.{d.one(('Tanh', 'GELU', 'Sigmoid'))}(), nn.Linear(4, {last}))"
    )
    kinds.append("nn.PReLU()")
    if x.ndim == 3:
        kinds += [f"nn.GRU({last}, 3, batch_first=True)", f"nn.LSTM({last}, 2)", f"nn.RNN({last}, 3)"]
        kinds += [f"nn.MultiheadAttention({last}, 1, batch_first=True)"] * 2
    if x.ndim == 2:
        kinds.append(f"nn.BatchNorm1d({last}, eps=0.1)")
    if x.ndim == 4 and min(x.shape) > 0:
        kinds += [
            f"nn.Conv2d({x.shape[1]}, 2, 1)",
            f"nn.BatchNorm2d({x.shape[1]}, eps=0.1)",
            f"nn.GroupNorm(1, {x.shape[1]})",
        ]
    return f"m{number} = made({d.one(kinds)}, {d.rng.randrange(1000)})"


def _input(d: Draw) -> Var:
    return d.tensor(lambda t: t.dtype is torch.float32 and t.ndim > 0 and t.numel() > 0)


def call(d: Draw) -> str:
    """Draw an expression that calls a module, or uses its weight."""
    name = d.one([n for n, m in d.variables.items() if isinstance(m, torch.nn.Module)])
    m = d.variables[name]
    if hasattr(m, "weight") and m.weight is not None and d.chance(0.2):
        return f"({name}.weight * 0.5).sum() + {_input(d)}"
    x = _input(d)
    if isinstance(m, torch.nn.MultiheadAttention):
        return f"{name}({x}, {x}, {x}, need_weights=False)[0]"
    return f"{name}({x})[0]" if isinstance(m, torch.nn.RNNBase) else f"{name}({x})"


def shared(d: Draw) -> str:
    """Draw a statement after which two linear modules have one weight."""
    modules = [n for n, m in d.variables.items() if isinstance(m, torch.nn.Linear)]
    pairs = [(a, b) for a in modules for b in modules if a < b and _shape(d, a) == _shape(d, b)]
    a, b = d.one(pairs)
    return f"{b}.weight = {a}.weight"


def _shape(d: Draw, name: str) -> tuple[int, ...]:
    return tuple(d.variables[name].weight.shape)


def optimizer(d: Draw, number: int) -> str:
    """Draw a statement that makes optimizer `number`, of parameters and modules."""
    parameters = [n for n, t in d.variables.items() if n[0] == "p" and n[1:].isdigit()]
    parameters += [f"*{n}.parameters()" for n, m in d.variables.items() if isinstance(m, torch.nn.Module)]
    if not parameters:
        raise UnfitError
    some = d.rng.sample(parameters, d.rng.randint(1, len(parameters)))
    return f"o{number} = optim.{d.one(_OPTIMIZERS).replace('{p}', '[' + ', '.join(some) + ']')}"


def use_optimizer(d: Draw) -> str:
    """Draw a statement that steps, or drops gradients."""
    name = d.one([n for n, o in d.variables.items() if isinstance(o, torch.optim.Optimizer)])
    return f"{name}.{d.one(('step()', 'step()', 'zero_grad()'))}"
