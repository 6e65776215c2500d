"""The explanation of a captured function before there is a recorded step."""

from __future__ import annotations

import polyhal as ph


def test_it_says_that_the_first_call_runs_op_by_op(numpy_device: ph.Device) -> None:
    step = ph.jit(lambda x: x * 2)
    assert "the first call will run op by op" in step.explain()
    step(ph.ones(2))
    assert step.explain().startswith("nothing is recorded yet: the next call")
    step(ph.ones(2))
    assert "multiply" in step.explain()
