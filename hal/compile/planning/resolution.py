"""Resolution record of an op, for `explain`, the quarantine and tests."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from polyhal.hal.layout import Spec
from polyhal.hal.ops.schema import Specs


class ResolutionStep(enum.StrEnum):
    """Ways to run an op."""

    VIEW = "view"
    """No-op: the result is the input's memory in another layout."""
    NATIVE = "native"
    """A kernel for the whole op, from the backend's `lower`."""
    PROGRAM = "program"
    """A program for many ops, from the backend's `compile_graph`."""
    CORE = "core"
    """Members of the contract: arithmetic, fill, copy, upload."""
    COMPOSED = "composed"
    """The op's decomposition into other ops."""
    HOST = "host"
    """The NumPy reference, with the inputs downloaded and the results uploaded."""
    NOTHING = "nothing"
    """No-op: the outputs or the inputs have no elements."""


class LayoutClass(enum.StrEnum):
    """Class of memory layouts of an op's tensors. Most kernels are written for one of them."""

    CONTIGUOUS = "contiguous"
    UNALIGNED = "unaligned"
    """Contiguous, but at least one tensor starts off a vector boundary."""
    STRIDED = "strided"
    """At least one tensor has gaps, repeats elements, or has its elements in another order."""


@dataclass(slots=True)
class Resolution:
    """Resolution of one op: the chosen step, the reasons why earlier steps were skipped, and the parts of a decomposition."""

    op: str
    inputs: Specs
    how: str
    """Description of the step."""
    step: ResolutionStep | None = None
    """Chosen step; None until it is found."""
    outputs: tuple[Spec, ...] = ()
    recordable: bool = False
    """True if a run consists of launches only, so that a device can record it."""
    skipped: list[str] = field(default_factory=list)
    parts: list[Resolution] = field(default_factory=list)

    @property
    def specs(self) -> str:
        """Description of the inputs. Of many, repetitions are counted: 5 x (float32[7], float32[3])."""
        texts = ["none" if s is None else str(s) for s in self.inputs]
        return ", ".join(texts if len(texts) <= _MOST_INPUTS else _counted(texts))

    @property
    def dtype(self) -> str:
        """Subject of the op (see `subject`)."""
        return subject(self.inputs, self.outputs)

    @property
    def layout(self) -> LayoutClass:
        """Layout class that a kernel must handle."""
        return layout_of(self.inputs, self.outputs)

    @property
    def is_native(self) -> bool:
        """True if a kernel of the backend computes the whole op."""
        return self.step is ResolutionStep.NATIVE

    @property
    def is_composed(self) -> bool:
        """True if the op runs as the ops of its decomposition."""
        return self.step is ResolutionStep.COMPOSED

    def __iter__(self) -> Iterator[Resolution]:
        """Yield this resolution and all parts, recursively."""
        yield self
        for part in self.parts:
            yield from part

    def lines(self, indent: int = 0, known: frozenset[str] = frozenset()) -> list[str]:
        """Return one line per op, then its skipped steps and its parts. `known` reasons are not repeated."""
        pad = "  " * indent
        out = [f"{pad}{self.op}({self.specs}): {self.how}"]
        out += [f"{pad}  passed over {reason}" for reason in self.skipped if reason not in known]
        known |= frozenset(self.skipped)
        counts: dict[tuple[str, ...], int] = {}
        for part in self.parts:
            text = tuple(part.lines(indent + 1, known))
            counts[text] = counts.get(text, 0) + 1
        for text, count in counts.items():
            out += [text[0] + (f"  ({count} times)" if count > 1 else ""), *text[1:]]
        return out

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the parts of a decomposition."""
        return {
            "op": self.op,
            "inputs": [None if s is None else str(s) for s in self.inputs],
            "step": None if self.step is None else self.step.value,
            "how": self.how,
            "skipped": self.skipped,
            "parts": [part.to_json() for part in self.parts],
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


_MOST_INPUTS = 8
"""Maximum number of inputs that are described one by one."""


def _counted(texts: list[str]) -> Iterator[str]:
    """Yield the texts, with a sequence that repeats at once as its count and one copy; the longest repetitions first."""
    begin = 0
    while begin < len(texts):
        saved, period = 0, 1
        for length in range(1, (len(texts) - begin) // 2 + 1):
            last = begin + length
            while last < len(texts) and texts[last] == texts[last - length]:
                last += 1
            repeated = (last - begin) // length - 1
            if repeated * length > saved:
                saved, period = repeated * length, length
        part = ", ".join(texts[begin : begin + period])
        yield part if not saved else f"{saved // period + 1} x {part if period == 1 else f'({part})'}"
        begin += saved + period


def subject(inputs: Specs, outputs: tuple[Spec, ...]) -> str:
    """Return the name of the dtype that an op works on.

    It is the dtype of the first float tensor, else the dtype of the result if an input has it or no input is a tensor, else the
    dtype of the first input. So indices, conditions and statistics in a wider dtype do not count.
    """
    dtypes = [s.dtype for s in inputs if isinstance(s, Spec)]
    floats = [d for d in dtypes if d.is_floating_point]
    if floats:
        return floats[0].name
    result = outputs[0].dtype if outputs else None
    if result is not None and (result in dtypes or not dtypes):
        return result.name
    return dtypes[0].name if dtypes else ""


def layout_of(inputs: Specs, outputs: tuple[Spec, ...]) -> LayoutClass:
    """Return the layout class that a kernel for these tensors must handle."""
    tensors = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
    if not all(s.is_contiguous for s in tensors):
        return LayoutClass.STRIDED
    return LayoutClass.CONTIGUOUS if all(s.aligned for s in tensors) else LayoutClass.UNALIGNED
