"""`einsum`: sums of products, contracted pair by pair as batched matrix products.

Diagonals and single sums are taken first; then `contraction_order` chooses pairs. A pair becomes one `matmul` of views:
permutations and reshapes, which copy only where memory order forbids a view. The ops are planned once for each equation and
specs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from polyhal.hal import layout
from polyhal.hal.layout import Spec, place
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.diagonal import diagonal_view
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.contraction_order import contraction_order
from polyhal.hal.ops.linear_algebra.einsum_labels import Label, Labels, equation_of, failure, parse
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.linear_algebra.op_sequence import OpSequence
from polyhal.hal.ops.pointwise.arithmetic import multiply
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.reductions.sums import sum_

Sizes = dict[Label, int]
Term = tuple[int, Labels]
"""A value of the sequence and the labels of its axes, which differ."""


@composite(method=False, returns=Returns.COPY)
def einsum(equation: Any, *operands: Any) -> Any:
    """Sum of products over labelled axes: `einsum("bij,bjk->bik", x, y)` is a batched matrix product.

    Letters label axes; a repeated letter in one operand takes the diagonal, letters absent from the result are summed, and
    `...` stands for axes that broadcast. Without `->` the result has the letters that occur once, sorted. Operands and their
    labels may also alternate: `einsum(x, [0, 1], y, [1, 2], [0, 2])`. Raises ShapeError for equations that do not fit.

    >>> polyhal.einsum("ij,j->i", polyhal.tensor([[1, 2], [3, 4]]), polyhal.tensor([10, 1])).tolist()
    [12, 34]
    """
    if not isinstance(equation, str):
        equation, operands = equation_of((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return plan_einsum(equation, tuple(x.spec for x in operands)).run(operands)


@lru_cache(1024)
def plan_einsum(equation: str, specs: tuple[Spec, ...]) -> OpSequence:
    """The ops that evaluate an equation for operands of these specs."""
    plan = OpSequence(specs)
    labels, output = parse(equation, tuple(s.ndim for s in specs))
    sizes = _sizes(equation, labels, specs)
    terms = [_simplified(plan, (i, term), sizes) for i, term in enumerate(labels)]
    for i, term in enumerate(terms):
        terms[i] = _summed(plan, term, {label for k, t in enumerate(terms) if k != i for label in t[1]} | set(output))
    order = contraction_order(tuple(frozenset(t) for _, t in terms), frozenset(output), tuple(sizes.items()))
    for i, j in order:
        first, second = terms[i], terms[j]
        del terms[j], terms[i]
        needed = {label for _, term in terms for label in term} | set(output)
        terms.append(_contracted(plan, first, second, needed, output, sizes))
    plan.result = _arranged(plan, terms[0], output)
    return plan


def _sizes(equation: str, labels: Sequence[Labels], specs: Sequence[Spec]) -> Sizes:
    """The length of each label's axes, not counting those of length 1, which broadcast."""
    sizes: Sizes = {}
    for term, spec in zip(labels, specs, strict=True):
        for label, n in zip(term, spec.shape, strict=True):
            if sizes.setdefault(label, n) == 1:
                sizes[label] = n
            elif n not in (1, sizes[label]):
                name = label if isinstance(label, str) else "..."
                raise failure(f"{name!r} in {equation!r} is {sizes[label]} in one operand and {n} in another")
    return sizes


def _simplified(plan: OpSequence, term: Term, sizes: Sizes) -> Term:
    """The diagonal over repeated labels, without the axes that are broadcast."""
    x, labels = term
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            m, n = plan.specs[x].shape[a], plan.specs[x].shape[b]
            if m != n:
                raise failure(f"{label!r} labels axes of length {m} and {n} of one operand")
            x = plan.add(diagonal_view, (x,), 0, a, b)
            labels = (*(n for i, n in enumerate(labels) if i not in (a, b)), label)
    shape = plan.specs[x].shape
    stretched = [label for label, n in zip(labels, shape, strict=True) if n == 1 and sizes[label] != 1]
    if stretched:
        labels = tuple(label for label in labels if label not in stretched)
        x = plan.add(reshape, (x,), tuple(sizes[label] for label in labels))
    return x, labels


def _summed(plan: OpSequence, term: Term, needed: set[Label]) -> Term:
    """A term summed over the labels that nothing else has."""
    x, labels = term
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return term
    dtype = plan.specs[x].dtype
    x = plan.add(sum_, (x,), axes)
    if plan.specs[x].dtype is not dtype:
        x = plan.add(cast, (x,), dtype)
    return x, tuple(label for label in labels if label in needed)


