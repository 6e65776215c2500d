"""The conformance kit as pytest tests: one per case and device, parametrized by the plug-in."""

from __future__ import annotations

import pytest

from polyhal.hal.testing.kit.cases import Case
from polyhal.hal.testing.kit.failures import failure_text
from polyhal.hal.testing.kit.isolation import strict


def test_conformance(polyhal_case: Case) -> None:
    """Run one case on one device; host fallbacks and kernels that do not build are failures."""
    failure: AssertionError | None = None
    with strict():
        try:
            polyhal_case.run()
        except AssertionError as error:
            failure = error
    if failure is not None:
        # The kit's own traceback is not helpful; exceptions of drivers keep theirs.
        pytest.fail(failure_text(polyhal_case.id, polyhal_case.device, failure), pytrace=False)
