"""Recorded programs of ops over lists of tensors whose layouts are equal in each call, as in the steps of an optimizer.

An eager op describes each tensor again, and sets each argument of its kernel. A program does so once: a later call compares
layouts in C++, and sets only the arguments whose memory has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from polyhal.hal import dtypes
from polyhal.hal.compile.recording import Recording
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.layout import ALIGNMENT, Ref
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor
from polyhal.tensor import wrap as polyhal_tensor
from polyhal.torch import private
from polyhal.torch.counters import StepCounters
from polyhal.torch.tensors import storage_of

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.ops.opdef import OpDef

_offset_of: Callable[[torch.Tensor], int] = torch.Tensor.storage_offset  # type: ignore[assignment]
_MOST_LISTS = 4
"""Maximum number of lists that are kept for a tensor: a program may freeze parameters in turn."""
_MOST = 8
"""Maximum number of programs of the same tensors."""


class _Program(NamedTuple):
    executable: Executable
    numbers: list[float]
    """Numbers of the current call."""


class KnownLists:
    """Layouts of the tensors of a call, without the tensors, and the programs that were recorded for them."""

    def __init__(self, flat: Sequence[torch.Tensor], found: Sequence[Tensor]) -> None:
        """`found` are the tensors as Polyhal tensors."""
        self._is_equal = private.same_layouts(flat)
        self._specs = [x.ref.spec for x in found]
        self._refs: list[Ref | None] = [None] * len(found)
        """References of whole memories that had the layouts in the last call."""
        self._device = found[0].device
        self._programs: dict[Hashable, _Program | None] = {}
        """Programs by call; None for a call that was made once."""
        self.counters: StepCounters | None = None
        """Step counters of the tensors."""

    @staticmethod
    def of(flat: Sequence[torch.Tensor]) -> Iterable[KnownLists]:
        """Return the lists that were kept for the first of these tensors and their number, whatever the others are."""
        kept: dict[int, list[KnownLists]] = getattr(storage_of(flat[0]), "known_lists", {})
        return kept.get(len(flat), ())

    def keep(self, first: torch.Tensor) -> None:
        """Keep the lists for later calls, as long as the memory of their first tensor is allocated."""
        kept = storage_of(first).__dict__.setdefault("known_lists", {}).setdefault(len(self._specs), [])
        del kept[: 1 - _MOST_LISTS]
        kept.append(self)

    def tensors(self, flat: Sequence[torch.Tensor]) -> list[Tensor] | None:
        """Return as many tensors as Polyhal tensors; None if a layout or the device differs."""
        if not self._is_equal(*flat):
            return None
        found: list[Tensor] = [storage.root for storage in map(storage_of, flat)]
        offsets = map(_offset_of, flat)
        for i, (root, offset, known) in enumerate(zip(found, offsets, self._refs, strict=True)):
            ref = root.ref
            if ref is known and offset == ref.offset:
                continue
            spec = self._specs[i]
            if root.device is not self._device or ref.spec.dtype is dtypes.uint8:
                return None
            if offset == ref.offset and (ref.spec is spec or ref.spec == spec):
                self._refs[i] = ref
            elif spec.aligned and offset % ALIGNMENT:
                return None
            else:
                found[i] = polyhal_tensor(self._device, root.buffer, Ref(ref.handle, spec, offset))
        return found

    def run(
        self,
        op: OpDef,
        params: tuple[Any, ...],
        arrays: Sequence[Tensor],
        numbers: Sequence[float],
        outs: Sequence[int],
    ) -> bool:
        """Run an op of the arrays and numbers that writes the arrays at the positions `outs`.

        Returns False, and does nothing, for the first call with these parameters: most programs repeat a step.
        """
        key = params, tuple(map(type, numbers)), settings.key
        if dispatch.thread.executor is not dispatch.EAGER:
            return False
        if key not in self._programs:
            if len(self._programs) == _MOST:
                self._programs.clear()
            self._programs[key] = None
            return False
        program = self._programs[key]
        if program is None:
            program = self._programs[key] = self._recorded(op, params, numbers, outs)
        program.numbers[:] = numbers
        program.executable.run(arrays)
        return True

    def _recorded(self, op: OpDef, params: tuple[Any, ...], numbers: Sequence[float], outs: Sequence[int]) -> _Program:
        current = list(numbers)
        recording = Recording()
        with no_grad(), recording:
            arrays = [recording.placeholder(self._device, spec) for spec in self._specs]
            live = [
                recording.recorder.runtime_scalar(partial(current.__getitem__, i), f"number {i}")
                for i in range(len(current))
            ]
            dispatch.apply_into(op, (*arrays, *live), params, tuple(arrays[i] for i in outs))
            del arrays, live
        return _Program(recording.program(), current)
