"""Whole steps of PyTorch programs, recorded as graphs: arguments, guards, work on the host, and replays."""
