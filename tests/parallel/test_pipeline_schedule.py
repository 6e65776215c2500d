"""Schedules of pipelines against their definitions: order within a stage, dependencies of tasks, memory, and the bubble."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.parallel.schedule import PipelineTask, ScheduleName, in_flight, stage_tasks, timeline

counts = st.integers(1, 9)
schedules = st.sampled_from(("1f1b", "gpipe"))


def written(tasks: list[PipelineTask]) -> str:
    return " ".join(map(str, tasks))


def test_the_figure_of_1f1b() -> None:
    """The order of four stages and eight micro-batches as drawn in arXiv:2104.04473, figure 4 (without interleaving)."""
    assert written(stage_tasks("1f1b", 0, 4, 8)) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert written(stage_tasks("1f1b", 2, 4, 8)) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7"
    assert written(stage_tasks("1f1b", 3, 4, 8)) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


def test_the_order_of_gpipe() -> None:
    assert written(stage_tasks("gpipe", 1, 3, 3)) == "F0 F1 F2 B0 B1 B2"


@given(schedule=schedules, stages=counts, micro_batches=counts)
def test_every_task_runs_once_after_its_dependencies(schedule: ScheduleName, stages: int, micro_batches: int) -> None:
    made = {t.task: t for t in timeline(schedule, stages, micro_batches)}
    assert len(made) == 2 * stages * micro_batches
    for task, (start, _, _) in made.items():
        if task.backward:
            assert made[task._replace(backward=False)].end <= start
        before = task.stage + 1 if task.backward else task.stage - 1
        if 0 <= before < stages:
            assert made[task._replace(stage=before)].end <= start
    for stage in range(stages):
        own = [t for t in made.values() if t.task.stage == stage]
        assert [t.task for t in own] == stage_tasks(schedule, stage, stages, micro_batches)
        assert all(a.end <= b.start for a, b in pairwise(own))


@given(schedule=schedules, stages=counts, micro_batches=counts, forward=st.integers(1, 3), backward=st.integers(1, 3))
def test_the_bubble_is_one_micro_batch_per_further_stage(
    schedule: ScheduleName, stages: int, micro_batches: int, forward: int, backward: int
) -> None:
    made = timeline(schedule, stages, micro_batches, forward, backward)
    assert max(t.end for t in made) == (micro_batches + stages - 1) * (forward + backward)


@given(stages=counts, micro_batches=counts)
def test_1f1b_holds_as_many_micro_batches_as_there_are_stages_left(stages: int, micro_batches: int) -> None:
    for stage in range(stages):
        assert in_flight("1f1b", stage, stages, micro_batches) == min(stages - stage, micro_batches)
        assert in_flight("gpipe", stage, stages, micro_batches) == micro_batches


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule is 'zb-h1'"):
        stage_tasks("zb-h1", 0, 1, 1)  # type: ignore[arg-type]
