"""HTML of tensors and modules for notebooks. All texts are escaped, and nothing refers to other files."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.byte_sizes import size_text

if TYPE_CHECKING:
    from polyhal.nn import Module, Parameter

_EDGE = 3
"""Rows and columns at each edge of an abridged matrix."""
_WHOLE = 2 * _EDGE + 1
"""Maximum length of an axis that is shown whole."""
_MOST_CHILDREN = 64
"""Maximum number of submodules of one module that are shown."""
_CELL = 'style="text-align:right;padding:1px 6px"'


def tensor_html(x: Any) -> str:
    """Return a line with shape, dtype, device and size, and a table with the last two axes of the first matrix, abridged.

    Only the elements that are shown are read from the device.
    """
    facts = [f"shape {tuple(x.shape)}", x.dtype.name, x.device.name, size_text(x.size * x.dtype.itemsize)]
    if x.requires_grad:
        facts.append("requires grad")
    head = f"<div><b>tensor</b> {escape(', '.join(facts))}</div>"
    if not x.size:
        return head
    matrix = x.detach()[(0,) * max(x.ndim - 2, 0)]
    rows = _abridged(matrix)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<div>[{'0, ' * (x.ndim - 2)}:, :]</div>" if x.ndim > 2 else ""
    return f'{head}{caption}<table style="border-collapse:collapse;font-family:monospace">{body}</table>'


def _abridged(x: Any) -> list[list[str]]:
    """Return the texts of a matrix, a vector or a number, with ellipses in place of inner rows and columns."""
    if x.ndim < 2:
        x = x.reshape(1, -1)
    texts: list[list[str]] = []
    for rows in _edges(x.shape[0]):
        blocks = [x[rows, columns].numpy() for columns in _edges(x.shape[1])]
        for parts in zip(*blocks, strict=True):
            inner = [["…"]] * (len(parts) - 1) + [[]]
            texts.append([t for part, gap in zip(parts, inner, strict=True) for t in [*map(_text, part), *gap]])
    if x.shape[0] > _WHOLE:
        texts.insert(_EDGE, ["⋮"] * len(texts[0]))
    return texts


def _edges(length: int) -> list[slice]:
    """Return the parts of an axis that are shown."""
    return [slice(0, length)] if length <= _WHOLE else [slice(0, _EDGE), slice(length - _EDGE, length)]


def _text(value: Any) -> str:
    kind = np.asarray(value).dtype.kind
    if kind in "fV":  # bfloat16 has the kind V
        return f"{float(value):.4g}"
    return f"{complex(value):.4g}" if kind == "c" else str(value)


def module_html(module: Module, is_lazy: Callable[[Parameter], bool]) -> str:
    """Return a tree of a module and its submodules with their parameter counts, which fold.

    Lazy parameters, which have no shape yet, are not counted.
    """
    known = [p for p in module.parameters() if not is_lazy(p)]
    total = sum(p.size for p in known)
    trainable = sum(p.size for p in known if p.requires_grad)
    nbytes = sum(p.size * p.dtype.itemsize for p in known)
    note = "" if trainable == total else f", {trainable:,} trainable"
    lazy = sum(1 for _ in module.parameters()) - len(known)
    note += f", and {lazy} without a shape yet" if lazy else ""
    head = f"<div><b>{escape(type(module).__name__)}</b> {total:,} parameters{note}, {size_text(nbytes)}</div>"
    return head + _tree(module, "", (), is_lazy)


def _tree(module: Module, name: str, owners: tuple[Module, ...], is_lazy: Callable[[Parameter], bool]) -> str:
    """Return the tree of a module inside of `owners`, the outermost first. One that contains itself is not repeated."""
    count = sum(p.size for p in module.parameters() if not is_lazy(p))
    label = f"{escape(name)}: " if name else ""
    extra = escape(module.extra_repr())
    title = f"{label}<code>{escape(type(module).__name__)}({extra})</code> <small>{count:,}</small>"
    children = [] if module in owners else list(module.named_children())
    margin = 'style="margin-left:1.2em"'
    if not children:
        return f"<div {margin}>{title}</div>"
    inner = "".join(
        _tree(child, child_name, (*owners, module), is_lazy) for child_name, child in children[:_MOST_CHILDREN]
    )
    if len(children) > _MOST_CHILDREN:
        inner += f"<div {margin}>and {len(children) - _MOST_CHILDREN} more</div>"
    opened = " open" if len(owners) < 2 else ""
    return f"<details{opened} {margin}><summary>{title}</summary>{inner}</details>"


__all__ = ["module_html", "tensor_html"]
