"""Pipelines: a model in stages on several devices that process successive micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError, message
from polyhal.mixed_precision import autocast, autocast_dtype
from polyhal.nn.container import Sequential
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter, relocate
from polyhal.nn.state import LoadResult
from polyhal.parallel.crossing import Crossing
from polyhal.parallel.micro_batches import arguments_of, batch_size, join_rows, sizes_of, split_rows
from polyhal.parallel.resumable import ResumableCall
from polyhal.parallel.schedule import PipelineTask, ScheduleName, stage_tasks, timeline
from polyhal.parallel.sharded_module import ShardedModule
from polyhal.parallel.stage_executor import SharedTensors, StageExecutor, StageLayout, layout_of
from polyhal.tape.engine import backward_to
from polyhal.tape.modes import enable_grad, no_grad
from polyhal.tensor import Tensor

LossFunction = Callable[[Any, Any], Tensor]
"""Function of outputs and targets that returns a scalar."""


class Pipeline:
    """A model in stages, one per device, that trains on micro-batches: stages work on different micro-batches at a time.

    `stages` is a list of modules that follow one another, such as slices of a Sequential; or any model, with `cuts`: the
    names of the modules at which all stages but the first begin, in the order in which `forward` calls them (numbers for a
    Sequential). The model's own `forward` runs, suspended at the end of each stage, so it needs no change. Parameters and
    buffers move to the device of their stage and remain the same objects under the same names: optimizers and state dicts are
    those of the model. `placement` maps names of parameters and buffers to stages, for tensors on another stage than their
    module. `micro_batches` is a number of micro-batches, or their sizes. With the schedule "1f1b" a stage has at most as many
    micro-batches in flight as there are stages from it to the end, with "gpipe" all. Raises ValueError, also for layers of
    `tensor_parallel`, and TypeError for stages that are not modules.

    >>> model = polyhal.nn.Sequential(polyhal.nn.Linear(4, 8), polyhal.nn.Tanh(), polyhal.nn.Linear(8, 2))
    >>> pipeline = polyhal.parallel.Pipeline([model[:2], model[2:]], ["numpy", "numpy"], micro_batches=2)
    >>> loss = pipeline.forward_backward(polyhal.ones(6, 4), polyhal.zeros(6, 2), polyhal.nn.functional.mse_loss)
    >>> model[0].weight.grad.shape
    (8, 4)
    """

    def __init__(
        self,
        stages: Module | Sequence[Module],
        devices: Sequence[Device | str],
        micro_batches: int | Sequence[int],
        schedule: ScheduleName = "1f1b",
        *,
        cuts: Sequence[str | int] | None = None,
        placement: Mapping[str, int] | None = None,
    ) -> None:
        self.devices = tuple(map(Device, devices))
        counts = [micro_batches] if isinstance(micro_batches, int) else list(micro_batches)
        if not counts or min(counts) < 1 or not self.devices:
            problem = f"{len(self.devices)} devices, micro_batches is {micro_batches}"
            raise ValueError(message("Pipeline", problem, expected="at least one of each"))
        self.micro_batches = micro_batches
        stage_tasks(schedule, 0, 1, 1)  # raises for unknown names
        self.schedule: ScheduleName = schedule
        self.module, names = _joined(stages, cuts)
        for name, module in self.module.named_modules():
            if isinstance(module, ShardedModule):
                problem = f"{name} is divided among {len(module.group.devices)} devices"
                raise ValueError(message("Pipeline", problem, expected="layers on one device each"))
        self._layout = layout_of(self.devices, self.module, names)
        self.stage_of = _homes(self.module, self._layout) | dict(placement or {})
        """The stage of each parameter and buffer, by name."""
        for name, x in (*self.module.named_parameters(), *self.module.named_buffers()):
            device = self.devices[self.stage_of[name]]
            if x.device is not device:
                relocate(x, device, None)

    # --- running ----------------------------------------------------------------------------------------------------

    def forward_backward(
        self,
        inputs: Any,
        targets: Tensor,
        loss_function: LossFunction,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> Tensor:
        """Run all micro-batches forward and backward, adding gradients to `.grad` of parameters; return the loss, detached.

        `inputs` (a tensor, a tuple of arguments, or a dictionary of keyword arguments) and `targets` (any tree of tensors)
        have the same number of rows, divided among the micro-batches. `loss_function(outputs, targets)` is called for each
        micro-batch. With `reduction="mean"`, its results are means over rows and are weighted by rows, so that loss and
        gradients are those of the whole batch; with "sum" they are added. Raises ShapeError, PipelineError if the model does
        not call its stages in order, and AutogradError.
        """
        sizes = sizes_of(batch_size((inputs, targets)), self.micro_batches)
        weights = [1.0 if reduction == "sum" else size / sum(sizes) for size in sizes]
        step = _PipelineStep(self, sizes, inputs, targets, loss_function, weights)
        try:
            return step.run([t.task for t in timeline(self.schedule, len(self.devices), len(sizes))])
        finally:
            step.end()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the model forward, a micro-batch at a time, and return its outputs for the whole batch, on the last device.

        With gradients enabled the outputs are on one tape across all devices; `backward` on them keeps all micro-batches in
        memory. Raises ShapeError and PipelineError.
        """
        sizes = sizes_of(batch_size((inputs, keywords)), self.micro_batches)
        shared = SharedTensors(len(sizes))
        outputs = []
        for number, (arguments, options) in enumerate(split_rows((inputs, keywords), sizes)):
            dtype = autocast_dtype()
            with autocast(enabled=False):
                executor = StageExecutor(dispatch.thread.executor, self._layout, shared, number, None)
            with dispatch.executing(executor), _autocast(dtype), dispatch.default_device(self.devices[0]):
                outputs.append(self.module(*arguments, **options))
            executor.finish()
        return join_rows(outputs)

    # --- the model ----------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[Parameter]:
        """Iterate over the model's parameters, shared ones once."""
        return self.module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the model's parameters with the names that they have in it."""
        return self.module.named_parameters()

    def state_dict(self) -> dict[str, Any]:
        """Return the model's state dict. The tensors are on the devices of their stages."""
        return self.module.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Copy a state of the unsplit model to the stages. Raises StateDictError."""
        return self.module.load_state_dict(state_dict, strict)

    def train(self, mode: bool = True) -> Self:
        """Set training mode, or inference mode with `mode=False`."""
        self.module.train(mode)
        return self

    def eval(self) -> Self:
        """Set inference mode."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or to zeros."""
        self.module.zero_grad(set_to_none)

    def __repr__(self) -> str:
        lines = [f"{self.schedule} pipeline of {len(self.devices)} stages, micro_batches={self.micro_batches}"]
        begins = ["the beginning", *self._layout.names.values()]
        lines += [f"  {i} on {d.name}, from {b}" for i, (d, b) in enumerate(zip(self.devices, begins, strict=True))]
        return "\n".join(lines)


