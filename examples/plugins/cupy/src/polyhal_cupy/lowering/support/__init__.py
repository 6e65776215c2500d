"""Helpers of lowering functions."""
