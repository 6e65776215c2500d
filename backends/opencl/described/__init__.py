"""Described devices: the programs and launches for a device that is not present, derived from its driver's reports."""
