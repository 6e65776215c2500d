"""Described devices: what the backend would build and launch on a device that is not here, from what its driver reports."""