def _contracted(plan: OpSequence, first: Term, second: Term, needed: set[Label], output: Labels, sizes: Sizes) -> Term:
    """The product of two terms, summed over the labels that nothing else needs."""
    common = [label for label in first[1] if label in second[1]]
    inner = [label for label in common if label not in needed]
    if not inner:
        return _multiplied(plan, first, second, output)
    batch = _batch(plan, (first, second), _in_order([label for label in common if label in needed], output))
    rows, columns = (
        _in_order([label for label in labels if label not in common], output) for _, labels in (first, second)
    )
    lead = tuple(label for axis in batch for label in axis)
    if not _agrees((*lead, *rows, *columns), output) and _agrees((*lead, *columns, *rows), output):
        first, second, rows, columns = second, first, columns, rows

    def copied(order: list[Label]) -> int:
        return _copied(plan, first, (*batch, rows, order)) + _copied(plan, second, (*batch, order, columns))

    inner = min((inner, [label for label in second[1] if label in inner]), key=copied)
    x = _grouped(plan, first, (*batch, rows, inner), sizes)
    y = _grouped(plan, second, (*batch, inner, columns), sizes)
    labels = (*lead, *rows, *columns)
    return _reshaped(plan, plan.add(op_matmul, (x, y)), tuple(sizes[label] for label in labels)), labels


def _in_order(labels: list[Label], output: Labels) -> list[Label]:
    """Labels in the order in which the result has them, if it has them all."""
    return sorted(labels, key=output.index) if set(labels) <= set(output) else labels


def _agrees(labels: Labels, output: Labels) -> bool:
    """Return whether labels that the result has come in its order."""
    return [label for label in output if label in labels] == [label for label in labels if label in output]


def _multiplied(plan: OpSequence, first: Term, second: Term, output: Labels) -> Term:
    """The product of two terms without a sum, in the result's order where that has the labels."""
    labels = tuple(_in_order(list(dict.fromkeys((*first[1], *second[1]))), output))
    x, y = _spread(plan, first, labels), _spread(plan, second, labels)
    return plan.add(multiply, (x, y)), labels


def _spread(plan: OpSequence, term: Term, labels: Labels) -> int:
    """A term with axes of length 1 for the labels that it lacks, but for leading ones."""
    present = tuple(label for label in labels if label in term[1])
    x = _arranged(plan, term, present)
    lengths = dict(zip(present, plan.specs[x].shape, strict=True))
    lead = labels.index(present[0]) if present else len(labels)
    return _reshaped(plan, x, tuple(lengths.get(label, 1) for label in labels[lead:]))


def _arranged(plan: OpSequence, term: Term, target: Labels) -> int:
    """A term with its axes in the order of `target`."""
    x, labels = term
    return x if labels == target else plan.add(permute, (x,), tuple(labels.index(label) for label in target))


def _reshaped(plan: OpSequence, x: int, shape: tuple[int, ...]) -> int:
    return x if plan.specs[x].shape == shape else plan.add(reshape, (x,), shape)


Groups = tuple[list[Label], ...]
"""The labels of each axis of a factor: batch axes, then two matrix axes."""
_BATCH_AXES = 3
"""Axes of a batch that kernels read without a copy."""


def _batch(plan: OpSequence, terms: tuple[Term, Term], labels: list[Label]) -> list[list[Label]]:
    """The batch axes of a product: an axis for each label, or one for all where neighbours in memory are of the batch.

    Matrices with large strides are read slowly, and merging axes copies them.
    """
    scattered = any(_neighbours(plan.specs[x], axes) in labels for x, axes in terms)
    if len(labels) > 1 and (len(labels) > _BATCH_AXES or scattered):
        return [labels]
    return [[label] for label in labels]


def _neighbours(spec: Spec, labels: Labels) -> Label | None:
    """The label of the axis along which elements are neighbours in memory."""
    axes = zip(labels, spec.shape, spec.strides, strict=True)
    return next((label for label, n, stride in axes if stride == 1 and n > 1), None)


def _grouped(plan: OpSequence, term: Term, groups: Groups, sizes: Sizes) -> int:
    """A term as a factor of `matmul`, where each group of labels is one axis."""
    x = _arranged(plan, term, tuple(label for group in groups for label in group))
    return _reshaped(plan, x, tuple(math.prod(sizes[label] for label in group) for group in groups))


def _copied(plan: OpSequence, term: Term, groups: Groups) -> int:
    """The number of elements that grouping a term copies."""
    spec, labels = plan.specs[term[0]], term[1]
    if all(len(group) <= 1 for group in groups):
        return 0
    axes = tuple(labels.index(label) for group in groups for label in group)
    arranged = place(spec, layout.permute(spec, axes))
    shape = tuple(math.prod(spec.shape[labels.index(label)] for label in group) for group in groups)
    return 0 if layout.reshape(arranged, shape) is not None else spec.size
