"""Devices, memory and eager execution."""
