"""A model as a table: output shapes, parameters, arithmetic and memory of each layer, counted in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from polyhal.creation import zeros
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.forwarding import ForwardingExecutor
from polyhal.hal.ops.call_flops import call_flops
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.module import Module
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


@dataclass
class LayerSummary:
    """Work of one module in a forward pass. Counts include its submodules."""

    name: str
    kind: str
    depth: int
    parameters: int
    calls: int = 0
    output_shapes: tuple[tuple[int, ...], ...] = ()
    """Of the last call."""
    output_bytes: int = 0
    flops: int = 0
    """Number of additions plus multiplications, by the cost rules of the ops; ops without a rule count as 0."""


@dataclass(frozen=True)
class ModelSummary:
    """The layers of a model in order, the model itself first; `print` shows a table."""

    layers: tuple[LayerSummary, ...]
    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    """Bytes of parameters and buffers."""

    def __str__(self) -> str:
        rows = [("layer", "output", "parameters", "FLOPs", "output bytes")]
        for layer in self.layers:
            last = layer.name.rpartition(".")[2]
            shapes = ", ".join(str(shape) for shape in layer.output_shapes) or "not called"
            label = f"{'  ' * layer.depth}{layer.kind}{f' ({last})' if last else ''}"
            rows.append((label, shapes, f"{layer.parameters:,}", f"{layer.flops:,}", f"{layer.output_bytes:,}"))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            "  ".join(
                cell.ljust(n) if i < 2 else cell.rjust(n) for i, (cell, n) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        rule = "-" * len(lines[0])
        totals = f"{self.parameters:,} parameters, {self.trainable_parameters:,} of them trainable"
        return "\n".join([lines[0], rule, *lines[1:], rule, f"{totals}; {self.parameter_bytes:,} bytes with buffers"])


class _CountingExecutor(ForwardingExecutor):
    """Counts arithmetic and notes the results of modules."""

    __slots__ = ("_flops", "_layers")

    fuses_later = True  # so that each op belongs to one module
    replays_graphs = False

    def __init__(self, base: dispatch.Executor, layers: dict[Module, LayerSummary]) -> None:
        super().__init__(base)
        self._flops = 0
        self._layers = layers

    def apply(self, op: Any, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        result = self.base.apply(op, inputs, params, device)
        operands = [getattr(getattr(x, "ref", None), "spec", None) for x in inputs]
        results = [x.ref.spec for x in (result if isinstance(result, tuple) else (result,))]
        self._flops += call_flops(op, operands, results, params)
        return result

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Tensor, ...], kwargs: dict[str, Any]
    ) -> Any:
        before = self._flops
        result = self.base.call_module(module, function, args, kwargs)
        layer = self._layers.get(module)
        if layer is not None:
            outputs = list(_tensors(result))
            layer.calls += 1
            layer.flops += self._flops - before
            layer.output_shapes = tuple(t.shape for t in outputs)
            layer.output_bytes += sum(t.size * t.dtype.itemsize for t in outputs)
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


@top_level
def summary(model: Module, *inputs: Any, **keywords: Any) -> ModelSummary:
    """Run `model(*inputs, **keywords)` once in evaluation, without gradients, and report the work of each layer.

    A tuple of numbers is replaced by float32 zeros of that shape on the model's device. Modes are restored.

    >>> print(summary(nn.Linear(3, 2, device="numpy"), (5, 3)))  # doctest: +SKIP
    """
    modules = list(model.named_modules())
    layers = {
        module: LayerSummary(name, type(module).__name__, name.count(".") + 1 if name else 0, module.count_parameters())
        for name, module in modules
    }
    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device if tensors else None
    arguments = [zeros(x, device=device) if _is_shape(x) else x for x in inputs]
    modes = [module.training for _, module in modules]
    previous = dispatch.thread.executor
    try:
        model.eval()
        dispatch.thread.executor = _CountingExecutor(previous, layers)
        with no_grad():
            model(*arguments, **keywords)
    finally:
        dispatch.thread.executor = previous
        for (_, module), mode in zip(modules, modes, strict=True):
            module.training = mode
    return ModelSummary(
        tuple(layers.values()),
        model.count_parameters(),
        model.count_parameters(trainable_only=True),
        sum(t.size * t.dtype.itemsize for t in tensors),
    )


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)
