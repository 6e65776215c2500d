"""Calls that reduce, scan, sort and count."""

from __future__ import annotations

from benchmarks.reliability.programs.ops.call import Call, length_of, of_any, of_floats

_AXES = ("torch.{op}({x})", "torch.{op}({x}, {a})", "torch.{op}({x}, {a}, keepdim={k})", "torch.{op}({x}, {aa})")


def _forms(op: str, *, whole: bool = True, several: bool = True) -> list[str]:
    kept = [f for f in _AXES if (whole or "{a" in f) and (several or "{aa}" not in f)]
    return [f.replace("{op}", op) for f in kept]


CALLS = (
    of_any("sum", *_forms("sum"), least=1),
    of_any("sum", *_forms("sum"), least=1),
    of_floats("mean", *_forms("mean"), least=1, nonempty=True),
    of_any("prod", "torch.prod({x})", "torch.prod({x}, {a})", least=1),
    of_floats("max", "torch.max({x}, {a})", "torch.max({x}, {a}, {k})", least=1, nonempty=True),
    of_floats("min", "torch.min({x}, {a})", least=1, nonempty=True),
    of_floats("amax", *_forms("amax"), least=1, nonempty=True),
    of_floats("amin", *_forms("amin"), least=1, nonempty=True),
    of_floats("argmax", "torch.argmax({x}, {a})", "torch.argmax({x})", least=1, nonempty=True),
    of_floats("argmin", "torch.argmin({x}, {a}, keepdim={k})", least=1, nonempty=True),
    of_any("any", "torch.any({x}, {a})", "torch.any({x})", least=1),
    of_any("all", "torch.all({x}, {a})", "torch.all({x})", least=1),
    of_floats(
        "logsumexp", "torch.logsumexp({x}, {a})", "torch.logsumexp({x}, {aa}, keepdim={k})", least=1, nonempty=True
    ),
    of_floats("nansum", *_forms("nansum"), least=1),
    of_floats("nanmean", *_forms("nanmean"), least=1, nonempty=True),
    of_floats("var", "torch.var({x}, {a}, correction=0)", "torch.var({x}, {aa}, keepdim={k})", least=1, nonempty=True),
    of_floats("std", "torch.std({x} + torch.arange({x}.shape[-1]), {a}, correction=0)", least=1, nonempty=True),
    of_floats("var_mean", "torch.var_mean({x}, {a}, correction=0)", least=1, nonempty=True),
    of_any("count_nonzero", "torch.count_nonzero({x}, {a})", least=1),
    of_floats(
        "norm", "torch.linalg.vector_norm({x}, {o}, {a})".replace("{o}", "1"), "torch.linalg.vector_norm({x})", least=1
    ),
    of_floats("norm", "torch.linalg.vector_norm({x}, 3, {a})", "torch.norm({x}, dim={a})", least=1, nonempty=True),
    of_any("cumsum", "torch.cumsum({x}, {a})", least=1),
    of_any("cumprod", "torch.cumprod({x}, {a})", least=1),
    of_floats("cummax", "torch.cummax({x}, {a})", least=1, nonempty=True),
    of_floats("cummin", "torch.cummin({x}, {a})", least=1, nonempty=True),
    of_floats("logcumsumexp", "torch.logcumsumexp({x}, {a})", least=1, nonempty=True),
    of_floats("sort", "torch.sort({x}, {a})[0]", "torch.sort({x}, {a}, descending={k})[0]", least=1),
    of_floats("argsort", "torch.argsort({x}, dim={a}, stable=True)", least=1),
    Call("topk", lambda d: f"torch.topk({(x := d.floats(1, nonempty=True))}, {d.rng.randint(1, length_of(x, -1))})[0]"),
    Call(
        "kthvalue",
        lambda d: f"torch.kthvalue({(x := d.floats(1, nonempty=True))}, {d.rng.randint(1, length_of(x, -1))})[0]",
    ),
    of_floats("median", "torch.median({x}.clone(), {a})[0]", "torch.median({x})", least=1, nonempty=True),
    of_floats("quantile", "torch.quantile({x}.to(torch.float32), 0.3, {a})", least=1, nonempty=True),
    of_floats("diff", "torch.diff({x}, dim={a})", "torch.diff({x}, n={m}, dim={a})".replace("{m}", "2"), least=1),
    of_floats("softmax", "torch.softmax({x}, {a})", "F.softmax({x}, {a})", least=1),
    of_floats("log_softmax", "torch.log_softmax({x}, {a})", least=1),
    of_floats("trapezoid", "torch.trapezoid({x}, dim={a})", least=1, nonempty=True),
    of_floats("aminmax", "torch.aminmax({x}, dim={a})", least=1, nonempty=True),
    of_any("unique", "torch.unique({x})", least=1),
    of_any("nonzero", "torch.argwhere({x})", least=1),
)