class _MicroBatch:
    """One micro-batch in progress."""

    def __init__(self, pipeline: Pipeline, shared: SharedTensors, number: int, call: Callable[[], Tensor]) -> None:
        self._dtype = autocast_dtype()
        with autocast(enabled=False):
            base = dispatch.thread.executor
        self._call = ResumableCall(lambda: self._forward(call), pipeline.devices)
        self.executor = StageExecutor(base, pipeline._layout, shared, number, self._call.pause)
        self._device = pipeline.devices[0]
        self._started = False

    def forward(self) -> None:
        """Run the next stage."""
        if self._started:
            self.executor.receive()
        self._started = True
        with enable_grad():
            self._call.resume()

    @property
    def loss(self) -> Tensor:
        """Result of the last stage."""
        result: Tensor = self._call.result
        return result

    def release(self) -> None:
        """Drop the result, or end an incomplete call."""
        self._call.abandon()
        self._call.result = None

    def _forward(self, call: Callable[[], Tensor]) -> Tensor:
        with dispatch.executing(self.executor), _autocast(self._dtype), dispatch.default_device(self._device):
            loss = call()
        self.executor.finish()
        return loss


class _PipelineStep:
    """One call of `Pipeline.forward_backward`."""

    def __init__(
        self,
        pipeline: Pipeline,
        sizes: Sequence[int],
        inputs: Any,
        targets: Tensor,
        loss_function: LossFunction,
        weights: Sequence[float],
    ) -> None:
        self._weights = weights
        self._last = len(pipeline.devices) - 1
        self._shared = SharedTensors(len(sizes))
        self._total: Tensor | None = None
        self._seeds: dict[tuple[int, int], list[tuple[Tensor, Crossing]]] = {}
        """By micro-batch and stage: results of the stage, with their gradients in flight from later stages."""
        with enable_grad():
            parts = zip(split_rows(arguments_of(inputs), sizes), split_rows(targets, sizes), strict=True)
            calls = [_call(pipeline.module, loss_function, x, y) for x, y in parts]
        self._batches = [_MicroBatch(pipeline, self._shared, k, call) for k, call in enumerate(calls)]

    def run(self, schedule: Sequence[PipelineTask]) -> Tensor:
        """Run all tasks; return the loss."""
        for task in schedule:
            if task.backward:
                self._backward(task)
            else:
                self._forward(task)
        self._shared.return_gradients()
        outside = [seed for k in range(len(self._batches)) for seed in self._seeds.pop((k, -1), [])]
        if outside:  # inputs may be results of ops, whose tape all micro-batches share
            backward_to([x for x, _ in outside], [g.receive(x.device) for x, g in outside], [])
        assert self._total is not None
        return self._total

    def end(self) -> None:
        """Release everything that the step holds."""
        for batch in self._batches:
            batch.release()

    def _forward(self, task: PipelineTask) -> None:
        batch = self._batches[task.micro_batch]
        batch.forward()
        if task.stage != self._last:
            return
        loss = batch.loss
        if not isinstance(loss, Tensor) or loss.size != 1 or not loss.requires_grad:
            found = (
                f"shape {loss.shape}, requires_grad {loss.requires_grad}" if isinstance(loss, Tensor) else repr(loss)
            )
            raise AutogradError(
                message("Pipeline", f"the loss function returned {found}", expected="a scalar on the tape")
            )
        weight = self._weights[task.micro_batch]
        with no_grad():
            share = loss.detach() * weight
            self._total = share if self._total is None else self._total + share
            seed = ops.full(loss.shape, weight, loss.dtype, device=loss.device)
        self._seeds[task.micro_batch, task.stage] = [(loss, Crossing(seed))]

    def _backward(self, task: PipelineTask) -> None:
        batch, stage = self._batches[task.micro_batch], task.stage
        executor = batch.executor
        if stage == self._last:
            batch.release()
        seeds = self._seeds.pop((task.micro_batch, stage))
        received, replicas = executor.sources(stage), self._shared.of_stage(stage)
        executor.enter(stage, forward=False)
        if seeds:
            outputs = [x for x, _ in seeds]
            arrived = [g.receive(x.device) for x, g in seeds]
            seeds.clear()
            with dispatch.executing(executor):
                leaves = [r.leaf for r in received] + [leaf for _, leaf in replicas]
                gradients = backward_to(outputs, arrived, leaves)
            del outputs, arrived
            for r, g in zip(received, gradients[: len(received)], strict=True):
                if g is not None:
                    self._seeds.setdefault((task.micro_batch, executor.owner(r.source)), []).append(
                        (r.source, Crossing(g, r.source.device))
                    )
            with no_grad():
                for (key, _), g in zip(replicas, gradients[len(received) :], strict=True):
                    if g is not None:
                        self._shared.add_gradient(key, g)
        executor.release(stage)


