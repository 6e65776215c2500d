"""Attribution of a captured pass's launches and memory to parts of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.profiler import StepOutline

if TYPE_CHECKING:
    from polyhal.forecast.recipes import ModelRecipe
    from polyhal.forecast.run_times import RunTimes
    from polyhal.forecast.trace import Section
    from polyhal.nn import Module

_BEFORE, _AFTER = -1, -2
"""Parts outside of the layers: input and output side."""


class SectionFinder:
    """Divides a captured pass into sections.

    `sections` are the input side, layers, output side and loss of the forward pass, then of the backward pass, as in a
    `PassTrace`.
    """

    def __init__(self, recipe: ModelRecipe, model: Module, outline: StepOutline, times: RunTimes) -> None:
        from polyhal.forecast.trace import Section

        self._prefix = recipe.layer_prefix
        self._outline = outline
        parts = self._parts()
        layers = max((part for part, _ in parts), default=_BEFORE) + 1
        self._sections: dict[tuple[int, bool], Section] = {
            (part, back): Section() for part in (_BEFORE, _AFTER, *range(layers)) for back in (False, True)
        }
        self.kept = self._kept(parts, layers)
        gradients = self._gradients(model, parts)
        self._add_memory(parts, layers, gradients)
        self._add_times(parts, times, gradients)
        of = self._sections
        self.sections = (
            of[_BEFORE, False],
            [of[i, False] for i in range(layers)],
            of[_AFTER, False],
            of[_AFTER, True],
            [of[i, True] for i in range(layers)],
            of[_BEFORE, True],
        )

    def _parts(self) -> list[tuple[int, bool]]:
        """Return for each node its part, and whether it belongs to the backward pass."""
        backward = self._outline.backward
        tags = [self._layer(module) for module in self._outline.modules]
        parts: list[tuple[int, bool]] = []
        for back, start, stop in ((False, 0, backward), (True, backward, len(tags))):
            tagged = [k for k in range(start, stop) if tags[k] is not None]
            first, last = (tagged[0], tagged[-1]) if tagged else (stop, stop)
            # The forward pass begins with the input side, the backward pass with the output side.
            outer = (_AFTER, _BEFORE) if back and self._prefix else (_BEFORE, _AFTER if self._prefix else _BEFORE)
            current = outer[0]
            for k in range(start, stop):
                tag = tags[k]
                if k < first:
                    current = outer[0]
                elif k > last:
                    current = outer[1]
                elif tag is not None:
                    current = tag
                parts.append((current, back))
        return parts

    def _layer(self, module: str) -> int | None:
        """Return the number of a module's layer; None outside of the layers."""
        if not self._prefix or not module.startswith(self._prefix):
            return None
        return int(module.removeprefix(self._prefix).partition(".")[0])

    def _kept(self, parts: list[tuple[int, bool]], layers: int) -> int:
        """Return the activations that a layer keeps: the growth of live bytes between the starts of two layers."""
        if not layers:
            return 0
        starts = [next(k for k, part in enumerate(parts) if part == (i, False)) for i in range(layers)]
        starts += [k for k, part in enumerate(parts) if part == (_AFTER, False)][:1]
        live = self._outline.live
        later = 2 if layers > 2 else min(1, len(starts) - 1)
        return max(0, int(live[starts[later]] - live[starts[later - 1]])) if later else 0

    def _add_memory(self, parts: list[tuple[int, bool]], layers: int, gradients: dict[int, list[int]]) -> None:
        complete: dict[tuple[int, bool], int] = {}
        for k, (part, back) in enumerate(parts):
            below = 0 if part == _BEFORE else layers if part == _AFTER else part
            section = self._sections[part, back]
            complete[part, back] = complete.get((part, back), 0) + sum(gradients.get(k, ()))
            own = int(self._outline.live[k]) - below * self.kept
            section.own = max(section.own, own)
            section.own_with_gradients = max(section.own_with_gradients, own + complete[part, back])

    def _add_times(self, parts: list[tuple[int, bool]], times: RunTimes, gradients: dict[int, list[int]]) -> None:
        """Add launches, and an equal part of the host time for each."""
        from polyhal.forecast.trace import GradientEvent

        pending = sorted(gradients.items())
        at = 0
        for node, seconds in times.launches:
            position = self._outline.position(node)
            at = at if position is None else position
            section = self._sections[parts[at]]
            section.seconds += seconds
            section.host_seconds += times.host / len(times.launches)
            while pending and pending[0][0] <= at:
                section.gradients += [GradientEvent(section.seconds, n) for n in pending.pop(0)[1]]

    def _gradients(self, model: Module, parts: list[tuple[int, bool]]) -> dict[int, list[int]]:
        """Return the bytes of the gradients that each node completes, by position.

        One op may complete small gradients of many layers. A data-parallel step reads gradients layer by layer, so there each
        is complete with its own layer; the same is assumed here.
        """
        known: dict[int, str] = {id(p.buffer): name for name, p in model.named_parameters()}
        last = {part: k for k, (part, back) in enumerate(parts) if back}
        found: dict[int, list[int]] = {}
        for leaf, completed in self._outline.gradients:
            name = known.get(id(leaf.buffer))
            if name is not None:
                layer = self._layer(name)
                k = completed if layer is None else min(completed, last[layer])
                found.setdefault(max(k, 0), []).append(leaf.nbytes)
        return found
