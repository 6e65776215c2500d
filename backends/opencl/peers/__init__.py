"""Copies between OpenCL devices, and memory shared between drivers."""
