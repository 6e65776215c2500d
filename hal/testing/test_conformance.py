"""The conformance kit as pytest tests: one per case and device, parametrised by the plug-in."""

from __future__ import annotations

import pytest

from polyhal.hal.testing.kit.cases import Case
from polyhal.hal.testing.kit.failures import explained
from polyhal.hal.testing.kit.isolation import strict


def test_conformance(polyhal_case: Case) -> None:
    """One case on one device, with host fallbacks and kernels that do not build refused."""
    wrong: AssertionError | None = None
    with strict():
        try:
            polyhal_case.run()
        except AssertionError as error:
            wrong = error
    if wrong is not None:
        # The way through the kit tells nobody anything; what a driver raises comes with its traceback.
        pytest.fail(explained(polyhal_case.id, polyhal_case.device, wrong), pytrace=False)
