"""Described devices: what the backend would build and launch on an adapter that is not here, from what wgpu reports of it."""
