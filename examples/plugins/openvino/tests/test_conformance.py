"""Polyhal's conformance kit, as tests of this backend: one test per requirement of the contract, op and dtype."""

from polyhal.hal.testing.test_conformance import test_conformance

__all__ = ["test_conformance"]