def _call(module: Module, loss_function: LossFunction, inputs: Any, targets: Tensor) -> Callable[[], Tensor]:
    """Return the forward pass of one micro-batch, which releases its arguments as it begins."""
    held = [(inputs, targets)]

    def run() -> Tensor:
        (arguments, keywords), targets = held.pop()
        return loss_function(module(*arguments, **keywords), targets)

    return run


def _autocast(dtype: Any) -> autocast:
    return autocast(enabled=False) if dtype is None else autocast(dtype)


def _joined(stages: Module | Sequence[Module], cuts: Sequence[str | int] | None) -> tuple[Module, list[str]]:
    """Return the whole model, and the names of its later stages' first modules. Raises TypeError and ValueError."""
    if isinstance(stages, Module):
        if cuts is None:
            fix = "pass cuts, a list of stages, or the result of parallel.partition"
            raise ValueError(message("Pipeline", f"a {type(stages).__name__} without cuts", fix=fix))
        children = [name for name, _ in stages.named_children()]
        return stages, [children[cut] if isinstance(cut, int) else cut for cut in cuts]
    if cuts is not None:
        raise ValueError(
            message("Pipeline", f"{len(stages)} stages and {len(cuts)} cuts", expected="cuts of one model")
        )
    for i, stage in enumerate(stages):
        if not isinstance(stage, Module):
            raise TypeError(message("Pipeline", f"stage {i} is a {type(stage).__name__}", expected="a module"))
    parts = [dict(stage.named_children()) if type(stage) is Sequential else {} for stage in stages]
    names = [name for part in parts for name in part]
    if all(parts) and len(set(names)) == len(names):  # slices of one model keep its names
        return Sequential({n: m for part in parts for n, m in part.items()}), [next(iter(p)) for p in parts[1:]]
    return Sequential(*stages), [str(i) for i in range(1, len(stages))]


def _homes(model: Module, layout: StageLayout) -> dict[str, int]:
    """Return the stage of each parameter and buffer, by name: the last stage that begins before it."""
    homes: dict[str, int] = {}
    stage = 0
    for path, module in model.named_modules():
        stage = layout.starts.get(module, stage)
        for name in (*module._parameters, *module._buffers):
            homes[f"{path}.{name}" if path else name] = stage
    return homes
