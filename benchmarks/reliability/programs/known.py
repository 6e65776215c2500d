"""Differences from PyTorch that are meant, with their reasons. All others are findings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.reliability.programs.judge import Difference
from benchmarks.reliability.programs.limits import at_a_limit
from benchmarks.reliability.programs.program import Program


class Known(NamedTuple):
    """A kind of difference that is meant."""

    name: str
    reason: str
    is_it: Callable[[Program, Difference], bool]


def _all_text(program: Program) -> str:
    return "\n".join(s.text for s in program.statements)


def _keeps_more(program: Program, difference: Difference) -> bool:
    """An error of Polyhal alone, by an op that saves an operand or its result where PyTorch saves numbers in between."""
    found = re.search(r"\(\[(\w+)\] '\w+' was changed in place after it was saved", difference.text)
    return difference.kind == "raises" and bool(found) and found[1] in _KEEP and _fails_first(difference)


def _fails_first(difference: Difference) -> bool:
    """Return whether Polyhal raised before PyTorch did. Positions of guarded statements, which go on, count from 1000."""
    ours, _, theirs = difference.text.rpartition("expected ")
    positions = [int(p) for p in re.findall(r"(-?\d+): '", ours) if len(p) < 4]
    later = [int(p) for p in re.findall(r"(\d+): '", theirs) if len(p) < 4]
    return bool(positions) and (not later or later[-1] > positions[-1])


def _unnoticed(program: Program, difference: Difference) -> bool:
    """An error of Polyhal alone at a write to an operand of `kron`, which is a product."""
    multiplied = re.search(r"\(\[multiply\] '[xy]' was changed in place", difference.text)
    return difference.kind == "raises" and bool(multiplied) and "kron(" in program.text()


def _copied(program: Program, difference: Difference) -> bool:
    """An error on the device alone, by an op whose operand PyTorch copies, or does not keep, on the CPU."""
    if difference.kind != "raises" or not _fails_first(difference):
        return False
    if re.search(r"\(\[matmul\] '\w+' was changed in place", difference.text):
        return "tensordot(" in program.text()
    if re.search(r"\(\[linear\] 'x' was changed in place", difference.text):
        return bool(re.search(r"batch_first=True|nn\.LSTM\(", _all_text(program)))
    if not re.search(r"modified by an inplace operation: \[polyhal", difference.text):
        return False
    other_nodes = r"batch_first=True|[lL]inear\(|cross_entropy\(|scaled_dot_product_attention\("
    return "ScaledDotProd" in difference.text or bool(re.search(other_nodes, _all_text(program)))


def _broadcast_in_pytorch(program: Program, difference: Difference) -> bool:
    """PyTorch's error at a write to what `autograd.grad` returned."""
    error = r"^no error .*expected \{.*more than one element of the written-to tensor"
    return difference.kind == "raises" and "autograd.grad(" in program.text() and bool(re.search(error, difference.text))


def _edge_of_padding(program: Program, difference: Difference) -> bool:
    """A gradient of padding that requires a gradient in PyTorch alone: second derivatives are zeros there."""
    padded = re.search(r"F\.pad\(.*mode='(reflect|replicate)'", program.text())
    return difference.kind == "requires_grad" and bool(padded) and "create_graph=True" in program.text()


def _sign_of_zero(program: Program, difference: Difference) -> bool:
    """Opposite numbers where `softshrink`, a norm or a sum made a zero, and another op shows its sign."""
    found = re.match(r"(\S+) at .*, expected (\S+),", difference.text)
    text = _all_text(program)
    made = re.search(r"softshrink\(|_norm\(|Norm\w*\(|scatter_add\(|index_add_?\(", text)
    shown = bool(made) and bool(re.search(r"(copysign|atan2|angle|reciprocal)_?\(", text))
    return difference.kind == "value" and shown and bool(found) and _opposite(float(found[1]), float(found[2]))


