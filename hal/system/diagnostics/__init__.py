"""Diagnostic tools for users: doctor, self-test, profiler, and explanations and pictures of graphs."""
