"""How an op came to run the way it does: the record that `explain` prints, the quarantine reads and tests check."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from polyhal.hal.layout import Spec
from polyhal.hal.ops.schema import Specs


class ResolutionStep(enum.StrEnum):
    """The ways in which an op may run."""

    VIEW = "view"
    """Nothing runs: the result is the input's memory in another layout."""
    NATIVE = "native"
    """A kernel for the whole op, from the backend's `lower`."""
    CORE = "core"
    """Members of the contract: arithmetic, fill, copy, upload."""
    COMPOSED = "composed"
    """The op's decomposition into other ops."""
    HOST = "host"
    """The NumPy reference, with the inputs downloaded and the results uploaded."""
    NOTHING = "nothing"
    """There is nothing to compute: a tensor without elements is involved."""


class LayoutClass(enum.StrEnum):
    """What the memory of an op's tensors looks like to a kernel: kernels are commonly written for one of these."""

    CONTIGUOUS = "contiguous"
    UNALIGNED = "unaligned"
    """Contiguous, but some tensor starts off a vector boundary."""
    STRIDED = "strided"
    """Some tensor has gaps, repeats elements, or is in another order."""


@dataclass(slots=True)
class Resolution:
    """How one op runs: the step that was taken, why earlier steps were skipped, and the parts of a decomposition."""

    op: str
    inputs: Specs
    how: str
    """The step in words."""
    step: ResolutionStep | None = None
    """None until a step is found."""
    outputs: tuple[Spec, ...] = ()
    recordable: bool = False
    """Whether a run consists of launches alone, so that a device can record it."""
    skipped: list[str] = field(default_factory=list)
    parts: list[Resolution] = field(default_factory=list)

    @property
    def specs(self) -> str:
        """The inputs in words."""
        return ", ".join("none" if s is None else str(s) for s in self.inputs)

    @property
    def dtype(self) -> str:
        """The subject of the op (see `subject`)."""
        return subject(self.inputs, self.outputs)

    @property
    def layout(self) -> LayoutClass:
        """The class of layout that a kernel has to handle."""
        return layout_of(self.inputs, self.outputs)

    @property
    def is_native(self) -> bool:
        """Whether a kernel of the backend computes the whole op."""
        return self.step is ResolutionStep.NATIVE

    @property
    def is_composed(self) -> bool:
        """Whether the op runs as the ops of its decomposition."""
        return self.step is ResolutionStep.COMPOSED

    def __iter__(self) -> Iterator[Resolution]:
        """This resolution and all parts, recursively."""
        yield self
        for part in self.parts:
            yield from part

    def lines(self, indent: int = 0, known: frozenset[str] = frozenset()) -> list[str]:
        """One line per op, then why earlier steps were skipped, and the parts. `known` reasons are not repeated."""
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

    def __str__(self) -> str:
        return "\n".join(self.lines())


def subject(inputs: Specs, outputs: tuple[Spec, ...]) -> str:
    """The name of the dtype that an op works on: of its first float tensor, else of the result if inputs have that dtype.

    So indices, conditions and statistics in a wider dtype do not count.
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
    """The class of layout that a kernel for these tensors has to handle."""
    tensors = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
    if not all(s.is_contiguous for s in tensors):
        return LayoutClass.STRIDED
    return LayoutClass.CONTIGUOUS if all(s.aligned for s in tensors) else LayoutClass.UNALIGNED
