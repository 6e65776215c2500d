"""Ordinary PyTorch programs whose device is a string, of the kinds of PyTorch's examples, on data that every machine has.

Each file has `losses(device, steps)`, which trains and returns the loss of each step. Random numbers are drawn on the CPU.
"""
