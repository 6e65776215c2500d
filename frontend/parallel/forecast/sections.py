"""Attribution of a captured pass's launches and memory to parts of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal.capture.result import StepInput
from polyhal.hal.device import Device
from polyhal.hal.scheduler.arena import LiveInterval, peak_bytes, usage
from polyhal.hal.scheduler.executable import Executable
from polyhal.hal.scheduler.plan import Arena

if TYPE_CHECKING:
    from polyhal.nn.module import Module
    from polyhal.parallel.forecast.recipes import ModelRecipe
    from polyhal.parallel.forecast.run_times import RunTimes
    from polyhal.parallel.forecast.trace import Section

_BEFORE, _AFTER = -1, -2
"""Parts outside of the layers: input and output side."""


class SectionFinder:
    """Divides a captured pass into sections.

    `sections` are the input side, layers, output side and loss of the forward pass, then of the backward pass, as in a
    `PassTrace`.
    """

    def __init__(
        self, recipe: ModelRecipe, model: Module, executable: Executable, times: RunTimes, device: Device
    ) -> None:
        from polyhal.parallel.forecast.trace import Section

        self._prefix = recipe.layer_prefix
        self._executable = executable
        self._graph = executable.graph
        self._arena = executable.plan.arenas.get(device, Arena())
        self._loss = self._producer(executable.captured.results[0])
        parts = self._parts()
        layers = max((part for part, _ in parts), default=_BEFORE) + 1
        self._sections: dict[tuple[int, bool], Section] = {
            (part, back): Section() for part in (_BEFORE, _AFTER, *range(layers)) for back in (False, True)
        }
        live = self._live()
        self.kept = self._kept(parts, live, layers)
        gradients = self._gradients(model, parts)
        self._add_memory(parts, live, layers, gradients)
        self._add_times(parts, times, gradients)
        least = peak_bytes(self._arena.intervals)
        self.overhead = self._arena.layout.nbytes / least if least else 1.0
        of = self._sections
        self.sections = (
            of[_BEFORE, False], [of[i, False] for i in range(layers)], of[_AFTER, False],
            of[_AFTER, True], [of[i, True] for i in range(layers)], of[_BEFORE, True],
        )  # fmt: skip

    def _producer(self, output: int) -> int:
        """Return the position of the node that makes an output."""
        graph = self._graph
        return graph.producer_index(graph.root(graph.outputs[output]))

    def _parts(self) -> list[tuple[int, bool]]:
        """Return for each node its part, and whether it belongs to the backward pass."""
        tags = [self._layer(node.origin.module if node.origin is not None else "") for node in self._graph.nodes]
        parts: list[tuple[int, bool]] = []
        for back, start, stop in ((False, 0, self._loss + 1), (True, self._loss + 1, len(tags))):
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

    def _live(self) -> np.ndarray:
        """Return the bytes of temporaries that are live at each node, without gradients that outlive the pass."""
        gradients = self._executable.plan.gradients
        live = np.zeros(len(self._graph.nodes) + 1, np.int64)
        intervals: list[LiveInterval] = [
            interval
            for owner, interval in zip(self._arena.owners, self._arena.intervals, strict=True)
            if not (owner.kind == "allocation" and owner.number in gradients)
        ]
        if intervals:
            start = max(0, min(i.first for i in intervals))
            found = usage(intervals)[: len(live) - start]
            live[start : start + len(found)] = found
        return live

    def _kept(self, parts: list[tuple[int, bool]], live: np.ndarray, layers: int) -> int:
        """Return the activations that a layer keeps: the growth of live bytes between the starts of two layers."""
        if not layers:
            return 0
        starts = [next(k for k, part in enumerate(parts) if part == (i, False)) for i in range(layers)]
        starts += [k for k, part in enumerate(parts) if part == (_AFTER, False)][:1]
        later = 2 if layers > 2 else min(1, len(starts) - 1)
        return max(0, int(live[starts[later]] - live[starts[later - 1]])) if later else 0

    def _add_memory(
        self, parts: list[tuple[int, bool]], live: np.ndarray, layers: int, gradients: dict[int, list[int]]
    ) -> None:
        complete: dict[tuple[int, bool], int] = {}
        for k, (part, back) in enumerate(parts):
            below = 0 if part == _BEFORE else layers if part == _AFTER else part
            section = self._sections[part, back]
            complete[part, back] = complete.get((part, back), 0) + sum(gradients.get(k, ()))
            own = int(live[k]) - below * self.kept
            section.own = max(section.own, own)
            section.own_with_gradients = max(section.own_with_gradients, own + complete[part, back])

    def _add_times(self, parts: list[tuple[int, bool]], times: RunTimes, gradients: dict[int, list[int]]) -> None:
        """Add launches, and an equal part of the host time for each."""
        from polyhal.parallel.forecast.trace import GradientEvent

        positions = {id(node): k for k, node in enumerate(self._graph.nodes)}
        pending = sorted(gradients.items())
        at = 0
        for node, seconds in times.launches:
            at = positions.get(id(node), at)
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
        captured, graph = self._executable.captured, self._graph
        outputs = {id(tensor): output for tensor, output in captured.live_outs}
        known: dict[int, str] = {id(p.buffer): name for name, p in model.named_parameters()}
        last = {part: k for k, (part, back) in enumerate(parts) if back}
        of_input = {
            source.position: i
            for i, source in enumerate(self._executable.plan.sources)
            if isinstance(source, StepInput)
        }
        found: dict[int, list[int]] = {}
        for gradient in captured.gradients:
            name = known.get(id(gradient.leaf.buffer))
            if name is None:
                continue
            if gradient.final is not None and id(gradient.final) in outputs:
                k = self._producer(outputs[id(gradient.final)])
            elif gradient.position in of_input and of_input[gradient.position] in graph.updates:
                k = graph.producer_index(graph.root(graph.updates[of_input[gradient.position]]))
            else:
                continue
            layer = self._layer(name)
            k = k if layer is None else min(k, last[layer])
            found.setdefault(max(k, 0), []).append(gradient.leaf.nbytes)
        return found
