"""Scheduling, memory planning and execution of captured graphs."""
