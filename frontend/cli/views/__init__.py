"""Longer output of commands: progress displays, reports and certificates."""
