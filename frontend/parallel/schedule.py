"""Schedules of pipelines: the order of the forward and backward passes of micro-batches in each stage.

Sources: GPipe, Huang et al., arXiv:1811.06965; 1F1B, Narayanan et al., "PipeDream", SOSP 2019, and arXiv:2104.04473.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from polyhal.hal.errors import message

ScheduleName = Literal["1f1b", "gpipe"]


class PipelineTask(NamedTuple):
    """The forward or backward pass of one micro-batch through one stage."""

    backward: bool
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{'B' if self.backward else 'F'}{self.micro_batch}"


def stage_tasks(schedule: ScheduleName, stage: int, stages: int, micro_batches: int) -> list[PipelineTask]:
    """Return the tasks of one stage, in order.

    GPipe runs all forward passes first. 1F1B runs only the forward passes that fill the pipeline until the first micro-batch
    returns, then alternates backward and forward passes: at most `stages - stage` micro-batches are in flight. Raises
    ValueError.
    """
    if schedule not in ("1f1b", "gpipe"):
        raise ValueError(message("Pipeline", f"schedule is {schedule!r}", expected="'1f1b' or 'gpipe'"))
    ahead = micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches)
    forward = [PipelineTask(False, stage, k) for k in range(micro_batches)]
    tasks = forward[:ahead]
    for k in range(micro_batches):
        tasks.append(PipelineTask(True, stage, k))
        tasks += forward[ahead + k : ahead + k + 1]
    return tasks


class TimedTask(NamedTuple):
    """A task with its start and end, if all stages take equally long."""

    start: int
    end: int
    task: PipelineTask


FORWARD, BACKWARD = 1, 2
"""Time of the two passes: a backward pass has about two products for each one of the forward pass."""


def timeline(
    schedule: ScheduleName, stages: int, micro_batches: int, forward: int = FORWARD, backward: int = BACKWARD
) -> list[TimedTask]:
    """Return the tasks of all stages by start; each starts as soon as its stage is free and its input is ready.

    Both schedules take (micro_batches + stages - 1) (forward + backward). Each stage is idle for (stages - 1) (forward +
    backward) of that time: the bubble.
    """
    waiting = [stage_tasks(schedule, stage, stages, micro_batches) for stage in range(stages)]
    position, free = [0] * stages, [0] * stages
    ends: dict[PipelineTask, int] = {}
    made: list[TimedTask] = []
    while len(made) < 2 * stages * micro_batches:
        ready = []
        for stage, tasks in enumerate(waiting):
            task = tasks[position[stage]] if position[stage] < len(tasks) else None
            if task is not None and _needs(task, stages) <= ends.keys():
                ready.append((max([free[stage], *(ends[n] for n in _needs(task, stages))]), task))
        start, task = min(ready)
        end = start + (backward if task.backward else forward)
        made.append(TimedTask(start, end, task))
        position[task.stage] += 1
        free[task.stage] = ends[task] = end
    return sorted(made)


def _needs(task: PipelineTask, stages: int) -> set[PipelineTask]:
    """Return the tasks of other stages whose results a task reads."""
    if not task.backward:
        return {task._replace(stage=task.stage - 1)} if task.stage else set()
    return {task._replace(stage=task.stage + 1)} if task.stage + 1 < stages else set()


def in_flight(schedule: ScheduleName, stage: int, stages: int, micro_batches: int) -> int:
    """Return the maximum number of micro-batches that a stage holds between their forward and backward passes."""
    held = most = 0
    for task in stage_tasks(schedule, stage, stages, micro_batches):
        held += -1 if task.backward else 1
        most = max(most, held)
    return most
