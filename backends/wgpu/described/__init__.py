"""Described devices: shaders and launches for an adapter that is not installed, derived from its wgpu properties."""
