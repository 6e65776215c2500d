"""Copies of saved results that the program overwrites, for ops that declare it (`copies_results` in hal/ops/gradient_rule.py).

The nodes that saved a result are listed with its buffer. A write first replaces their saved tensors by one shared copy.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from polyhal.hal.core import dispatch
from polyhal.hal.ops import FUNCTIONS

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.tape.tape import GradNode

_copy = FUNCTIONS["copy"]


def copy_before_write(buffer: Buffer, node: GradNode, name: str) -> None:
    """List a node with the buffer of the result that it saved as `name`."""
    listed = getattr(buffer, "savers", ())
    buffer.savers = (*listed, (weakref.ref(node), name))


def copy_saved(buffer: Buffer) -> None:
    """Replace the listed nodes' saved tensors in a buffer, which is about to be written to, by copies."""
    savers = getattr(buffer, "savers", None)
    if not savers:
        return
    buffer.savers = ()
    for ref, name in savers:
        node = ref()
        saved = None if node is None else node.saved.get(name)
        if node is None or saved is None or saved.buffer is not buffer or saved.version != buffer.version:
            continue
        copy = _copy(dispatch.frontend.wrap(node.device, buffer, saved.ref))
        node.saved[name] = saved._replace(buffer=copy.buffer, ref=copy.ref, version=copy.buffer.version)
