"""Collectives: values that several devices, of one process or of many, combine or exchange."""
