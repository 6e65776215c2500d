"""Execution state of a thread: its executor, arrays, plans of ops, scalars of replays, and source locations."""
