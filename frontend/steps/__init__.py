"""Captured steps: call signatures, recording, guards and replay, the structure of results, and gradients of results."""
