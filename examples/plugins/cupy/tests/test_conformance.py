"""Polyhal's conformance kit, as tests of this backend: one test per requirement of the contract, op and dtype."""

import pytest
from conftest import missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from polyhal.hal.testing.test_conformance import test_conformance

__all__ = ["test_conformance"]