def _opposite(a: float, b: float) -> bool:
    """Return whether numbers have opposite signs, or are the angles 0 and pi."""
    angles = abs(max(abs(a), abs(b)) - math.pi) < 1e-2 and min(abs(a), abs(b)) == 0.0
    return angles or a == -b or abs(a + b) <= 1e-5 * abs(b)


def _walked_again(program: Program, difference: Difference) -> bool:
    """PyTorch's error at a second backward pass through nodes that saved no tensor here."""
    again = r"no error \(.*expected \{.*Trying to backward through the graph a second time"
    return difference.kind == "raises" and bool(re.search(again, difference.text))


def _hook_of_a_view(program: Program, difference: Difference) -> bool:
    """A gradient through a view whose memory was written to without gradients after a hook was registered."""
    hooked = [i for i, s in enumerate(program.body) if re.match(r"v\d+\.register_hook\(", s.text)]
    written = any("torch.no_grad()" in s.text and "_(" in s.text for s in program.body[min(hooked, default=10**9) :])
    return written and difference.kind == "value" and difference.name.endswith(".grad")


def _ties(program: Program, difference: Difference) -> bool:
    """A gradient of one of several zeros that are equally large: errors of the probes, which are relative, part no zeros."""
    ops = re.search(r"topk\(|kthvalue\(|median\(", program.text())
    zeros = any((leaf.values == 0).sum() > 1 for leaf in program.leaves)
    return bool(ops) and zeros and difference.kind == "value" and difference.name.endswith(".grad")


def _joint_of_prelu(program: Program, difference: Difference) -> bool:
    """A second derivative of `prelu`, which PyTorch takes from the other side at 0 than the first one."""
    text = _all_text(program)
    is_gradient = difference.name.endswith(".grad") and difference.kind == "value"
    return is_gradient and "create_graph=True" in text and bool(re.search(r"PReLU\(|prelu\(", text))


def _defined_gradient(program: Program, difference: Difference) -> bool:
    """An error of PyTorch, which has no derivative of an op."""
    missing = r"expected \{.*derivative for '?(aten::)?\w+'? is not implemented"
    return difference.kind == "raises" and bool(re.search(missing, difference.text))


def _less_exact(program: Program, difference: Difference) -> bool:
    found = re.match(r"(-?[\d.e+-]+) at .*, expected (-?[\d.e+-]+),", difference.text)
    if difference.kind != "value" or not found:
        return False
    names = "bessel_|airy_|digamma|hardsigmoid" if difference.name.endswith(".grad") else "bessel_|airy_"
    off = abs(float(found[1]) - float(found[2])) / max(1.0, abs(float(found[2])))
    return off < 1e-6 and bool(re.search(names, program.text()))


def _rounding_decides(program: Program, difference: Difference) -> bool:
    """A sum that cancels is 0 in one library alone, and an op looks at it: one that counts zeros, or divides by it."""
    text = program.text()
    cancels = re.search(r"linalg\.(cross|inv|solve)\(|logaddexp2?\(|lgamma\(", text)
    is_count = difference.kind == "shape" or bool(re.match(r"(True|False|\d+) at", difference.text))
    looks = r"argwhere|nonzero|unique|\.all\(|\.any\(" if is_count else "remainder|fmod|floor_divide"
    return difference.kind in ("shape", "value") and bool(cancels) and bool(re.search(looks, text))


def _zero_for_none(program: Program, difference: Difference) -> bool:
    return difference.kind == "extra" and difference.name.endswith(".grad") and difference.text.startswith("only zeros")


_KEEP = frozenset(
    (
        *("attention", "attention_grad", "cross_entropy_rows", "mean_cross_entropy"),
        *("gru", "lstm", "rnn", "ndtr", "rms_norm", "tanhshrink"),
    )
)
"""Ops with one kernel, where PyTorch records several ops and saves what is between them."""

