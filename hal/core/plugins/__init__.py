"""Plug-ins: loading of entry points, probing for devices, and trials of both in a process of their own."""
