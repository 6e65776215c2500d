"""The conformance kit on every device under test."""

from polyhal.hal.testing.test_conformance import test_conformance
from polyhal.hal.testing.test_fuzz import test_elementwise, test_matmul, test_reductions, test_views

__all__ = ["test_conformance", "test_elementwise", "test_matmul", "test_reductions", "test_views"]