KNOWN = (
    Known(
        "keeps more for the gradient",
        "Attention keeps its operands and its result and cross entropy its logits: PyTorch keeps probabilities. Recurrent "
        "layers keep their result, a copy in PyTorch. `tanhshrink` "
        "and `ndtr` keep their operand, where PyTorch keeps the hyperbolic tangent and the scaled operand, and so does "
        "`rms_norm` for the gradient of its weight alone. A write to it between forward and backward pass is an error here and "
        "none there.",
        _keeps_more,
    ),
    Known(
        "a write that PyTorch does not notice",
        "A write to an operand of `kron` before the backward pass is an error here. PyTorch does not notice it, and computes "
        "with the new values.",
        _unnoticed,
    ),
    Known(
        "PyTorch copies",
        "`tensordot` of axes of length 1 keeps sums in PyTorch, which are copies, and its operand here. LSTMs, and "
        "layers with `batch_first`, keep a copy of their input on PyTorch's CPU, and a view of it here and on the device; "
        "attention, linear layers and cross entropy keep all operands there.",
        _copied,
    ),
    Known(
        "a gradient is a broadcast",
        "A gradient that `autograd.grad` returns may be a broadcast of one number in PyTorch, where a write to it is an error. "
        "Its elements are in memory of their own here.",
        _broadcast_in_pytorch,
    ),
    Known(
        "the gradient of padding",
        "With `create_graph` the gradient of padding by reflection or by the edge requires a gradient in PyTorch, which is 0, "
        "and none here: it is a sum of slices.",
        _edge_of_padding,
    ),
    Known(
        "at infinities and NaN",
        "Values and gradients at infinities, NaN and very large numbers are limits here, and NaN stays NaN, where PyTorch's "
        "formulas divide or subtract infinities: `limits.py` lists the ops.",
        at_a_limit,
    ),
    Known(
        "the sign of a zero",
        "The sign of the zero that `softshrink` makes of -0.0 depends in PyTorch on the position in the tensor, and norms and "
        "sums at indices of zeros have one sign or the other by the order of their terms; `copysign` and `atan2` show it.",
        _sign_of_zero,
    ),
    Known(
        "a second backward pass",
        "A graph whose nodes saved no tensor can be walked again. PyTorch refuses that for products with numbers, and for "
        "functions that save an operand although its shape is enough (`avg_pool2d`).",
        _walked_again,
    ),
    Known(
        "a hook of a view",
        "PyTorch gives a view a new node when its base was written to, also without gradients, and drops its hooks; they stay "
        "here, where the values of the tape are the same.",
        _hook_of_a_view,
    ),
    Known(
        "one of several zeros",
        "`topk`, `kthvalue` and `median` choose among equal elements, and the gradient goes there: PyTorch promises no order.",
        _ties,
    ),
    Known(
        "the joint of prelu",
        "At 0 PyTorch's gradient of `prelu` is that of the left side, and its second derivative that of the right side.",
        _joint_of_prelu,
    ),
    Known(
        "a gradient that PyTorch does not have",
        "Derivatives that PyTorch does not implement are defined here: zeros almost everywhere (`heaviside`, `floor_divide`), "
        "second derivatives (`cdist`, `hardsigmoid`), derivatives of sorted elements (`unique`).",
        _defined_gradient,
    ),
    Known(
        "PyTorch is less exact",
        "In double precision PyTorch's Bessel and Airy functions are off by up to 1e-6, its derivative of `digamma` by 1e-9, "
        "and its derivative of `hardsigmoid` is 1/6 in single precision.",
        _less_exact,
    ),
    Known(
        "rounding decides",
        "A sum that cancels, as in `cross(x, x)`, an inverse or `logaddexp(-1, -1)`, is 0 or a unit in the last place: "
        "`argwhere`, `unique` and `remainder` show which.",
        _rounding_decides,
    ),
    Known(
        "zeros for no gradient",
        "An argument that no result depends on has gradient 0 after a captured forward pass (as with `torch.compile`), and "
        "none after an eager one.",
        _zero_for_none,
    ),
)


def explained(program: Program, difference: Difference) -> str:
    """The name of the known difference that this is; empty if it is a finding."""
    return next((k.name for k in KNOWN if k.is_it(program, difference)), "")
