"""Intended errors of only one library: each rule looks at one statement. `known.py` has the reasons."""

from __future__ import annotations

import re

from benchmarks.reliability.programs.difference import Difference, OneError
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.trace import Step, trace

_KEEP = frozenset(
    (
        *("attention", "attention_grad", "cross_entropy_rows", "mean_cross_entropy"),
        *("gru", "lstm", "rnn", "ndtr", "rms_norm", "tanhshrink"),
    )
)
"""Ops with one kernel, where PyTorch records several ops and saves their intermediate results."""
_CHANGED = re.compile(r"^\[(\w+)\] '(\w+)' was changed in place after it was saved")
_OTHER_NODES = r"batch_first=True|[lL]inear\(|cross_entropy\(|scaled_dot_product_attention\(|rms_norm\(|RMSNorm\("
_REFUSED = re.compile(r"modified by an inplace operation: \[polyhal|Trying to backward through the graph a second time")
_RUN_AGAIN = re.compile(r"^\[checkpoint\] the function did something else .* an input of \w+ was changed in place")
_NO_RESULT = re.compile(
    r"'NoneType' object has no attribute|were not used to make the outputs|a leaf Variable that requires grad"
)


def keeps_more(program: Program, difference: Difference) -> bool:
    """An error here, by an op that saves an operand or its result where PyTorch saves numbers in between."""
    return _saved(difference)[0] in _KEEP


def unnoticed(program: Program, difference: Difference) -> bool:
    """An error here at a write to an operand of `kron`, which is a product."""
    return _saved(difference) in (("multiply", "x"), ("multiply", "y")) and bool(_steps(program, difference, r"kron\("))


def copied(program: Program, difference: Difference) -> bool:
    """An error only on the device, by an op whose operand PyTorch copies, or does not keep, on the CPU."""
    op, operand = _saved(difference)
    if op == "matmul":
        products = _steps(program, difference, r"matmul\(| @ ")
        return bool(_steps(program, difference, r"tensordot\(")) or any(map(_is_folded, products))
    if (op, operand) == ("linear", "x"):
        products = _steps(program, difference, r"[lL]inear\(")
        return bool(_steps(program, difference, r"batch_first=True|nn\.LSTM\(")) or any(map(_is_folded, products))
    message = _message(difference, is_ours=True)
    if not _REFUSED.search(message):
        return False
    is_recurrent = bool(re.search(r"output \d of _Layer\b", message))
    return "ScaledDotProd" in message or is_recurrent or bool(_steps(program, difference, _OTHER_NODES))


def checkpoint_of_changed_inputs(program: Program, difference: Difference) -> bool:
    """An error only here, at a checkpoint that runs again after an input was overwritten."""
    again = bool(_RUN_AGAIN.search(_message(difference, is_ours=True)))
    return again and bool(_steps(program, difference, r"checkpoint\("))


def difference_of_nothing(program: Program, difference: Difference) -> bool:
    """An error of one library, at a statement with the result of `diff` of an axis of length 0: PyTorch's is its argument."""
    if not isinstance(difference, OneError) or not _NO_RESULT.search(difference.error.message):
        return False
    results = trace(program, difference.call).differences_of_nothing()
    return bool(results & set(program.body[difference.position].names))


def view_in_pytorch(program: Program, difference: Difference) -> bool:
    """An error only on PyTorch's device, at a write to a result of `max_pool1d` that was computed within `no_grad`."""
    refused = "A view was created in no_grad mode" in _message(difference, is_ours=True)
    return refused and bool(_steps(program, difference, r"max_pool1d\("))


def broadcast_in_pytorch(program: Program, difference: Difference) -> bool:
    """PyTorch's error at a write to what `autograd.grad` returned."""
    shared = "more than one element of the written-to tensor" in _message(difference, is_ours=False)
    return shared and bool(_steps(program, difference, r"autograd\.grad\("))


def defined_gradient(program: Program, difference: Difference) -> bool:
    """An error of PyTorch, which has no derivative of an op."""
    return bool(re.search(r"derivative for '?(aten::)?\w+'? is not implemented", _message(difference, is_ours=False)))


def second_gradient_of_attention(program: Program, difference: Difference) -> bool:
    """An error only on PyTorch's device, at a second gradient of attention."""
    return "_fused_attention_overrideable_backward is not implemented" in _message(difference, is_ours=True)


def zeros_off_the_tape(program: Program, difference: Difference) -> bool:
    """An error here at a derivative of zeros: the gradient of a tensor before a write to all of its elements."""
    if "is not on the tape" not in _message(difference, is_ours=True):
        return False
    steps = _steps(program, difference, r"autograd\.grad\(.*create_graph=True")
    written = _steps(program, difference, r"^\w+\[.*\] = ")
    zeros = any(not a.any() for s in steps for n, a in s.after.items() if n not in s.before)
    return zeros and any(_is_written_whole(s) for s in written)


def _is_written_whole(step: Step) -> bool:
    """Return whether the memory that a statement wrote to has one value, as after a write of a number to all elements."""
    return any(a.size and (a == a.flat[0]).all() for a in step.after.values())


def _message(difference: Difference, *, is_ours: bool) -> str:
    """Return the text of an error of one library; empty for other differences."""
    return difference.error.message if isinstance(difference, OneError) and difference.is_ours is is_ours else ""


def _saved(difference: Difference) -> tuple[str, str]:
    """Return the op and the operand by whose change Polyhal refused a gradient; empty for other differences."""
    found = _CHANGED.match(_message(difference, is_ours=True))
    return (found[1], found[2]) if found else ("", "")


def _steps(program: Program, difference: Difference, calls: str) -> list[Step]:
    """Return the calls of a pattern that the statement of an error depends on."""
    if not isinstance(difference, OneError):
        return []
    return [s for s in trace(program, difference.call).behind_statement(difference.position) if s.calls(calls)]


def _is_folded(step: Step) -> bool:
    """Return whether an operand of a product has axes that PyTorch joins, in an order for which it copies."""
    return any(x.ndim > 2 and step.is_joined_by_a_copy(n) for n, x in step.before.items())
