"""`explain` of a captured function before its first step is recorded."""

from __future__ import annotations

import polyhal as ph


def test_the_explanation_before_the_first_call_names_the_way_of_that_call(numpy_device: ph.Device) -> None:
    step = ph.jit(lambda x: x * 2)
    assert "the first call will run op by op" in step.explain()
    step(ph.ones(2))
    assert step.explain().startswith("nothing is recorded yet: the next call")
    step(ph.ones(2))
    assert "multiply" in step.explain()
