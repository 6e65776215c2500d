"""Polyhal's conformance kit on the ops of this package: values, layouts, dtypes, gradients, second gradients and errors."""

from polyhal.hal.testing.test_conformance import test_conformance

__all__ = ["test_conformance"]
