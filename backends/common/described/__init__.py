"""Described devices: what a backend would build and launch on a device that is not here, from what its driver reports."""
